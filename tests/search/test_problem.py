"""Where a problem is computed on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.losses import as_loss
from tensorgrow.objectives import (
    CompressedLeastSquares,
    DenseLeastSquares,
    LeastSquares,
    ObservedLeastSquares,
    ReweightedLeastSquares,
)
from tensorgrow.search import (
    Context,
    CutBounds,
    GreedyOptions,
    HeldOutProblem,
    HeldOutSearch,
    Limits,
    Place,
    Problem,
    pace,
)
from tensorgrow.search.edges import EdgePolicy
from tensorgrow.search.search import Start
from tensorgrow.structure import Structure

DIMS = (4, 5, 3)
META = torch.device("meta")  # nothing is computed there


def entries(**more) -> ObservedLeastSquares:
    x = tg.TensorNetwork.random(Structure.tensor_ring(DIMS, 2), random_state=0).to_dense()
    seen = np.random.default_rng(0).random(DIMS) < 0.9
    where = torch.tensor(np.argwhere(seen))
    held_out = torch.arange(len(where)) % 8 == 0
    return ObservedLeastSquares(where, x[torch.from_numpy(seen)], DIMS, held_out=held_out, **more)


def problem(objective: LeastSquares, **more) -> HeldOutProblem:
    options = GreedyOptions.for_completion("fast")
    return HeldOutProblem(objective, options, EdgePolicy(None), Context(torch.Generator()), **more)


OBJECTIVES = {
    "dense": lambda: DenseLeastSquares(torch.ones(DIMS)),
    "core": lambda: CompressedLeastSquares(torch.ones(2, 5, 3), [torch.eye(4, 2), None, None], 0.1),
    "entries": entries,
    "weighted": lambda: entries(weights=torch.linspace(1.0, 2.0, int(entries().values.numel()))),
    "loss": lambda: ReweightedLeastSquares(entries(), as_loss("absolute")),
}


@pytest.mark.parametrize("make", OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_an_objective_elsewhere_is_the_same(make):
    here = make()
    there = here.on(torch.device("cpu"))
    network = tg.TensorNetwork.random(Structure.tensor_ring(DIMS, 2), random_state=1)
    cores = here.to_arrays(network)
    losses = [o.loss(network.structure, o.to_arrays(network)) for o in (here, there)]
    assert losses[0] == pytest.approx(losses[1])
    assert there.validation_norm == here.validation_norm and there.norm == pytest.approx(here.norm)
    assert there.sweep(network.structure, list(cores), 1e-14) == pytest.approx(
        here.sweep(network.structure, list(cores), 1e-14)
    )
    assert torch.device(here.on(META).device).type == "meta"


def test_a_problem_moves_once_its_sweeps_are_costly(monkeypatch):
    ring = Structure.tensor_ring(DIMS, 2)
    here = problem(entries(), memory_limit=1e9, elsewhere=Place(META, 1e10))
    assert here.moved(ring) is None  # cheap
    monkeypatch.setattr(pace, "COSTLY", 0.0)
    assert replace(here, elsewhere=None).moved(ring) is None
    there = here.moved(ring)
    assert torch.device(there.objective.device) == META and there.memory_limit == 1e10
    assert there.moved(ring) is None
    with pytest.warns(
        tg.DataWarning, match=r"on meta they need about .* and 1e-06 GB are free: the run stays"
    ):
        stays = replace(here, elsewhere=Place(META, 1e3)).moved(ring)
    assert stays.objective is here.objective and stays.elsewhere is None and stays.memory_limit == 1e9


def test_a_search_goes_on_where_it_is_moved_to(device, monkeypatch):
    monkeypatch.setattr(pace, "COSTLY", 0.0)
    device = torch.device(device).type
    place = Place(torch.device(device), 1e9)
    here = problem(entries(ridge=1e-6), elsewhere=place)
    limits = Limits(max_steps=6, held_out=True)
    searches = [
        HeldOutSearch(p, limits, Start(None, torch.float64)) for p in (here, problem(entries(ridge=1e-6)))
    ]
    for search in searches:
        list(search)
    moved, stayed = searches
    assert moved.problem.elsewhere is None and torch.device(moved.problem.objective.device).type == device
    assert moved.answer.measure == pytest.approx(stayed.answer.measure, rel=1e-3, abs=1e-6)


def test_legs_that_nothing_joins_come_last():
    ranks = {(0, 1): 5, (1, 2): 2, (2, 3): 5, (1, 4): 2, (2, 4): 2}
    x = tg.TensorNetwork.random(Structure((7,) * 5, ranks), random_state=0).to_dense()
    bounds, objective = CutBounds(x, 1e-6), DenseLeastSquares(x)
    exact = Problem(
        objective,
        GreedyOptions(),
        EdgePolicy(None),
        Context(torch.Generator()),
        target=1e-6 * objective.norm,
        bounds=bounds,
    )
    grown = Structure((7,) * 5, {(0, 1): 3, (0, 2): 2, (2, 4): 2}, num_nodes=6)
    for structure in (Structure.rank_one((7,) * 5), grown):
        first, last = exact.edges_in_turn(structure)
        assert set(last) == bounds.apart and set(ranks) <= set(first)
        everything = exact.policy.growable(structure)
        assert sorted(first + last) == everything
        for other in (replace(exact, bounds=None), replace(exact, target=0.1 * objective.norm)):
            assert other.edges_in_turn(structure) == [everything]
