"""Completion: limits, starts and rarer options."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow import StopReason as Stop
from tensorgrow.objectives import ObservedLeastSquares
from tests.oracles import random_network
from tests.tasks.completions import DIMS, FAST, SMALL, STRUCTURES, error_at, is_finite, noisy, planted, some

# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edges", ["chain", "ring", [(0, 2), (1, 3)]])
def test_edges_are_respected(edges):
    x, mask = noisy(STRUCTURES["ring"]), some(DIMS, 0.6)
    result = tg.complete(x, mask, edges=edges, max_steps=6, **FAST)
    chain = {(0, 1), (1, 2), (2, 3)}
    allowed = (
        {"chain": chain, "ring": chain | {(0, 3)}}.get(edges, set(edges))
        if isinstance(edges, str)
        else set(edges)
    )
    seen = {e for s in result.history for e in s.structure.edges}
    assert seen and seen <= allowed
    assert all(s.structure.num_nodes == 4 for s in result.history)


def test_the_ranks_of_a_chain_are_learned():
    structure = Structure.tensor_train(DIMS, (2, 3, 2))
    x, mask = planted(structure), some(DIMS, 0.7)
    result = tg.complete(x, mask, edges="chain", random_state=0)
    assert dict(result.structure.ranks) == dict(structure.ranks)
    assert error_at(result, x, ~mask) < 1e-6


@pytest.mark.parametrize("most", [16, 30, 47])
def test_max_parameters(most):
    x, mask = noisy(level=0.01), some(SMALL.dims, 0.9)
    result = tg.complete(x, mask, max_parameters=most, **FAST)
    assert result.num_parameters <= most
    assert all(s.num_parameters <= most for s in result.history)
    assert all(p.num_parameters <= most for p in result.path)


def test_a_budget_holds_while_ranks_are_exchanged():
    """Growth beyond the budget happens within one move; nothing above it is ever shown."""
    x, mask = noisy(STRUCTURES["ring"], level=0.05), some(DIMS, 0.8)
    for most in (60, 100):
        result = tg.complete(x, mask, max_parameters=most, random_state=0)
        assert result.stop is Stop.MAX_PARAMETERS
        assert all(s.num_parameters <= most for s in result.history)
        assert all(p.num_parameters <= most for p in result.path)
        plain = GreedyOptions.for_completion("balanced").replace(overshoot=0.0)
        without = tg.complete(x, mask, max_parameters=most, random_state=0, options=plain)
        assert result.validation_error <= without.validation_error * 1.01


def test_a_second_start_is_made_where_it_is_cheap_and_the_better_answer_kept():
    x, mask = noisy(level=0.2), some(SMALL.dims, 0.8)
    twice = tg.complete(x, mask, random_state=0)
    options = GreedyOptions.for_completion("balanced")
    once = tg.complete(x, mask, random_state=0, options=options.replace(starts=1))
    assert {s.start for s in twice.history} == {0, 1}
    assert {s.start for s in once.history} == {0}
    # The first start is the same; its answer is left only for one that is smaller, or measurably better.
    first = [(s.kind, s.num_parameters) for s in once.history if s.kind != "refit"]
    assert [(s.kind, s.num_parameters) for s in twice.history][: len(first)] == first
    assert twice.num_parameters <= once.num_parameters or twice.validation_error < once.validation_error
    assert twice.stop is once.stop is Stop.VALIDATION
    steps = sum(kind != "start" for kind, _ in first) + 2
    cut = tg.complete(x, mask, random_state=0, max_steps=steps)  # within the second start
    assert {s.start for s in cut.history} == {0, 1}
    assert cut.stop is Stop.VALIDATION
    assert cut.num_parameters <= once.num_parameters


def test_exact_fits_and_given_networks_are_not_started_again():
    x, mask = planted(STRUCTURES["ring"]), some(DIMS, 0.8)
    assert {s.start for s in tg.complete(x, mask, random_state=0).history} == {0}
    x, mask = noisy(level=0.2), some(SMALL.dims, 0.8)
    init = TensorNetwork.random(Structure.rank_one(SMALL.dims), random_state=1)
    assert {s.start for s in tg.complete(x, mask, random_state=0, init=init).history} == {0}


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_max_steps(steps):
    x, mask = planted(STRUCTURES["ring"]), some(DIMS, 0.8)
    result = tg.complete(x, mask, max_steps=steps, **FAST)
    assert sum(s.kind == "grow" for s in result.history) == steps
    assert result.stop is Stop.MAX_STEPS
    assert is_finite(result)


def test_max_seconds():
    x, mask = noisy(STRUCTURES["ring"]), some(DIMS, 0.8)
    result = tg.complete(x, mask, max_seconds=0, **FAST)
    assert result.stop is Stop.MAX_SECONDS
    assert result.num_parameters == 20 and is_finite(result)
    assert tg.complete(x, mask, max_seconds=600, max_steps=1, **FAST).stop is Stop.MAX_STEPS


def test_max_error_is_on_the_held_out_entries():
    grids = np.meshgrid(*(np.linspace(0, 1, 6),) * 3, indexing="ij")
    x, mask = 1.0 / (0.2 + sum(grids)), some((6, 6, 6), 0.8)
    sizes = []
    for error in (0.1, 0.01):
        result = tg.complete(x, mask, max_error=error, **FAST)
        assert result.stop is Stop.TARGET_REACHED
        assert 0 < result.validation_error <= error
        sizes.append(result.num_parameters)
    assert sizes[0] < sizes[1]


def test_overfitting_does_not_count_as_reaching_the_error():
    """The fitted entries are met far better than asked, the held-out ones are not."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 6, 6))
    held = some(x.shape, 0.5)
    start = random_network(Structure.tensor_train(x.shape, 6), 0)
    options = GreedyOptions.for_completion("fast").replace(ridge=1e-6)
    result = tg.complete(
        x,
        np.ones(x.shape, bool),
        validation=held,
        init=start,
        max_error=0.5,
        max_steps=0,
        options=options,
        random_state=0,
    )
    assert result.train_error < 0.3 and result.validation_error > 0.8
    assert result.stop is Stop.MAX_STEPS


def test_saturated():
    """A full matrix cannot grow beyond its smaller side."""
    x = planted(Structure.tensor_train((3, 20), 3))
    options = GreedyOptions.for_completion("fast").replace(ridge=1e-10, patience=50)
    result = tg.complete(
        x, np.ones(x.shape, bool), validation=False, max_error=0, options=options, random_state=0
    )
    assert result.stop in (Stop.SATURATED, Stop.NO_PROGRESS)
    assert result.structure.rank(0, 1) == 3


# -- memory, device, start -------------------------------------------------------------------------------


def test_memory_limits():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    with pytest.raises(tg.MemoryLimitError, match=r"\(5, 6, 5\).*GB"):
        tg.complete(x, mask, memory_limit=1000, **FAST)
    with pytest.raises(tg.MemoryLimitError, match="GB"):
        tg.fit(x, SMALL, mask, memory_limit=1000)
    for limit in (-1, math.nan, "1GB"):
        with pytest.raises(tg.OptionError, match="memory_limit"):
            tg.complete(x, mask, memory_limit=limit, **FAST)
    assert tg.complete(x, mask, memory_limit=4e9, max_steps=1, **FAST).stop is Stop.MAX_STEPS


def test_growth_stops_at_the_memory_limit():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    where = torch.tensor(np.argwhere(mask))
    objective = ObservedLeastSquares(where, torch.tensor(x[mask]), x.shape)
    first = objective.memory_needed(Structure.rank_one(x.shape))
    result = tg.complete(x, mask, memory_limit=first + 1, **FAST)
    assert result.stop is Stop.MEMORY_LIMIT
    assert result.num_parameters == sum(x.shape) and is_finite(result)


def test_devices(device):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    result = tg.complete(x, mask, device=device, truth=x, max_steps=2, **FAST)
    assert result.network.device.type == device
    assert isinstance(result.predict([[0, 0, 0]]), np.ndarray)
    filled = result.fill(x, mask)
    np.testing.assert_array_equal(filled[mask], x[mask])
    there = tg.complete(
        torch.tensor(x, device=device), torch.tensor(mask, device=device), max_steps=2, **FAST
    )
    assert there.network.device.type == there.predict([[0, 0, 0]]).device.type == device
    assert there.structure == result.structure
    for bad in ("tpu", "meta"):
        with pytest.raises(tg.OptionError, match="device"):
            tg.complete(x, mask, device=bad, **FAST)


def test_init():
    x, mask = planted(), some(SMALL.dims, 0.8)
    start = random_network(SMALL, 5)
    cores = [c.clone() for c in start.cores]
    result = tg.complete(x, mask, init=start, random_state=0)
    assert result.history[0].structure == SMALL
    assert error_at(result, x, ~mask) < 1e-6
    for a, b in zip(start.cores, cores):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    for bad, word in [
        ([1], "init"),
        (random_network(Structure.rank_one((5, 6)), 0), r"\(5, 6\)"),
        (random_network(SMALL, 0, torch.complex128), "complex"),
        (TensorNetwork(SMALL, [c * math.nan for c in cores]), "finite"),
    ]:
        with pytest.raises(tg.OptionError, match=word):
            tg.complete(x, mask, init=bad, **FAST)
    with pytest.raises(tg.OptionError, match="max_parameters=20"):
        tg.complete(x, mask, init=start, max_parameters=20, **FAST)


def test_callbacks_and_options():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    seen = []
    result = tg.complete(x, mask, callbacks=lambda step: seen.append(step), max_steps=2, **FAST)
    assert [s.index for s in seen] == [s.index for s in result.history if s.kind != "refit"]
    with pytest.raises(tg.OptionError, match="GreedyOptions"):
        tg.complete(x, mask, options={"ridge": 1.0})
    with pytest.raises(tg.OptionError, match="effort"):
        tg.complete(x, mask, effort="heroic")
    with pytest.raises(TypeError, match="bogus"):
        tg.complete(x, mask, bogus=1)
    options = GreedyOptions.for_completion("fast").replace(ridge=0.25)
    assert tg.complete(x, mask, options=options, max_steps=1, random_state=0).info["ridge"] == 0.25


@pytest.mark.parametrize(
    "options",
    [
        GreedyOptions.paper("completion").replace(sweeps=5),
        GreedyOptions.for_completion("fast").replace(scoring="full"),
        GreedyOptions.for_completion("fast").replace(slice_init="random", lookahead=3),
        GreedyOptions.for_completion("fast").replace(rank_increment=2),
        GreedyOptions.for_completion("fast").replace(transfer=False),
        GreedyOptions.for_completion("fast").replace(edge_score=lambda before, after, added: before - after),
        GreedyOptions(),
    ],
    ids=["paper", "full", "random slices", "two ranks", "no transfer", "own score", "dense defaults"],
)
def test_rarer_options(options):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    result = tg.complete(x, mask, options=options, max_steps=2, random_state=0)
    assert is_finite(result) and result.validation_error < 1.0
    assert len(result.history) >= 2


def test_max_degree():
    x, mask = noisy(STRUCTURES["ring"]), some(DIMS, 0.8)
    options = GreedyOptions.for_completion("fast").replace(max_degree=1)
    result = tg.complete(x, mask, options=options, max_steps=5, random_state=0)
    assert all(len(n) <= 1 for s in result.history for n in s.structure.neighbours)


def test_no_more_parameters_than_observations_determine():
    x = np.full((20, 20, 20), np.nan)
    x[3, 4, 5] = 2.0
    with pytest.warns(tg.DataWarning):
        result = tg.complete(x, validation=False, max_parameters=4000, random_state=0)
    assert result.num_parameters == 60  # rank one, the least there is
    assert result.predict([[3, 4, 5]])[0] == pytest.approx(2.0, rel=1e-2)


def test_an_outlier_beyond_all_squares_does_not_hide_the_error_elsewhere():
    x, mask = np.random.default_rng(0).standard_normal((4, 5, 6)), some((4, 5, 6), 0.8)
    x[0, 0, 0], mask[0, 0, 0] = 1e200, True
    held = mask & some((4, 5, 6), 0.2, seed=1)
    held[0, 0, 0] = False
    result = tg.complete(x, mask, validation=held, max_steps=1, **FAST)
    assert result.validation_error == pytest.approx(error_at(result, x, held), rel=1e-3)
    assert result.validation_error > 0.5 and result.stop is not Stop.TARGET_REACHED
