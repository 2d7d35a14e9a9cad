"""Priors from the keyword to the filled array."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import priors

NOISE = 0.1


def waves(size: int = 24, seed: int = 0) -> np.ndarray:
    """Smooth along the first axis, not along the others, of rank two."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, size)
    time = np.stack([np.cos(3 * t), np.sin(5 * t)], 1)
    return np.einsum("tr,ar,br->tab", time, rng.normal(size=(8, 2)), rng.normal(size=(6, 2)))


def observed(x: np.ndarray, share: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return x + NOISE * x.std() * rng.normal(size=x.shape), rng.random(x.shape) < share


def error(result: tg.Result, x: np.ndarray, where: np.ndarray) -> float:
    return float(np.linalg.norm((result.to_array() - x)[where]) / np.linalg.norm(x[where]))


def complete(y, mask, known=None, **more):
    options = {"effort": "fast", "max_steps": 4, "random_state": 0} | more
    return tg.complete(y, mask, priors=known, **options)


def test_what_is_smooth_is_filled_better():
    x = waves()
    y, mask = observed(x, 0.12)
    plain, smooth = complete(y, mask), complete(y, mask, {0: priors.smooth()})
    assert error(smooth, x, ~mask) < 0.7 * error(plain, x, ~mask)
    assert smooth.info["prior_strength"] > 0
    assert smooth.info["priors"] == {"0": [priors.smooth().describe()]}
    assert "priors" not in plain.info and "prior_strength" not in plain.info


def test_gaps_come_from_the_prior():
    x = waves()
    y, mask = observed(x, 0.5)
    gap = np.zeros(x.shape, bool)
    gap[9:12] = True
    mask &= ~gap
    with pytest.warns(tg.DataWarning):  # slices without entries
        plain = complete(y, mask)
    with pytest.warns(tg.DataWarning):
        smooth = complete(y, mask, {0: priors.smooth(order=2)})
    assert error(smooth, x, gap) < 0.2 < error(plain, x, gap)


def test_silent_sensors_come_from_their_neighbours():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(4), 6)
    sensor = rng.normal(size=(4, 2))[clusters] + 0.05 * rng.normal(size=(24, 2))
    x = np.einsum("sr,tr,ur->stu", sensor, rng.normal(size=(10, 2)), rng.normal(size=(8, 2)))
    y, mask = observed(x, 0.5)
    silent = np.zeros(x.shape, bool)
    silent[[0, 7, 20]] = True
    mask &= ~silent
    graph = priors.graph(clusters[:, None] == clusters)
    with pytest.warns(tg.DataWarning):
        result = complete(y, mask, {"sensor": graph}, names=("sensor", "a", "b"))
    assert error(result, x, silent) < 0.2


@pytest.mark.parametrize("known", [priors.periodic(6), priors.autoregressive(6)], ids=["period", "lag"])
def test_periods_fill_gaps(known):
    rng = np.random.default_rng(0)
    x = np.einsum("tr,ar->ta", np.tile(rng.normal(size=(6, 2)), (4, 1)), rng.normal(size=(12, 2)))
    y, mask = observed(x, 0.6)
    gap = np.zeros(x.shape, bool)
    gap[8:11] = True
    mask &= ~gap
    with pytest.warns(tg.DataWarning):
        result = complete(y, mask, {0: known})
    assert error(result, x, gap) < 0.25


def test_a_given_strength_is_kept():
    x = waves()
    y, mask = observed(x, 0.2)
    known = {0: [priors.smooth(0.3), priors.periodic(strength=0.01)]}
    assert "prior_strength" not in complete(y, mask, known, max_steps=1).info


def test_without_held_out_entries_the_strength_is_the_default():
    x = waves()
    y, mask = observed(x, 0.2)
    result = complete(y, mask, {0: priors.smooth()}, max_steps=1, validation=False)
    assert result.info["prior_strength"] == 0.1


@pytest.mark.parametrize("loss", ["absolute", "huber"])
def test_other_losses_take_priors(loss):
    x = waves()
    y, mask = observed(x, 0.12)
    structure = tg.Structure.tensor_train(x.shape, 2)
    plain = tg.fit(y, structure, mask, loss=loss, random_state=0)
    smooth = tg.fit(y, structure, mask, loss=loss, priors={0: priors.smooth()}, random_state=0)
    assert error(smooth, x, ~mask) < 0.7 * error(plain, x, ~mask)


def test_fits_of_one_structure_take_priors():
    x = waves()
    y, mask = observed(x, 0.12)
    structure = tg.Structure.tensor_train(x.shape, 2)
    plain = tg.fit(y, structure, mask, random_state=0)
    smooth = tg.fit(y, structure, mask, priors={0: priors.smooth()}, random_state=0)
    assert error(smooth, x, ~mask) < 0.7 * error(plain, x, ~mask)


def test_resumed_runs_have_the_same_priors(tmp_path):
    x = waves(12)
    y, mask = observed(x, 0.3)
    file, known = tmp_path / "run", {0: priors.smooth()}
    whole = complete(y, mask, known, max_steps=3)
    complete(y, mask, known, max_steps=1, checkpoint=file)
    resumed = complete(y, mask, known, max_steps=3, checkpoint=file)
    assert [(s.kind, s.edge) for s in resumed.history] == [(s.kind, s.edge) for s in whole.history]
    assert resumed.info["prior_strength"] == whole.info["prior_strength"]
    for other in (None, {0: priors.smooth(0.1)}, {1: priors.smooth()}):
        with pytest.raises(tg.TensorgrowError, match="prior"):
            complete(y, mask, other, max_steps=3, checkpoint=file)


def test_pictures_are_smooth_along_digits():
    i, j = np.meshgrid(np.arange(24), np.arange(24), indexing="ij")
    x = np.stack([np.cos((i + c * j) / 9) for c in range(3)], 2)
    y, mask = observed(x, 0.2)
    known, graph = priors.smooth(), priors.graph(np.ones((24, 24)))
    digits = ((4, 6), (4, 6), (3,))
    plain = complete(y, mask, tensorize=digits)
    smooth = complete(y, mask, {0: known, 1: known}, tensorize=digits)
    assert error(smooth, x, ~mask) < error(plain, x, ~mask)
    assert set(smooth.info["priors"]) == {"0", "1"}  # as the user says it
    kept = complete(y, mask, {0: graph}, tensorize="auto", max_steps=1)  # such an axis is not cut
    assert kept.tensorization is None or len(kept.tensorization.digits[0]) == 1
    with pytest.raises(tg.OptionError, match="digits"):
        complete(y, mask, {0: graph}, tensorize=((4, 6), (24,), (3,)))


def test_complex_numbers_take_priors():
    x = waves() * np.exp(1j * np.linspace(0, 2, 24))[:, None, None]
    y, mask = observed(x.real, 0.3)
    result = complete(y + 1j * x.imag, mask, {0: priors.smooth()})
    assert error(result, x, ~mask) < 0.3


def test_bad_priors_are_refused():
    x = waves(6)
    with pytest.raises(tg.OptionError, match="axis 7"):
        complete(x, x > 0, {7: priors.smooth()})
    with pytest.raises(tg.DataError, match="3 nodes"):
        complete(x, x > 0, {0: priors.graph(np.ones((3, 3)))})
