from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from tensorgrow import StopReason as Stop
from tensorgrow import Structure
from tests.search.factories import GROWTH, cost, make_search, noisy, unsaturated


@pytest.mark.parametrize("increment", [1, 2, 3])
def test_rank_increment(increment):
    x = np.random.default_rng(0).standard_normal((5, 5, 5, 5))
    steps = list(make_search(x, GROWTH.replace(rank_increment=increment), max_steps=6))
    raised = [b.structure.rank(*b.edge) - a.structure.rank(*b.edge) for a, b in pairwise(steps)]
    assert raised[0] == increment
    for (before, after), by in zip(pairwise(steps), raised):
        room = before.structure.useful_rank(*after.edge) - before.structure.rank(*after.edge)
        assert by == min(increment, room)


@pytest.mark.parametrize("edges", ["all", "chain", [(0, 1), (0, 2), (0, 3)]], ids=["all", "chain", "star"])
def test_growth_changes_one_edge_and_never_a_saturated_one(edges):
    x = np.random.default_rng(0).standard_normal((3, 3, 3, 3))
    steps = list(make_search(x, GROWTH, max_error=1e-8, split_nodes=False, edges=edges))
    growing = [s for s in steps if s.kind in ("start", "grow")]
    assert len(growing) > 5
    if edges != "all":  # there were saturated edges to avoid
        assert any(set(s.structure.edges) - set(unsaturated(s.structure)) for s in growing[:-1])
    for before, after in pairwise(growing):
        assert after.edge in unsaturated(before.structure)
        assert after.structure == before.structure.with_rank(
            *after.edge, before.structure.rank(*after.edge) + 1
        )
        assert after.num_parameters == before.num_parameters + cost(before.structure, *after.edge)
        assert after.loss <= before.loss * (1 + 1e-9)  # weights are kept


def test_without_transfer_growth_starts_anew():
    x = noisy()
    kept = list(make_search(x, GROWTH.replace(sweeps=1), max_steps=4))
    anew = list(make_search(x, GROWTH.replace(sweeps=1, transfer=False), max_steps=4))
    assert all(b.loss <= a.loss for a, b in pairwise(kept))
    assert anew[-1].loss > kept[-1].loss  # one sweep from random cores does not get far


@pytest.mark.parametrize("seed", range(3))
def test_lookahead_takes_the_best_of_the_best(seed):
    """With room for every edge the choice is the one that a refit of all of them would make."""
    x = noisy(seed=seed, level=1.0)
    options = GROWTH.replace(
        lookahead=6, edge_score="drop", lookahead_sweeps=8, accelerate=False, tolerance=0.0
    )
    ahead = list(make_search(x, options, max_steps=1, seed=seed))[1]
    others = []
    for edge in combinations(range(4), 2):
        only = make_search(
            x, options.replace(lookahead=1), max_steps=1, seed=seed, edges=[edge], split_nodes=False
        )
        others.append(list(only)[1].loss)
    assert ahead.loss <= min(others) * 1.02


@pytest.mark.parametrize("max_degree", [1, 2])
def test_max_degree(max_degree):
    x = np.random.default_rng(0).standard_normal((3, 3, 3, 3))
    search = make_search(x, GROWTH.replace(max_degree=max_degree), max_error=0.3, split_nodes=False)
    steps = list(search)
    for step in steps:
        assert max(map(len, step.structure.neighbours)) <= max_degree
    if max_degree == 1:
        assert search.state.stop in (Stop.SATURATED, Stop.NO_PROGRESS)


def test_edges_are_scored_a_few_at_a_time_where_memory_is_short(monkeypatch):
    x = noisy((8, 8, 8, 8))
    plain = [s.edge for s in make_search(x, GROWTH, max_steps=1)]
    search = make_search(x, GROWTH, max_steps=1)
    objective, first, asked = search.problem.objective, Structure.rank_one(x.shape), []
    alone, together = (objective.memory_needed(first, list(combinations(range(4), 2))[:n]) for n in (1, 6))
    assert alone < together
    object.__setattr__(search.problem, "memory_limit", (alone + together) // 2)
    pairs = objective.pair_problems
    monkeypatch.setattr(objective, "pair_problems", lambda s, a, e: asked.append(len(e)) or pairs(s, a, e))
    assert [s.edge for s in search] == plain
    assert sum(asked) == 6 and len(asked) > 1


def test_what_does_not_fit_is_not_tried():
    x = noisy((6, 6, 6), level=0.01)
    search = make_search(x, GROWTH, max_error=0.02)
    steps = list(search)
    problem = search.problem
    least = max(problem.objective.memory_needed(s.structure, tuple(combinations(range(3), 2))) for s in steps)
    tight = make_search(x, GROWTH, max_error=0.02)
    object.__setattr__(tight.problem, "memory_limit", least)
    assert all(problem.objective.memory_needed(s.structure) <= least for s in tight)
    assert tight.state.stop is Stop.TARGET_REACHED


def test_thick_edges_grow_by_several_ranks_but_not_past_the_target():
    gen = np.random.default_rng(0)
    rows, columns = (np.linalg.qr(gen.standard_normal((60, 60)))[0] for _ in range(2))
    x = ((rows * 0.93 ** np.arange(60)) @ columns)[:, :, None] * np.ones(2)
    search = make_search(x, GROWTH, max_error=0.05)
    grown = [s for s in search if s.kind in ("start", "grow")]
    ranks = [s.structure.rank(0, 1) for s in grown]
    by = [b - a for a, b in pairwise(ranks)]
    assert max(by) > 1
    for rank, more in zip(ranks[1:], by):
        assert more <= max(1, rank // 6)
    s = 0.93 ** np.arange(60)
    tails = np.sqrt(np.cumsum(s[::-1] ** 2)[::-1] / (s**2).sum())
    assert search.answer.network.structure.rank(0, 1) == int((tails > 0.05).sum())


def test_a_budget_holds_where_thick_edges_grow():
    x = np.random.default_rng(0).standard_normal((40, 40, 2))
    search = make_search(x, GROWTH, max_parameters=2_000)
    assert all(s.num_parameters <= 2_000 for s in search)
