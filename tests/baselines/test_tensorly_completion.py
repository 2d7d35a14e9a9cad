"""CP and Tucker on tensors with missing entries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines import tensorly_completion

pytestmark = pytest.mark.filterwarnings("ignore::tensorgrow.DataWarning")


@pytest.mark.parametrize("name", ["cp", "tucker"])
def test_cp_and_tucker_impute(name):
    rng = np.random.default_rng(1)
    x = np.einsum("az,bz,cz->abc", *(rng.standard_normal((6, 2)) for _ in range(3)))
    mask = rng.random(x.shape) < 0.7
    r = baselines.run(name, x, mask, rank=2, truth=x, random_state=0)
    assert r.num_parameters == (36 if name == "cp" else 44)
    assert r.test_error < 0.1
    rest = (r.network.to_dense() - torch.tensor(x))[torch.tensor(mask)]
    assert math.isclose(float(rest.norm()) / np.linalg.norm(x[mask]), r.relative_error, rel_tol=1e-9)
    hurried = baselines.run(name, x, mask, rank=2, max_seconds=0.0, random_state=0)
    assert hurried.stop == tg.StopReason.MAX_SECONDS


@pytest.mark.parametrize("name", ["cp", "tucker"])
def test_ctrl_c_in_the_middle_keeps_the_model_so_far(name, monkeypatch):
    rng = np.random.default_rng(1)
    x, mask = rng.standard_normal((5, 5, 5)), rng.random((5, 5, 5)) < 0.7
    calls: list[str] = []
    original = getattr(tensorly_completion, f"{name}_network")

    def raise_at_the_third(*model: object) -> tg.TensorNetwork:
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*model)

    monkeypatch.setattr(tensorly_completion, f"{name}_network", raise_at_the_third)
    r = baselines.run(name, x, mask, rank=2, random_state=0)
    assert r.stop == tg.StopReason.INTERRUPTED
    assert r.info["iterations"] == (1 if name == "cp" else 10)
    assert len(r.history) == 1


def test_a_keyword_that_is_not_known_is_refused():
    with pytest.raises(tg.OptionError, match="cp_completion does not know ranks"):
        baselines.run("cp", np.eye(3), np.ones((3, 3), bool), rank=2, ranks=[1])
