"""Moves of the search that goes by held-out entries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure
from tensorgrow.objectives import ObservedLeastSquares
from tensorgrow.search import Context, EdgePolicy, HeldOutProblem
from tensorgrow.search.grow import Care, grow_once, order_by_gain, refit
from tensorgrow.search.regrow import exchange
from tensorgrow.search.score import Candidate, cost_of, score_of
from tests.oracles import random_network
from tests.tasks.completions import SMALL, planted, some


def test_ranks_are_exchanged_within_a_budget():
    """A rank spent on the wrong pair of legs is given up for one on the right pair."""
    x, mask = planted(Structure(SMALL.dims, {(0, 1): 3})), some(SMALL.dims, 0.9)
    held = torch.from_numpy(some(SMALL.dims, 0.2, seed=5)[mask])
    objective = ObservedLeastSquares(
        torch.from_numpy(np.argwhere(mask)), torch.from_numpy(x[mask]), x.shape, held_out=held, ridge=1e-8
    )
    wrong = random_network(Structure(SMALL.dims, {(0, 1): 2, (1, 2): 3}), seed=3)
    problem = HeldOutProblem(
        objective,
        GreedyOptions.for_completion("balanced"),
        EdgePolicy(None),
        Context(torch.Generator().manual_seed(0)),
        max_parameters=wrong.num_parameters,
    )
    before = refit(problem, wrong)
    exchanged = exchange(problem, before, Care())
    assert exchanged is not None
    assert exchanged.size <= wrong.num_parameters
    assert problem.max_parameters == wrong.num_parameters
    assert exchanged.network.structure.rank(0, 1) == 3
    assert exchanged.measure < 1e-3 * before.measure


# Edge, added parameters, score, gain; the best score first.
GAINS = [(1, 2, 0.5, 1.0), (2, 10, 0.2, 2.0), (3, 100, 0.1, 10.0), (4, 50, 0.1, 5.0)]


def test_edges_that_gain_most_are_compared_with_the_best_scored():
    scored = [Candidate((0, k), None, None, 1.0, a, float(a), score, gain) for k, a, score, gain in GAINS]
    assert [c.edge[1] for c in order_by_gain(scored)] == [1, 3, 4, 2]


def test_a_growth_that_costs_next_to_nothing_counts_as_a_share_of_the_network():
    structure = Structure((50, 50, 2, 2), {(0, 1): 4})
    assert structure.growth_cost(2, 3) == 4
    assert cost_of(structure, (2, 3), 0.0) == 4
    assert cost_of(structure, (2, 3), 0.02) == 0.02 * structure.num_parameters > 4
    assert cost_of(structure, (0, 1), 0.02) == structure.growth_cost(0, 1)
    options = GreedyOptions.for_completion("balanced")
    costs = [cost_of(structure, e, options.least_growth) for e in ((0, 1), (2, 3))]
    gains = (0.1, 0.005)  # the cheap edge has more per parameter, and less that counts
    scores = [score_of(options, 1.0, math.exp(-g), 1, c) for g, c in zip(gains, costs)]
    assert scores == pytest.approx([g / c for g, c in zip(gains, costs)])
    assert scores[0] > scores[1]
    assert gains[0] / structure.growth_cost(0, 1) < gains[1] / structure.growth_cost(2, 3)


def test_a_costly_edge_that_gains_most_after_a_refit_is_taken():
    """With every edge refitted beside the best-scored, the choice is about the best there is."""
    x = planted(Structure.tensor_ring((6, 6, 6, 6), 3))
    mask = some(x.shape, 0.7)
    where = torch.from_numpy(np.argwhere(mask))
    held = torch.zeros(len(where), dtype=torch.bool)
    held[::10] = True
    objective = ObservedLeastSquares(where, torch.from_numpy(x[mask]), x.shape, held_out=held, ridge=1e-2)
    options = tg.GreedyOptions.for_completion("balanced")
    problem = HeldOutProblem(
        objective, options, EdgePolicy.parse("all", 4), Context(torch.Generator().manual_seed(0))
    )
    start = tg.TensorNetwork.random(tg.Structure.rank_one(x.shape), random_state=0)
    first = refit(problem, start)
    grown, edge = grow_once(problem, first, Care(doubt=5))
    per_parameter = {}
    for other in problem.policy.growable(first.network.structure):
        policy = EdgePolicy.parse([other], 4)
        alone = HeldOutProblem(objective, options, policy, Context(torch.Generator().manual_seed(0)))
        trial, _ = grow_once(alone, first)
        per_parameter[other] = math.log(first.measure / trial.measure) / (trial.size - first.size)
    best = max(per_parameter.values())
    assert per_parameter[edge] >= 0.8 * best
    assert grown.measure < first.measure
