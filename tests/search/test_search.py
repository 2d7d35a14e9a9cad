from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, GreedySearch, Structure, TensorNetwork
from tensorgrow import StopReason as Stop
from tensorgrow.network import as_generator
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.results import PathPoint, add_to_path
from tensorgrow.search import CutBounds, EdgePolicy, Limits, Problem
from tensorgrow.search import grow as growth
from tensorgrow.search.score import score_edges
from tests.oracles import best_core, dense, random_network

GROWTH = GreedyOptions(lookahead=1, starts=1, certify=False)


def noisy(shape=(4, 4, 4, 3), seed: int = 0, level: float = 0.3) -> np.ndarray:
    structure = Structure.tensor_ring(shape, 2)
    x = dense(structure, random_network(structure, seed).cores)
    rest = np.random.default_rng(seed).standard_normal(shape)
    return x / np.linalg.norm(x) + level * rest / np.linalg.norm(rest)


def image() -> np.ndarray:
    """A smooth scene with an edge, 16 x 16, as 4^4."""
    u, v = np.meshgrid(np.linspace(-1, 1, 16), np.linspace(-1, 1, 16))
    scene = np.exp(-3 * (u - 0.2) ** 2 - 2 * v**2) + 0.4 * (u + 0.6 * v > 0.3) + 0.2 * np.sin(5 * u * v)
    return scene.reshape((2,) * 8).transpose(0, 4, 1, 5, 2, 6, 3, 7).reshape((4,) * 4)


def make_search(x: np.ndarray, options: GreedyOptions, seed: int = 0, **limits) -> GreedySearch:
    split = limits.pop("split_nodes", True)
    edges = limits.pop("edges", "all")
    target = torch.from_numpy(x)
    objective = DenseLeastSquares(target)
    max_error = limits.get("max_error")
    problem = Problem(
        objective,
        options,
        EdgePolicy.parse(edges, x.ndim, options.max_degree),
        as_generator(seed),
        target=(max_error or 0.0) * objective.norm,
        max_parameters=limits.get("max_parameters"),
        split_nodes=split,
        bounds=CutBounds(target, max_error) if max_error and options.certify else None,
    )
    return GreedySearch(problem, Limits(**limits))


def cost(structure: Structure, i: int, j: int) -> int:
    """Parameters that one more rank adds, from the core shapes."""
    total = 0
    for a, b in ((i, j), (j, i)):
        others = [structure.rank(a, k) for k in range(structure.num_nodes) if k not in (a, b)]
        total += structure.leg_dim(a) * math.prod(others)
    return total


def unsaturated(structure: Structure) -> list[tuple[int, int]]:
    found = []
    for i, j in combinations(range(structure.num_nodes), 2):
        ends = []
        for a, b in ((i, j), (j, i)):
            others = [structure.rank(a, k) for k in range(structure.num_nodes) if k not in (a, b)]
            ends.append(structure.leg_dim(a) * math.prod(others))
        if structure.rank(i, j) < min(ends):
            found.append((i, j))
    return found


def true_error(x: np.ndarray, network: TensorNetwork) -> float:
    return float(np.linalg.norm(x - dense(network.structure, network.cores)) / np.linalg.norm(x))


# -- an iterator that can be paused ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [GROWTH, GreedyOptions(starts=2), GreedyOptions(regrow_cycles=2)])
def test_a_paused_search_goes_on(options):
    x = noisy()
    whole = make_search(x, options, max_error=0.3)
    steps = list(whole)
    assert len(steps) > 4
    paused = make_search(x, options, max_error=0.3)
    seen = []
    for count in (1, 2):
        walk = iter(paused)
        seen += [next(walk) for _ in range(count)]
        assert paused.state.stop is None
        assert paused.state.steps == seen
        assert paused.answer.size == seen[-1].num_parameters
        walk.close()
    seen += list(paused)
    assert [(s.kind, s.edge, s.structure) for s in seen] == [(s.kind, s.edge, s.structure) for s in steps]
    assert paused.state.stop is whole.state.stop
    assert paused.answer.loss == whole.answer.loss
    assert list(paused) == []  # it is over


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


# -- choosing an edge --------------------------------------------------------------------------------------


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


def test_the_callable_score_decides():
    """With the negative cost as score, the cheapest edge that may grow always wins."""
    seen = []

    def cheapest(before, after, added):
        seen.append((before, after, added))
        return -added

    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    search = make_search(x, GROWTH.replace(edge_score=cheapest), max_steps=6)
    steps = list(search)
    for before, after in pairwise(steps):
        costs = {e: cost(before.structure, *e) for e in unsaturated(before.structure)}
        assert costs[after.edge] == min(costs.values())
    assert seen
    assert all(0 <= after <= before for before, after, _ in seen)
    assert {added for *_, added in seen} <= set(range(5, 200))


def _slice_gains(x: np.ndarray, vectors: list[np.ndarray]) -> dict[tuple[int, int], float]:
    """Loss after adding the best slices to a rank-one network of order 3: one singular value per edge."""
    residual = x - np.einsum("i,j,k->ijk", *vectors)
    gains = {}
    for i, j in ((0, 1), (0, 2), (1, 2)):
        (k,) = {0, 1, 2} - {i, j}
        unit = vectors[k] / np.linalg.norm(vectors[k])
        top = np.linalg.svd(np.tensordot(residual, unit, ([k], [0])), compute_uv=False)[0]
        gains[i, j] = float(np.sqrt(np.linalg.norm(residual) ** 2 - top**2))
    return gains


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("score", ["drop", "per_parameter"])
def test_first_growth_against_brute_force(seed, score):
    x = np.random.default_rng(seed).standard_normal((3, 5, 4))
    options = (GreedyOptions.paper() if score == "drop" else GROWTH).replace(slice_sweeps=20)
    search = make_search(x, options, max_steps=1, seed=seed)
    walk = iter(search)
    start = next(walk)
    vectors = [c.numpy().reshape(-1) for c in search.state.current.network.cores]
    before = float(np.linalg.norm(x - np.einsum("i,j,k->ijk", *vectors)))
    assert start.loss == pytest.approx(before, rel=1e-9)
    after = _slice_gains(x, vectors)
    if score == "drop":
        expected = min(after, key=after.get)
    else:
        expected = max(after, key=lambda e: math.log(before / after[e]) / (x.shape[e[0]] + x.shape[e[1]]))
    step = next(walk)
    assert step.kind == "grow"
    assert step.edge == expected
    assert step.loss <= after[expected] * (1 + 1e-9)  # the refit starts from these slices


@pytest.mark.parametrize("seed", range(3))
def test_slice_losses_are_exact(seed):
    x = np.random.default_rng(seed).standard_normal((3, 5, 4))
    search = make_search(x, GROWTH, max_steps=1, seed=seed)
    next(iter(search))
    network, loss = search.state.current.network, search.state.current.loss
    vectors = [c.numpy().reshape(-1) for c in network.cores]
    options = GROWTH.replace(slice_sweeps=30)
    found = score_edges(
        search.problem.objective, network, loss, [(0, 1), (0, 2), (1, 2)], options, torch.Generator()
    )
    expected = _slice_gains(x, vectors)
    assert {c.edge: c.loss for c in found} == pytest.approx(expected, rel=1e-6)
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
    assert {c.edge: c.added for c in found} == {(0, 1): 8, (0, 2): 7, (1, 2): 9}


@pytest.mark.parametrize("seed", range(3))
def test_full_scoring_against_brute_force(seed):
    """The edge whose whole network, refitted by NumPy's least squares, drops most."""
    x = np.random.default_rng(seed).standard_normal((3, 4, 5))
    options = GROWTH.replace(scoring="full", edge_score="drop", lookahead_sweeps=100, accelerate=False)
    search = make_search(x, options, max_steps=1, seed=seed)
    walk = iter(search)
    next(walk)
    network, loss = search.state.current.network, search.state.current.loss
    spectral = score_edges(
        search.problem.objective, network, loss, [(0, 1), (0, 2), (1, 2)], options, torch.Generator()
    )
    losses = {}
    for c in spectral:
        grown = network.grow_edge(*c.edge, slices=(torch.from_numpy(c.left), torch.from_numpy(c.right)))
        cores = [core.numpy() for core in grown.cores]
        for _ in range(100):
            for k in range(3):
                cores[k] = best_core(grown.structure, cores, k, x)
        losses[c.edge] = float(np.linalg.norm(x - dense(grown.structure, cores)))
    step = next(walk)
    assert losses[step.edge] <= min(losses.values()) * (1 + 1e-3)
    assert step.loss == pytest.approx(losses[step.edge], rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_scoring_where_nothing_is_left_to_explain(dtype):
    structure = Structure.tensor_train((2, 3, 2), 1)
    network = TensorNetwork(structure, [torch.ones(s, dtype=dtype) for s in structure.core_shapes])
    objective = DenseLeastSquares(torch.ones(2, 3, 2, dtype=dtype))
    for candidate in score_edges(objective, network, 0.0, [(0, 1), (0, 2)], GROWTH, torch.Generator()):
        assert np.isfinite(candidate.left).all()
        assert np.isfinite(candidate.right).all()
        assert candidate.loss == 0


def test_much_data_says_nothing_about_the_topology(monkeypatch):
    """Sweeps that are costly because the tensor is large leave all edges to choose from."""
    x = noisy((12, 12, 12), level=0.02)
    plain = [(s.kind, s.edge) for s in make_search(x, GROWTH, max_error=0.05)]
    monkeypatch.setattr(growth, "COSTLY_FLOPS", 0.0)
    search = make_search(x, GROWTH, max_error=0.05)
    assert [(s.kind, s.edge) for s in search] == plain
    assert search.state.stop is Stop.TARGET_REACHED
    assert len({edge for kind, edge in plain if kind == "grow"}) > 1


def test_costly_networks_get_new_edges_where_the_old_ones_do_not_help(monkeypatch):
    monkeypatch.setattr(growth, "COSTLY_FLOPS", 0.0)
    monkeypatch.setattr(growth, "WIDE_CUTS", 0)
    x = dense(STRONG, random_network(STRONG, 3).cores)
    search = make_search(x, GROWTH, max_error=1e-3)
    grown = [s.edge for s in search if s.kind == "grow"]
    assert search.state.stop is Stop.TARGET_REACHED
    assert grown in (
        [(0, 2), (0, 2), (1, 3)],
        [(1, 3), (0, 2), (0, 2)],
    )  # one edge to its end, then the other


# -- what a growth does ------------------------------------------------------------------------------------


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


def superdiagonal(size: int, order: int) -> np.ndarray:
    """After the first term no single edge can add anything: all other cores vanish where the rest is."""
    x = np.zeros((size,) * order)
    for k in range(size):
        x[(k,) * order] = 1.0 + 0.1 * k
    return x


@pytest.mark.parametrize(("size", "order"), [(3, 3), (4, 4), (2, 7)])
@pytest.mark.parametrize("error", [0.3, 1e-6])
def test_what_no_edge_can_begin_is_begun_by_a_term(size, order, error):
    x = superdiagonal(size, order)
    search = make_search(x, GreedyOptions(), max_error=error)
    list(search)
    assert search.state.stop is Stop.TARGET_REACHED
    found = search.answer.network
    assert np.linalg.norm(dense(found.structure, found.cores) - x) <= error * np.linalg.norm(x)
    assert any(s.kind == "grow" and s.edge is None for s in search.state.steps)


def test_terms_respect_limits():
    x = superdiagonal(3, 4)
    stuck = {"max_error": 0.3, "split_nodes": False}
    for options, limits in (
        (GreedyOptions(terms=False), {}),
        (GreedyOptions(max_degree=1), {}),
        (GreedyOptions(), {"max_parameters": 20}),
        (GreedyOptions(), {"edges": [(0, 1), (2, 3)]}),
    ):
        search = make_search(x, options, **stuck, **limits)
        steps = list(search)
        assert search.state.stop in (Stop.NO_PROGRESS, Stop.MAX_PARAMETERS)
        assert all(s.num_parameters <= 20 for s in steps)


@pytest.mark.parametrize("max_degree", [1, 2])
def test_max_degree(max_degree):
    x = np.random.default_rng(0).standard_normal((3, 3, 3, 3))
    search = make_search(x, GROWTH.replace(max_degree=max_degree), max_error=0.3, split_nodes=False)
    steps = list(search)
    for step in steps:
        assert max(map(len, step.structure.neighbours)) <= max_degree
    if max_degree == 1:
        assert search.state.stop in (Stop.SATURATED, Stop.NO_PROGRESS)


# -- the way back ------------------------------------------------------------------------------------------


def test_pruning_is_optional_and_pays():
    x = noisy(seed=3)
    grown = make_search(x, GROWTH.replace(prune=False), max_error=0.25)
    assert {s.kind for s in grown} == {"start", "grow"}
    pruned = make_search(x, GROWTH, max_error=0.25)
    steps = list(pruned)
    assert pruned.answer.size <= grown.answer.size
    for search in (grown, pruned):
        assert true_error(x, search.answer.network) <= 0.25
    for before, after in pairwise(steps):
        if after.kind in ("shrink", "split"):
            assert after.num_parameters < before.num_parameters
            assert after.relative_error <= 0.25


def test_pruning_removes_what_init_has_too_much():
    true = Structure.tensor_train((4,) * 4, 2)
    x = dense(true, random_network(true, 0).cores)
    init = random_network(Structure.tensor_train((4,) * 4, 4), 1)
    result = tg.decompose(x, max_error=1e-6, init=init, edges="chain", random_state=0)
    assert result.structure == true
    assert {s.kind for s in result.history} == {"start", "shrink"}


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


# -- what is recorded --------------------------------------------------------------------------------------


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
        assert (step.edge is not None) == (step.kind in ("grow", "shrink"))
    points = search.state.path
    assert all(a.num_parameters < b.num_parameters for a, b in pairwise(points))
    assert all(a.relative_error > b.relative_error for a, b in pairwise(points))
    for point in points:
        assert true_error(x, point.network) == pytest.approx(point.relative_error, rel=1e-6)
    for step in steps:  # every visited network is on the path or beaten by one that is
        assert any(
            p.num_parameters <= step.num_parameters and p.relative_error <= step.relative_error
            for p in points
        )
    if "max_parameters" in limits:
        assert all(s.num_parameters <= 60 for s in steps)
        assert search.state.stop is Stop.MAX_PARAMETERS
        assert search.answer.loss == pytest.approx(min(s.loss for s in steps), rel=1e-9)
    else:
        assert search.state.stop is Stop.TARGET_REACHED
        reached = [s.num_parameters for s in steps if s.relative_error <= limits["max_error"]]
        assert search.answer.size == min(reached)


def test_add_to_path_keeps_what_nothing_beats():
    rng = np.random.default_rng(0)
    points = []
    for _ in range(200):
        structure = Structure((4, 4), {(0, 1): int(rng.integers(1, 5))})
        points.append(PathPoint(random_network(structure, 0), float(rng.integers(1, 30))))
    path: list[PathPoint] = []
    for point in points:
        add_to_path(path, point)
    best = {}
    for p in points:
        best[p.num_parameters] = min(best.get(p.num_parameters, math.inf), p.relative_error)
    expected, least = [], math.inf
    for size in sorted(best):
        if best[size] < least:
            expected.append((size, best[size]))
            least = best[size]
    assert [(p.num_parameters, p.relative_error) for p in path] == expected


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


# -- effort ------------------------------------------------------------------------------------------------


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
    thorough = tg.decompose(x, max_parameters=70, random_state=2, effort="thorough", max_seconds=3)
    assert max(balanced.num_parameters, thorough.num_parameters) <= 70
    assert thorough.relative_error <= balanced.relative_error * (1 + 1e-9)
    assert thorough.stop in (Stop.MAX_SECONDS, Stop.MAX_PARAMETERS)


def test_edge_policies():
    assert EdgePolicy.parse("all", 4).pairs is None
    assert EdgePolicy.parse("chain", 4).pairs == {(0, 1), (1, 2), (2, 3)}
    assert EdgePolicy.parse("ring", 4).pairs == {(0, 1), (1, 2), (2, 3), (0, 3)}
    assert EdgePolicy.parse("ring", 2).pairs == {(0, 1)}
    assert EdgePolicy.parse("ring", 1).pairs == EdgePolicy.parse("chain", 1).pairs == set()
    assert EdgePolicy.parse([(2, 0), (0, 2)], 3).pairs == {(0, 2)}


@pytest.mark.parametrize("seed", range(4))
def test_growable_edges_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    ranks = {e: int(rng.integers(1, 5)) for e in combinations(range(5), 2)}
    structure = Structure((2, 3, 4, 2), ranks)
    room = int(rng.integers(5, 200))
    policy = EdgePolicy.parse("all", 4)
    assert policy.growable(structure) == unsaturated(structure)
    assert policy.growable(structure, structure.num_parameters + room) == [
        e for e in unsaturated(structure) if cost(structure, *e) <= room
    ]
