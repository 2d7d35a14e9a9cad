from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.objectives.entry_slices import EntryPairProblem
from tensorgrow.search.score import score_edges
from tensorgrow.solvers.deadline import GRACE, OutOfTime
from tests.oracles import best_core, dense
from tests.search.factories import GROWTH, cost, make_search, unsaturated


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
    candidates = score_edges(
        search.problem.objective, network, loss, [(0, 1), (0, 2), (1, 2)], options, torch.Generator()
    )
    expected = _slice_gains(x, vectors)
    assert {c.edge: c.loss for c in candidates} == pytest.approx(expected, rel=1e-6)
    assert [c.score for c in candidates] == sorted((c.score for c in candidates), reverse=True)
    assert {c.edge: c.added for c in candidates} == {(0, 1): 8, (0, 2): 7, (1, 2): 9}


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


def test_random_slices_need_no_pair_gradients(monkeypatch):
    """Their shape is known; a gradient takes a pass over the entries per column."""

    def refuse(self):
        raise AssertionError("a pair gradient was formed")

    monkeypatch.setattr(EntryPairProblem, "gradient", property(refuse))
    x = np.random.default_rng(0).standard_normal((4, 5, 6))
    options = GreedyOptions.for_completion("fast").replace(slice_init="random")
    steps = tg.complete(x, x > -0.5, options=options, max_steps=1, random_state=0).history
    assert [s.kind for s in steps[:2]] == ["start", "grow"]


def test_scoring_ends_long_after_the_deadline():
    """Many modes have so many edges that one round of scores alone takes seconds."""
    objective = DenseLeastSquares(torch.ones(3, 3, 3, dtype=torch.float64))
    network = TensorNetwork.random(Structure.rank_one((3, 3, 3)), random_state=0)
    late = time.perf_counter() - GRACE - 1.0
    with pytest.raises(OutOfTime):
        score_edges(objective, network, 1.0, [(0, 1)], GROWTH, torch.Generator(), late)
