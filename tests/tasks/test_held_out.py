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


def smooth(rng, shape, length):
    """A random field that varies over `length` entries."""
    x = rng.standard_normal(shape)
    for k, d in enumerate(shape):
        near = np.exp(-0.5 * (np.subtract.outer(np.arange(d), np.arange(d)) / length) ** 2)
        x = np.moveaxis(np.tensordot(near / np.linalg.norm(near, axis=1)[:, None], x, (1, k)), 0, k)
    return x


def planted_gaps(pattern: str):
    """Data whose groups have something of their own, and what is known of it."""
    rng = np.random.default_rng(0)
    if pattern in ("random", "whole fibres along mode 2"):
        x = np.einsum("i,j,k->ijk", *(rng.uniform(1, 2, n) for n in (14, 16, 6)))
        x = x + 0.6 * rng.standard_normal((14, 16, 1)) * rng.uniform(0.5, 1, 6)
        x = x + 0.05 * rng.standard_normal(x.shape)
        known = rng.random(x.shape if pattern == "random" else (14, 16, 1)) < 0.6
        return x, np.broadcast_to(known, x.shape)
    if pattern == "tails along mode 1":
        own = 0.2 * np.cumsum(rng.standard_normal((24, 40)), 1)
        x = 1 + own + np.outer(rng.uniform(1, 2, 24), np.sin(np.arange(40) / 3))
        return x, np.arange(40) < 40 - rng.integers(0, 12, 24)[:, None]
    rng = np.random.default_rng(3)
    x = 1 + smooth(rng, (40, 40), 3) + 0.03 * rng.standard_normal((40, 40))
    known = np.ones(x.shape, bool)
    for i, j in rng.integers(0, 35, (8, 2)):
        known[i : i + 5, j : j + 5] = False
    return x, known


@pytest.mark.parametrize(
    "pattern",
    ["random", "whole fibres along mode 2", "blocks along mode 0 and mode 1", "tails along mode 1"],
)
def test_the_held_out_error_forecasts_the_hidden_one(pattern):
    """Within a factor of 2.5, where single entries are too hopeful by 2.4 or more."""
    x, known = planted_gaps(pattern)
    result = tg.complete(x, known, truth=x, effort="fast", random_state=0)
    assert result.info["gaps"] == pattern
    assert (pattern in repr(result)) is (pattern != "random")
    assert 0.4 < result.test_error / result.validation_error < 2.5
    if pattern != "random":
        hopeful = tg.complete(x, known, truth=x, effort="fast", random_state=0, validation=0.1)
        assert "gaps" not in hopeful.info
        ratio = hopeful.test_error / hopeful.validation_error
        assert ratio > max(2.4, result.test_error / result.validation_error)
        if "fibres" in pattern:
            assert result.test_error < hopeful.test_error  # a better network, too


def test_gaps_have_the_names_of_the_axes():
    x, known = planted_gaps("whole fibres along mode 2")
    result = tg.complete(x, known, names=("place", "day", "hour"), max_steps=0)
    assert result.info["gaps"] == "whole fibres along hour"


def test_slices_of_axes_in_digits_are_held_out_whole():
    x = 1 + smooth(np.random.default_rng(0), (36, 30, 2), 3)
    known = np.ones(x.shape, bool)
    known[[3, 7, 8, 20, 29]] = False
    with pytest.warns(tg.DataWarning, match="slices without any observation"):
        plain = tg.complete(x, known, max_steps=0, random_state=0)
    assert plain.info["gaps"] == "random"  # nothing else is missing
    for wish in ("auto", ((6, 6), (5, 6), (2,))):
        with pytest.warns(tg.DataWarning):
            cut = tg.complete(x, known, tensorize=wish, members=1, max_steps=2, random_state=0)
        assert cut.info["gaps"] == "whole slices of mode 0"
        assert cut.info["num_held_out"] % 60 == 0
