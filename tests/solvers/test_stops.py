"""When a fit stops."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.structure import Structure
from tests.objectives.entry_data import Data
from tests.oracles import dense, random_array, random_network

NEVER = -math.inf  # a tolerance that never stops
RING = Structure.tensor_ring((6,) * 4, (2, 3, 2, 3))


def long_run(**changes):
    structure = RING
    target = random_array(np.random.default_rng(0), structure.dims, torch.float64)
    arguments = {k: changes.pop(k) for k in ("target", "give_up", "deadline") if k in changes}
    options = ALSSettings(**{"max_sweeps": 40, "tolerance": NEVER} | changes)
    objective = DenseLeastSquares(target)
    return objective, als(objective, random_network(structure, 1), options, **arguments)


def test_stops_at_the_target():
    _, full = long_run()
    middle = full.losses[10]
    _, fit = long_run(target=middle)
    assert fit.losses == full.losses[:11]


def test_stops_when_a_sweep_gains_little():
    _, full = long_run()
    _, fit = long_run(tolerance=1e-3)
    drops = [(a - b) / b for a, b in zip(full.losses, full.losses[1:])]
    first = next(k for k, d in enumerate(drops) if d < 1e-3)
    assert fit.losses == full.losses[: first + 2]
    assert 2 < fit.num_sweeps < 40


def test_the_least_number_of_sweeps_is_made_whatever_they_gain():
    _, full = long_run()
    assert long_run(tolerance=0.9, min_sweeps=6)[1].losses == full.losses[:6]
    assert long_run(tolerance=0.9, min_sweeps=6, max_sweeps=4)[1].losses == full.losses[:4]


def test_compares_losses_a_period_apart_at_its_end():
    _, full = long_run()
    _, fit = long_run(tolerance=1e-3, by_period=True, balance_every=5)
    ends = range(10, 41, 5)
    last = next(k for k in ends if abs(full.losses[k - 6] - full.losses[k - 1]) < 5e-3 * full.losses[k - 1])
    assert fit.losses == full.losses[:last]
    assert 10 <= fit.num_sweeps < 40


def test_stops_by_the_rule_of_the_paper():
    objective, full = long_run()
    _, fit = long_run(absolute_tolerance=1e-4)
    drops = [(a**2 - b**2) / objective.norm**2 for a, b in zip(full.losses, full.losses[1:])]
    first = next(k for k, d in enumerate(drops) if d < 1e-4)
    assert fit.losses == full.losses[: first + 2]


def test_stops_at_the_deadline_and_after_max_sweeps():
    assert long_run(deadline=time.perf_counter())[1].num_sweeps == 1
    assert long_run(max_sweeps=7)[1].num_sweeps == 7


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("good", [0, 2])
def test_a_sweep_that_breaks_down_is_undone(good, accelerate, monkeypatch):
    structure = Structure.tensor_ring((4, 5, 4), 2)
    objective = DenseLeastSquares(torch.from_numpy(dense(structure, random_network(structure, 1).cores)))
    start = random_network(structure, 2)
    plain = DenseLeastSquares.sweep
    count = 0

    def breaking(self, structure, arrays, ridge):
        nonlocal count
        count += 1
        if count <= good:
            return plain(self, structure, arrays, ridge)
        arrays[:] = [a * math.nan for a in arrays]
        return math.nan

    monkeypatch.setattr(DenseLeastSquares, "sweep", breaking)
    fit = als(objective, start, ALSSettings(max_sweeps=9, tolerance=0.0, accelerate=accelerate))
    assert fit.num_sweeps == good
    assert all(bool(torch.isfinite(c).all()) for c in fit.network.cores)
    assert fit.loss == pytest.approx(objective.loss(structure, objective.to_arrays(fit.network)))


def test_gives_up_on_hopeless_targets_only():
    _, full = long_run()
    _, hopeless = long_run(target=0.5 * full.loss, give_up=True)
    assert 4 <= hopeless.num_sweeps < 40
    _, reachable = long_run(target=full.losses[5], give_up=True)
    assert reachable.loss <= full.losses[5]


@pytest.mark.parametrize("accelerate", [False, True])
def test_gives_up_where_the_first_sweep_leaves_too_much_of_held_out_data(accelerate):
    d = Data(RING.dims, 0, share=0.5, ridge=1e-2)
    start, options = (
        random_network(RING, 1),
        ALSSettings(max_sweeps=6, tolerance=NEVER, accelerate=accelerate),
    )
    one = als(d.objective, start, replace(options, max_sweeps=1))
    held_out = d.objective.validation_loss(RING, d.objective.to_arrays(one.network))
    assert held_out is not None
    for most, sweeps in ((0.99 * held_out, 1), (1.01 * held_out, 6)):
        assert als(d.objective, start, options, most=most).num_sweeps == sweeps
    without = Data(RING.dims, 0, share=0.5, ridge=1e-2, hold_out=0.0)
    assert als(without.objective, start, options, most=0.0).num_sweeps == 6


def test_giving_up_on_a_plateau():
    # The start is already the best fit: no sweep changes anything.
    objective = DenseLeastSquares(torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)))
    unit = torch.tensor([1.0, 0.0], dtype=torch.float64)
    net = TensorNetwork(Structure.rank_one((2, 2)), [2 * unit, unit])
    fit = als(objective, net, ALSSettings(tolerance=0.0), target=0.5, give_up=True)
    assert fit.loss == pytest.approx(1.0)
    assert fit.num_sweeps < 100
