"""Growth on the core: what is lowered and lifted is the same network, at its true size."""

from __future__ import annotations

import math

import pytest
import torch

from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow.search.core import CoreGrowth
from tensorgrow.search.run import run
from tensorgrow.search.state import Fitted
from tests.search.factories import GROWTH, make_core_search


def growth() -> CoreGrowth:
    core = CoreGrowth.of(make_core_search(GROWTH, max_error=0.02).problem)
    assert core is not None
    return core


def network_on(core: CoreGrowth, rank: int) -> Fitted:
    structure = Structure.tensor_ring(core.problem.objective.dims, rank)
    structure = Structure(structure.dims, {**structure.ranks, (0, 3): 2, (1, 3): 2}, num_nodes=4)
    network = TensorNetwork.random(structure, random_state=0)
    objective = core.problem.objective
    return Fitted(network, objective.loss(structure, objective.to_arrays(network)))


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_lifting_keeps_the_tensor_and_lowering_undoes_it(rank):
    core, whole = growth(), make_core_search(GROWTH, max_error=0.02).problem.objective
    small = network_on(core, rank)
    lifted, _ = core.lift(small, None)
    assert lifted.loss == small.loss
    structure = lifted.network.structure
    assert structure.dims == whole.dims
    arrays = whole.to_arrays(lifted.network)
    assert whole.loss(structure, arrays) == pytest.approx(small.loss, rel=1e-10)
    back = core.lower(lifted).network
    assert back.structure.num_parameters <= small.network.num_parameters
    assert torch.allclose(back.to_dense(), small.network.to_dense(), rtol=0.0, atol=1e-9)


def test_bases_hang_on_nodes_of_their_own_exactly_where_that_is_smaller():
    core = growth()
    for rank in (1, 2, 3, 5):
        small = network_on(core, rank)
        lifted, edge = core.lift(small, (0, 1))
        expected = 0
        for node in range(4):
            shape = small.network.structure.core_shape(node)
            if node == 3:
                expected += math.prod(shape)
                continue
            size, bonds = lifted.network.structure.dims[node], math.prod(shape[1:])
            expected += min(size * bonds, shape[0] * (size + bonds))
        assert lifted.size == expected
        assert lifted.network.structure.rank(*edge) == small.network.structure.rank(0, 1)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        (GROWTH, {"max_error": 0.02, "edges": "chain"}),
        (GROWTH, {"max_error": 0.02, "split_nodes": False}),
        (GROWTH, {"max_error": 0.02, "max_parameters": 500}),
        (GROWTH, {"max_steps": 3}),
        (GROWTH.replace(max_degree=2), {"max_error": 0.02}),
        (GreedyOptions.paper(), {"max_error": 0.02}),
    ],
)
def test_who_forbids_such_nodes_or_sets_a_budget_gets_none(options, limits):
    assert CoreGrowth.of(make_core_search(options, **limits).problem) is None


def test_steps_are_networks_over_the_tensor_at_their_true_size():
    search = make_core_search(GROWTH, max_error=0.02)
    objective = search.problem.objective
    run(search, [])
    grown = [s for s in search.state.steps if s.kind == "grow"]
    assert any(s.structure.num_nodes > 3 for s in grown)
    for step in search.state.steps:
        assert step.structure.dims == objective.dims
        assert step.num_parameters == step.structure.num_parameters
    for point in search.state.path:
        loss = objective.loss(point.network.structure, objective.to_arrays(point.network))
        assert loss / objective.norm == pytest.approx(point.error, rel=1e-6)
    assert search.best.loss <= search.problem.target


def test_core_growth_is_leaner_at_the_target_than_growth_at_full_prices(monkeypatch):
    def size_at_target() -> int:
        search = make_core_search(GROWTH, max_error=0.02)
        run(search, [])
        return next(s.num_parameters for s in search.state.steps if s.relative_error <= 0.02)

    lean = size_at_target()
    monkeypatch.setattr(CoreGrowth, "of", lambda problem: None)
    assert lean < size_at_target()
