from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure
from tensorgrow import StopReason as Stop
from tensorgrow.search.pace import Pace
from tests.oracles import dense, random_network
from tests.search.factories import GROWTH, cost, image, make_search, noisy, true_error


def test_an_interleaved_search_is_not_disturbed():
    x = noisy()
    alone = [s.structure for s in make_search(x, GROWTH, max_error=0.3)]
    one, two = (
        iter(make_search(x, GROWTH, max_error=0.3)),
        iter(make_search(noisy(seed=1), GROWTH, max_steps=50)),
    )
    seen = []
    for step in one:
        seen.append(step.structure)
        next(two)
    assert seen == alone


STRONG = Structure((4, 4, 4, 3), {(0, 2): 3, (1, 3): 2})


RULES = {
    "per parameter": GROWTH,
    "drop": GROWTH.replace(edge_score="drop"),
    "callable": GROWTH.replace(edge_score=lambda before, after, added: (before**2 - after**2) / added),
    "full": GROWTH.replace(scoring="full"),
    "random slices": GROWTH.replace(slice_init="random"),
    "more slice sweeps": GROWTH.replace(slice_sweeps=5),
    "lookahead": GROWTH.replace(lookahead=4),
    "balanced": GreedyOptions(),
    "no transfer": GROWTH.replace(transfer=False, sweeps=100),
    "two at once": GROWTH.replace(rank_increment=2),
    "paper": GreedyOptions.paper(),
    "not accelerated": GROWTH.replace(accelerate=False),
    "without bounds": GreedyOptions(certify=False),
    "splits while growing": GROWTH.replace(split_while_growing=True),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_rule_finds_the_edges_that_matter(rule, seed):
    x = dense(STRONG, random_network(STRONG, seed).cores)
    rest = np.random.default_rng(seed).standard_normal(x.shape)
    x = x / np.linalg.norm(x) + 1e-3 * rest / np.linalg.norm(rest)
    search = make_search(x, RULES[rule], max_error=3e-3, seed=seed)
    steps = list(search)
    assert search.state.stop is Stop.TARGET_REACHED
    assert true_error(x, search.answer.network) <= 3e-3
    assert set(search.answer.network.structure.edges) == {(0, 2), (1, 3)}
    grown = [s.edge for s in steps if s.kind == "grow" and s.start == 0]
    assert set(grown) == {(0, 2), (1, 3)}
    if rule != "two at once":
        assert search.answer.size == STRONG.num_parameters


def test_paper_preset_makes_only_the_papers_moves():
    x = dense(Structure.tucker((5,) * 4, 2), random_network(Structure.tucker((5,) * 4, 2), 0).cores)
    search = make_search(x, GreedyOptions.paper(), max_error=1e-5)
    steps = list(search)
    assert search.state.stop is Stop.TARGET_REACHED
    assert {s.kind for s in steps} <= {"start", "grow", "split"}
    assert [s.kind for s in steps].count("start") == 1
    assert search.answer.size == steps[-1].num_parameters
    nodes = [s.structure.num_nodes for s in steps]
    assert nodes == sorted(nodes)  # nodes are split, never merged
    losses = [s.loss for s in steps]
    assert all(b <= a * (1 + 1e-6) for a, b in pairwise(losses))


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        (GROWTH, {"max_error": 0.25}),
        (GreedyOptions(), {"max_error": 0.3}),
        (GreedyOptions(), {"max_parameters": 60}),
        (GreedyOptions(regrow_cycles=3), {"max_error": 0.3}),
        (GreedyOptions(regrow_cycles=3), {"max_parameters": 60}),
        (GreedyOptions.paper(), {"max_error": 0.25}),
    ],
    ids=["growth", "balanced", "budget", "regrow", "regrow budget", "paper"],
)
def test_history_and_path_are_consistent(options, limits):
    x = noisy()
    norm = np.linalg.norm(x)
    search = make_search(x, options, **limits)
    steps = list(search)
    assert [s.index for s in steps] == list(range(len(steps)))
    assert [s.start for s in steps] == sorted(s.start for s in steps)
    assert steps[0].kind == "start"
    assert steps[0].structure == Structure.rank_one(x.shape)
    seconds = [s.seconds for s in steps]
    assert seconds == sorted(seconds)
    for step in steps:
        assert step.num_parameters == sum(math.prod(s) for s in step.structure.core_shapes)
        assert step.relative_error == pytest.approx(step.loss / norm, rel=1e-12)
        assert (step.edge is not None) == (step.kind in ("grow", "shrink", "bypass"))
    points = search.state.path
    assert all(a.num_parameters < b.num_parameters for a, b in pairwise(points))
    assert all(a.error > b.error for a, b in pairwise(points))
    for point in points:
        assert true_error(x, point.network) == pytest.approx(point.error, rel=1e-6)
    for step in steps:  # every visited network is on the path or beaten by one that is
        assert any(p.num_parameters <= step.num_parameters and p.error <= step.relative_error for p in points)
    if "max_parameters" in limits:
        assert all(s.num_parameters <= 60 for s in steps)
        assert search.state.stop is Stop.MAX_PARAMETERS
        assert search.answer.loss == pytest.approx(min(s.loss for s in steps), rel=1e-9)
    else:
        assert search.state.stop is Stop.TARGET_REACHED
        reached = [s.num_parameters for s in steps if s.relative_error <= limits["max_error"]]
        assert search.answer.size == min(reached)


@pytest.mark.parametrize("budget", [15, 16, 22, 23, 47, 60])
@pytest.mark.parametrize("increment", [1, 3])
def test_the_budget_is_never_exceeded(budget, increment):
    x = noisy()
    options = GreedyOptions(regrow_cycles=2, rank_increment=increment)
    search = make_search(x, options, max_parameters=budget)
    assert all(s.num_parameters <= budget for s in search)
    assert all(p.num_parameters <= budget for p in search.state.path)
    assert search.state.stop is Stop.MAX_PARAMETERS
    room = min(cost(search.answer.network.structure, *e) for e in combinations(range(4), 2))
    if increment == 1 and search.answer.network.structure.num_nodes == 4:
        assert search.answer.size + room > budget  # nothing more would have fitted


def test_thorough_is_never_worse_than_balanced():
    x = image()
    balanced = tg.decompose(x, max_error=0.2, random_state=2)
    seconds = 2 + 3 * balanced.info["seconds"]  # enough for the same first growth on a busy machine
    thorough = tg.decompose(x, max_error=0.2, random_state=2, effort="thorough", max_seconds=seconds)
    assert balanced.relative_error <= 0.2
    assert thorough.relative_error <= 0.2
    assert thorough.num_parameters <= balanced.num_parameters


def test_thorough_is_never_worse_than_balanced_within_a_budget():
    x = image()
    balanced = tg.decompose(x, max_parameters=70, random_state=2)
    seconds = 2 + 3 * balanced.info["seconds"]  # as above
    thorough = tg.decompose(x, max_parameters=70, random_state=2, effort="thorough", max_seconds=seconds)
    assert max(balanced.num_parameters, thorough.num_parameters) <= 70
    assert thorough.relative_error <= balanced.relative_error * (1 + 1e-9)
    assert thorough.stop in (Stop.MAX_SECONDS, Stop.MAX_PARAMETERS)


def test_regrowing_within_a_budget_does_not_claim_the_target():
    options = GreedyOptions(starts=1, regrow_cycles=2)
    search = make_search(noisy((3, 3, 3, 2), level=0.1), options, max_error=0.01, max_parameters=30)
    for _ in search:
        pass
    assert search.best.measure > search.problem.target
    assert search.state.stop is Stop.MAX_PARAMETERS


def test_a_certified_structure_needs_no_second_start():
    """No cut of a random ring leaves room for a smaller rank."""
    ring = Structure.tensor_ring((5,) * 4, (2, 3, 2, 3))
    x = dense(ring, random_network(ring, 0).cores)
    steps = list(make_search(x, GreedyOptions(), max_error=1e-6))
    assert steps[-1].num_parameters == ring.num_parameters
    assert {s.start for s in steps} == {0}


def test_edges_that_promise_little_are_not_scored_every_time(monkeypatch):
    """Where sweeps are not cheap, fewer edges are looked at."""
    monkeypatch.setattr(Pace, "is_cheap", lambda self, structure: False)
    search = make_search(noisy((4, 4, 4, 4)), GROWTH, max_error=0.3)
    objective, asked = search.problem.objective, []
    pairs = objective.pair_problems
    monkeypatch.setattr(objective, "pair_problems", lambda s, a, e: asked.append(len(e)) or pairs(s, a, e))
    grown = [s for s in search if s.kind == "grow"]
    assert true_error(noisy((4, 4, 4, 4)), search.answer.network) <= 0.3
    assert sum(asked) < 6 * len(grown)
    assert set(search.state.gains) <= set(combinations(range(4), 2))


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_tree_that_bounds_do_not_settle_is_only_where_growth_begins(order, seed):
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.linspace(0, 1, 6)] * order, indexing="ij")
    x = 1 / (1 + sum(w * a for w, a in zip(rng.uniform(0.5, 2, order), axes)))
    x += 0.1 * np.sin(5 * axes[0] * axes[-1])
    result = tg.decompose(x, max_error=1e-5, random_state=0)
    kinds = [s.kind for s in result.history]
    assert kinds[:3] == ["start", "tree", "grow"]  # the growth has nothing but the tree to be compared with
    assert result.relative_error <= 1e-5
    assert result.num_parameters <= result.history[1].num_parameters
