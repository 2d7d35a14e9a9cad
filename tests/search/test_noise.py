"""Weights of counts, by how their noise grows with the level."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.objectives import ObservedLeastSquares
from tensorgrow.search.noise import deviance, excess, noise_power

RNG = np.random.default_rng(0)
SHAPE = (10, 12, 14)
RATES = np.exp(2.0 * np.einsum("i,j,k->ijk", *(RNG.uniform(0.5, 1.3, d) for d in SHAPE)))
COUNTS = RNG.poisson(RATES).astype(float)
SEEN = RNG.random(SHAPE) < 0.5
QUICK = {"random_state": 0, "effort": "fast", "max_parameters": 250}


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_growth_of_noise_is_found(power):
    levels = torch.from_numpy(RNG.uniform(1.0, 50.0, 4000))
    noise = torch.from_numpy(RNG.laplace(size=4000)) * levels ** (power / 2)
    assert noise_power(noise, levels) == pytest.approx(power, abs=0.25)


def test_the_deviance_is_that_of_the_best_scale():
    levels, rest = (torch.from_numpy(RNG.uniform(1.0, 9.0, 50)) for _ in range(2))
    scales = levels**0.5  # of Laplace's distribution with the variance c * level

    def minus_log_likelihood(c: float) -> float:
        return float((torch.log(c * scales) + rest / (c * scales)).mean())

    least = min(map(minus_log_likelihood, np.linspace(0.1, 10.0, 5000)))
    assert deviance(rest, levels, 1.0) + 1.0 == pytest.approx(least, abs=1e-5)


def test_numbers_that_go_together_count_as_one():
    numbers = torch.from_numpy(RNG.normal(0.3, 1.0, 400))
    alone = float(numbers.mean() / numbers.std() * 20.0)
    fibres = torch.arange(400)
    assert excess(numbers, [fibres]) == pytest.approx(alone, rel=1e-2)
    assert excess(numbers.repeat(9), [fibres.repeat(9)]) == pytest.approx(alone, rel=1e-2)
    assert excess(-numbers, [fibres]) == 0.0


def test_fibres_are_numbered_along_every_mode():
    where = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 0, 3], [1, 2, 3]])
    data = ObservedLeastSquares(where, torch.ones(4), (2, 3, 4), held_out=torch.ones(4, dtype=torch.bool))
    assert [f.tolist() for f in data.held_out_fibres()] == [[0, 0, 1, 2], [0, 2, 1, 3], [0, 1, 0, 2]]


def test_weighed_sweeps_are_weighted_least_squares():
    where, values = torch.from_numpy(np.argwhere(SEEN)), torch.from_numpy(COUNTS[SEEN])
    held_out = torch.arange(len(values)) % 7 == 0
    data = ObservedLeastSquares(where, values, SHAPE, held_out=held_out, ridge=0.0)
    pilot = tg.TensorNetwork.random(tg.Structure.rank_one(SHAPE), random_state=0)
    weighed = data.weighed(pilot, 0.5)
    levels = data.levels(pilot.entries(where))
    assert float(levels.min()) > 0.0
    weights = levels**-0.5 / (levels[~held_out] ** -0.5).mean()
    by_hand = ObservedLeastSquares(where, values, SHAPE, weights=weights, held_out=held_out, ridge=0.0)
    mine, theirs = (list(d.to_arrays(pilot)) for d in (weighed, by_hand))
    assert weighed.sweep(pilot.structure, mine, 0.0) == pytest.approx(
        by_hand.sweep(pilot.structure, theirs, 0.0)
    )
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b)
    # What is held out counts as before.
    assert weighed.validation_loss(pilot.structure, mine) == data.validation_loss(pilot.structure, mine)


def test_counts_weigh_less_the_larger_they_are():
    x = np.where(SEEN, COUNTS, 0.0)
    result, equal = (tg.complete(x, SEEN, weights=w, **QUICK) for w in ("auto", None))
    assert 0.0 < result.info["noise_power"] <= 1.5 and "noise_power" not in equal.info
    assert "weigh" in [s.kind for s in result.history] and "weigh" not in [s.kind for s in equal.history]
    small = ~SEEN & (np.quantile(RATES, 0.25) > RATES)
    rmse = [np.sqrt(np.mean((r.to_array() - RATES)[small] ** 2)) for r in (result, equal)]
    assert rmse[0] < 0.8 * rmse[1]
    # Errors that are reported are not weighted.
    rest = (result.to_array() - COUNTS)[SEEN]
    assert result.relative_error == pytest.approx(np.linalg.norm(rest) / np.linalg.norm(COUNTS[SEEN]), 1e-6)
    assert (
        result.update(x, SEEN, max_steps=0, random_state=0).info["noise_power"] == result.info["noise_power"]
    )


@pytest.mark.parametrize("x", [COUNTS + 0.5, COUNTS - 3.0], ids=["not whole", "negative"])
def test_what_are_no_counts_has_equal_weights(x):
    assert "noise_power" not in tg.complete(x, SEEN, max_steps=3, **QUICK).info


def test_noise_of_one_size_needs_no_weights():
    rng = np.random.default_rng(1)
    x = np.round(
        40.0 + 30.0 * np.einsum("i,j,k->ijk", *(rng.random(d) for d in SHAPE)) + 4 * rng.normal(size=SHAPE)
    )
    assert "noise_power" not in tg.complete(x, SEEN, **QUICK).info
