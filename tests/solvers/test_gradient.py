from __future__ import annotations

import torch

import tensorgrow as tg
from tensorgrow.solvers import grown_state


def test_optimiser_state_grows_with_the_core():
    before = tg.Structure((4, 4, 4), {(0, 1): 2})
    values = {
        "step": torch.tensor(7.0),
        "exp_avg": torch.ones(4, 2),
        "exp_avg_sq": torch.arange(8.0).reshape(4, 2),
    }
    wider = grown_state(values, before, 0, 1)
    assert wider["step"] == 7
    assert torch.equal(wider["exp_avg"], torch.tensor([[1.0, 1.0, 0.0]] * 4))
    assert torch.equal(wider["exp_avg_sq"][:, 2], torch.full((4,), 3.5))
    new = grown_state(values, before, 0, 2)
    assert new["exp_avg"].shape == (4, 2, 2)
    assert torch.equal(new["exp_avg"][..., 0], torch.ones(4, 2))
    assert not new["exp_avg"][..., 1].any()
