from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.solvers import ALSSettings, TrainingOptions, als, train
from tensorgrow.solvers.deadline import GRACE, OutOfTime, TimedCores, check_time

# Far more than a run takes after its time, on a machine that others use as well.
PATIENCE = 20.0


class Slow(DenseLeastSquares):
    """Least squares whose cores take a while each."""

    seconds = 0.15

    def visit(self, structure, arrays, update):
        def late(*arguments):
            time.sleep(self.seconds)
            return update(*arguments)

        super().visit(structure, arrays, late)


def long_ago() -> float:
    return time.perf_counter() - 10.0 * GRACE


def test_checks_come_after_a_grace():
    check_time(math.inf)
    check_time(time.perf_counter())
    with pytest.raises(OutOfTime):
        check_time(long_ago())
    cores = TimedCores([1, 2], long_ago())
    with pytest.raises(OutOfTime):
        cores[0] = 3
    assert cores == [3, 2]  # the work was done already


@pytest.mark.parametrize("accelerate", [False, True])
def test_a_first_sweep_keeps_the_cores_it_has(accelerate):
    x = torch.randn(3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = tg.TensorNetwork.random(tg.Structure.tensor_train((3, 3, 3), 2), random_state=0)
    objective = DenseLeastSquares(x)
    fit = als(objective, start, ALSSettings(accelerate=accelerate), deadline=long_ago())
    assert fit.num_sweeps == 0
    assert fit.loss < objective.loss(start.structure, objective.to_arrays(start))
    assert fit.loss == pytest.approx(float((fit.network.to_dense() - x).norm()))


def test_a_later_sweep_that_is_too_late_is_undone():
    x = torch.randn(3, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = tg.TensorNetwork.random(tg.Structure.tensor_train((3,) * 4, 2), random_state=0)
    begin = time.perf_counter()
    fit = als(Slow(x), start, ALSSettings(tolerance=0.0), deadline=begin + 1.0)
    assert time.perf_counter() - begin < 1.0 + GRACE + PATIENCE
    assert 1 <= fit.num_sweeps <= 2
    assert fit.loss == pytest.approx(float((fit.network.to_dense() - x).norm()))


def test_a_line_search_ends_at_the_deadline_with_the_best_it_has_seen():
    w = torch.full((3,), 5.0, requires_grad=True)
    calls = []

    def loss(_):
        calls.append(0)
        time.sleep(0.02)
        return ((w - torch.arange(3.0)) ** 4).sum()

    def measure():
        return float(loss(None).detach())

    before = measure()
    torch.optim.LBFGS([w])  # loads what optimisers need, which takes seconds
    begin = time.perf_counter()
    options = TrainingOptions(optimizer="lbfgs", epochs=1000, patience=1000)
    how = {"measure": measure, "whole": True, "deadline": begin + 0.2}
    done = train([w], lambda: (None,), loss, options, **how)
    assert time.perf_counter() - begin < PATIENCE
    assert done.epochs == 1 and len(calls) > 3
    assert done.measure < before


# -- whole runs ----------------------------------------------------------------------------------------------

RING = tg.TensorNetwork.random(tg.Structure.tensor_ring((9,) * 4, 3), random_state=0).to_dense().numpy()
MASK = np.random.default_rng(0).random(RING.shape) < 0.5
TRAIN = tg.Structure.tensor_ring(RING.shape, 4)


@pytest.mark.parametrize("more", [{}, {"ridge": 1e-3}, {"loss": "huber"}])
def test_a_masked_fit_without_time_says_so(more):
    result = tg.fit(RING, TRAIN, MASK, max_seconds=0, random_state=0, **more)
    assert result.stop is Stop.MAX_SECONDS
    assert math.isfinite(result.relative_error if "loss" not in more else result.errors.total)
    assert result.history


@pytest.mark.parametrize("more", [{}, {"ridge": 1e-3}])
def test_a_masked_fit_of_one_sweep_has_not_converged(more):
    assert tg.fit(RING, TRAIN, MASK, max_sweeps=1, random_state=0, **more).stop is Stop.MAX_STEPS
    more = {"max_sweeps": 100, "tolerance": 0.1, **more}
    assert tg.fit(RING, TRAIN, MASK, random_state=0, **more).stop is Stop.CONVERGED


def test_a_slow_loss_ends_in_time():
    target = torch.as_tensor(RING[0, 0])

    def loss(network):
        time.sleep(0.05)
        return ((network.to_dense() - target) ** 2).mean()

    begin = time.perf_counter()
    result = tg.learn(loss, (9, 9), max_seconds=0.5, random_state=0, dtype=torch.float64)
    assert time.perf_counter() - begin < 0.5 + PATIENCE
    assert result.stop is Stop.MAX_SECONDS
    assert result.history


def test_taking_the_data_in_is_part_of_the_time():
    class Lazy:
        def __array__(self, *arguments, **keywords):
            time.sleep(0.3)
            return RING

    result = tg.decompose(Lazy(), max_error=1e-6, max_seconds=0.2, random_state=0)
    assert result.stop is Stop.MAX_SECONDS
    assert result.info["seconds"] >= 0.3
