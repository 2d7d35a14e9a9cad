"""What is held out of a completion, and the last fit to all entries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions
from tensorgrow import StopReason as Stop
from tests.tasks.completions import DIMS, FAST, SMALL, STRUCTURES, assert_same, error_at, noisy, some


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_a_share_is_held_out(share):
    x, mask = noisy(STRUCTURES["train"]), np.ones(DIMS, bool)
    result = tg.complete(x, mask, validation=share, max_steps=1, **FAST)
    assert result.info["num_held_out"] == pytest.approx(share * x.size, rel=0.05)
    assert result.info["num_observations"] == x.size


@pytest.mark.parametrize("validation", [False, None, 0, 0.0])
def test_nothing_held_out_needs_a_limit(validation):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    with pytest.raises(tg.OptionError, match="when to stop"):
        tg.complete(x, mask, validation=validation, **FAST)
    result = tg.complete(x, mask, validation=validation, max_parameters=30, **FAST)
    assert result.validation_error is None and result.info["num_held_out"] == 0
    assert result.train_error == pytest.approx(result.relative_error, rel=1e-6)
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-6)
    assert all(s.validation_error is None for s in result.history)


def test_masks_of_held_out_entries():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    held = some(SMALL.dims, 0.3, seed=5)
    where = np.argwhere(mask)
    listed = tg.Observations(where, x[mask], x.shape)
    options = {"max_steps": 1, **FAST}
    results = [
        tg.complete(x, mask, validation=held, **options),
        tg.complete(x, mask, validation=torch.tensor(held), **options),
        tg.complete(x, mask, validation=held.tolist(), **options),
        tg.complete(listed, validation=held, **options),
        tg.complete(listed, validation=held[mask], **options),
        tg.complete(listed, validation=torch.tensor(held[mask]), **options),
    ]
    assert results[0].info["num_held_out"] == (held & mask).sum()
    for other in results[1:]:
        assert_same(results[0], other)


def test_the_held_out_error_is_on_the_mask():
    """With no growth and no refit afterwards everything can be computed by hand."""
    x, mask = noisy(), some(SMALL.dims, 0.8)
    held = some(SMALL.dims, 0.3, seed=5)
    seen = []

    class Look:
        def on_start(self, search): ...

        def on_step(self, search, step): ...

        def on_end(self, search):
            seen.append((search.answer.network, search.problem.objective))

    result = tg.complete(x, mask, validation=held, max_steps=2, callbacks=Look(), **FAST)
    network = seen[0][0]
    inside = tg.Result(network, tg.Errors(0.0), (), Stop.CONVERGED)
    assert result.train_error == pytest.approx(error_at(inside, x, mask & ~held), rel=1e-6)
    assert result.validation_error == pytest.approx(error_at(inside, x, mask & held), rel=1e-6)


def test_held_out_values_reach_only_the_final_fit():
    """Changing them changes no network before the refit, as long as decisions do not depend on them."""
    x, mask = noisy(), np.ones(SMALL.dims, bool)
    held = some(SMALL.dims, 0.2, seed=3)
    other = x.copy()
    other[held] *= -1
    options = {
        "validation": held,
        "max_steps": 0,
        "options": GreedyOptions.for_completion("fast").replace(ridge=1e-3),
    }
    a, b = (tg.complete(y, mask, random_state=0, **options) for y in (x, other))
    assert a.train_error == pytest.approx(b.train_error, rel=1e-9)
    np.testing.assert_allclose(
        a.path[0].network.to_dense(), b.path[0].network.to_dense(), rtol=1e-6, atol=1e-9
    )  # fmt: skip
    assert a.validation_error < 1 < b.validation_error
    assert a.relative_error != pytest.approx(b.relative_error, rel=1e-2)


VALIDATION = {
    "all of them": (1.0, ["share", "1.0"]),
    "negative": (-0.1, ["share", "-0.1"]),
    "nan": (math.nan, ["share", "nan"]),
    "true": (True, ["mask"]),
    "text": ("0.1", ["boolean", "share"]),
    "indices": ([1, 2], ["boolean"]),
    "another shape": (np.ones((5, 6), bool), ["(5, 6)", "(5, 6, 5)"]),
    "everything": (np.ones(SMALL.dims, bool), ["some must"]),
    "nothing": (np.zeros(SMALL.dims, bool), ["0 of", "some must"]),
}


@pytest.mark.parametrize("case", VALIDATION)
def test_bad_validation(case):
    validation, words = VALIDATION[case]
    with pytest.raises(tg.OptionError) as caught:
        tg.complete(noisy(), some(SMALL.dims, 0.8), validation=validation, **FAST)
    for word in words:
        assert word.lower() in str(caught.value).lower()


def test_without_a_seed_the_same_entries_are_held_out():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    options = {"max_steps": 0, "effort": "fast"}
    one, two = (tg.complete(x, mask, **options).validation_error for _ in range(2))
    assert one == pytest.approx(two, rel=3e-3)  # random starts end at about the same fit
    for seed in (1, 2, 3):  # other entries tell
        assert tg.complete(x, mask, random_state=seed, **options).validation_error != pytest.approx(
            one, rel=6e-3
        )


def test_ctrl_c_during_the_last_fit_keeps_what_there_is(monkeypatch):
    x = np.einsum("i,j,k->ijk", *(np.linspace(1, 2, n) for n in (5, 6, 7)))
    mask = np.random.default_rng(0).random(x.shape) < 0.7

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tensorgrow.tasks.held_out.als", interrupt)
    result = tg.complete(x, mask, random_state=0)
    assert result.stop is tg.StopReason.INTERRUPTED
    assert np.abs(result.fill(x, mask) - x).max() < 1e-3
