"""TT-ALS and TR-ALS on tensors with missing entries."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import baselines

pytestmark = pytest.mark.filterwarnings("ignore::tensorgrow.DataWarning")


def observed(structure: tg.Structure, share: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    x = tg.TensorNetwork.random(structure, random_state=0).to_dense().numpy()
    return x, np.random.default_rng(0).random(x.shape) < share


@pytest.mark.parametrize("start", ["spectral", "random"])
def test_the_rank_of_a_train_is_found_on_held_out_entries(start):
    x, mask = observed(tg.Structure.tensor_train((7, 8, 7), 2), 0.8)
    r = baselines.run("tt_als", x, mask, start=start, truth=x, max_error=1e-8, random_state=0)
    assert r.structure == tg.Structure.tensor_train((7, 8, 7), 2)
    assert r.test_error < 1e-6
    assert [s.num_parameters for s in r.history] == [22, 60]
    assert r.stop == tg.StopReason.TARGET_REACHED
    assert r.info["evaluations"] == 2
    assert np.allclose(r.fill(x, mask), x, atol=1e-5)


def test_a_ring_from_listed_entries():
    x, mask = observed(tg.Structure.tensor_ring((6, 6, 6), 2), 0.7)
    seen = tg.Observations(np.argwhere(mask), x[mask], x.shape)
    r = baselines.tr_als(seen, ranks=[2], truth=x, random_state=0)
    assert r.structure == tg.Structure.tensor_ring((6, 6, 6), 2)
    assert r.test_error < 1e-3
    assert r.stop == tg.StopReason.FINISHED


def test_budget_patience_and_callbacks_end_the_rise():
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((5, 5, 5)), rng.random((5, 5, 5)) < 0.7
    r = baselines.tt_als(x, mask, max_parameters=50, random_state=0)
    assert r.num_parameters <= 50
    assert r.stop in (tg.StopReason.MAX_PARAMETERS, tg.StopReason.VALIDATION)
    r = baselines.tt_als(x, mask, callbacks=lambda step: True, random_state=0)
    assert r.stop == tg.StopReason.CALLBACK
    assert len(r.history) == 1
    assert baselines.tt_als(x, mask, max_evaluations=2, random_state=0).stop == tg.StopReason.MAX_EVALUATIONS
    with pytest.raises(tg.OptionError, match="nothing was fitted"):
        baselines.tt_als(x, mask, max_parameters=3)
