"""Completion where rank one is blind: found from other starts, or refused with the reason."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tests.tasks.completions import StopAfter, assert_same

# A short run: nothing is learned by the first growths, and that is all that is asked here.
SHORT = {
    "options": tg.GreedyOptions.for_completion("fast").replace(patience=1),
    "edges": "chain",
    "random_state": 0,
}


def _planted(dims: tuple[int, ...], count: int, seed: int) -> tuple[tg.Observations, tg.Observations]:
    """Random entries of a train of rank 2 with normal cores, and others to test on."""
    network = tg.TensorNetwork.random(tg.Structure.tensor_train(dims, 2), random_state=seed)
    flat = np.random.default_rng(seed).choice(math.prod(dims), count + 200, replace=False)
    where = np.stack(np.unravel_index(flat, dims), 1)
    values = network.entries(torch.from_numpy(where)).numpy()
    return (
        tg.Observations(where[:count], values[:count], dims),
        tg.Observations(where[count:], values[count:], dims),
    )


def _noise(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((7, 7, 7)), rng.random((7, 7, 7)) < 0.7


@pytest.fixture(scope="module")
def found() -> tg.Result:
    x, truth = _planted((6,) * 6, 720, seed=1)
    return tg.complete(x, truth=truth, **SHORT)


def test_a_train_is_found_from_a_random_start(found):
    grown = [s.validation_error for s in found.history if s.kind in ("start", "grow")][:2]
    assert min(grown) > 0.9  # rank one and its neighbours see nothing
    assert "try" in [s.kind for s in found.history]
    assert found.stop is Stop.TARGET_REACHED
    assert found.test_error < 1e-3


def test_a_run_that_is_resumed_between_starts_ends_alike(found, tmp_path):
    x, truth = _planted((6,) * 6, 720, seed=1)
    at = [s.kind for s in found.history].index("try")
    part = tg.complete(x, checkpoint=tmp_path / "c", callbacks=StopAfter(at), **SHORT)
    assert part.stop is Stop.CALLBACK
    assert_same(tg.complete(x, truth=truth, checkpoint=tmp_path / "c", **SHORT), found)


def test_noise_is_refused_with_the_reason():
    with pytest.warns(tg.DataWarning, match="nothing was learned: the error on 25 held-out entries is"):
        result = tg.complete(*_noise(), **SHORT)
    assert result.stop is Stop.NOTHING_LEARNED
    assert "More entries" in result.stop.text
    tries = [s for s in result.history if s.kind == "try"]
    assert tries and all(s.validation_error > 0.8 for s in tries)
    assert not result.structure.edges  # of what learned nothing, the smallest


def test_a_signal_that_rank_one_finds_in_noise_is_no_reason_to_warn():
    x, mask = _noise()
    signal = np.einsum("i,j,k->ijk", *np.random.default_rng(5).standard_normal((3, 7)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", tg.DataWarning)
        result = tg.complete(x + 2.0 * signal / signal.std(), mask, **SHORT)
    assert result.stop is not Stop.NOTHING_LEARNED
    assert not [s for s in result.history if s.kind == "try"]


def test_a_start_that_the_user_gives_is_not_replaced():
    x, mask = _noise()
    init = tg.TensorNetwork.random(tg.Structure(x.shape, {(0, 1): 2}), random_state=0)
    result = tg.complete(x, mask, init=init, **SHORT)
    assert not [s for s in result.history if s.kind == "try"]
    assert result.stop is not Stop.NOTHING_LEARNED


def test_a_limit_ends_the_starts():
    x, mask = _noise()

    with pytest.warns(tg.DataWarning):
        whole = tg.complete(x, mask, **SHORT)
    first = [s.kind for s in whole.history].index("try")
    result = tg.complete(x, mask, max_steps=first, **SHORT)
    assert result.stop is Stop.MAX_STEPS
    assert [s.kind for s in result.history].count("try") == 1


def test_other_losses_are_left_alone():
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.0, (6, 6, 6))
    result = tg.complete(counts, rng.random((6, 6, 6)) < 0.7, loss="poisson", **SHORT)
    assert result.stop is not Stop.NOTHING_LEARNED
