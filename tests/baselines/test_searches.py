"""TNGA, TNLS, TnALE and SVDinsTN find planted structures, keep their books, and work in parallel."""

from __future__ import annotations

import math
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines import FitOptions
from tensorgrow.baselines.inner_fit import FitTask, InnerFit, pad_cores, drop_surplus
from tensorgrow.baselines.svd_ins_tn import solve_sparse_diagonal
from tensorgrow.baselines.templates import Point, make_template

RING = tg.Structure((3,) * 4, {(0, 2): 2, (1, 2): 2, (1, 3): 2, (0, 3): 2})  # in the order 0-2-1-3
QUICK = FitOptions(sweeps=60, tolerance=1e-3)
SEARCHES = {
    "genetic": {"rank": 2, "population": 12, "generations": 8},
    "tnls": {"max_rank": 3, "samples": 12, "iterations": 8},
    "tnale": {"max_rank": 3},
}


def planted(structure: tg.Structure = RING, seed: int = 0) -> torch.Tensor:
    x = tg.TensorNetwork.random(structure, random_state=seed).to_dense()
    return x / torch.linalg.vector_norm(x)


# -- planted structures --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEARCHES)
def test_the_planted_ring_is_found(name):
    r = baselines.run(name, planted(), random_state=0, fit=FitOptions(restarts=2), **SEARCHES[name])
    assert r.structure == RING
    assert r.relative_error < 1e-4


def test_svd_ins_tn_cuts_the_complete_graph_down_to_the_planted_train():
    hidden = tg.Structure((5,) * 4, {(0, 1): 2, (1, 2): 3, (2, 3): 2})
    r = baselines.svd_ins_tn(planted(hidden, 1), max_error=1e-4, random_state=1)
    assert r.structure == hidden
    assert r.stop == tg.StopReason.TARGET_REACHED
    sizes = [s.num_parameters for s in r.history]
    found = sizes.index(hidden.num_parameters)
    assert sizes[0] < sizes[found]  # from sparse to dense
    assert all(s.relative_error > 1e-4 for s in r.history[found + 2 :])  # nothing between the two weights


def test_svd_ins_tn_starts_small_where_the_complete_graph_is_too_large():
    x = np.random.default_rng(0).random((3,) * 6)
    r = baselines.svd_ins_tn(x, max_rank=3, sparsity=1e-4, iterations=3, polish=False, random_state=0)
    assert r.num_parameters < x.size


def test_the_sparse_diagonal_solves_its_lasso():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 4))
    q, b, weight = torch.tensor(a.T @ a), torch.tensor(rng.standard_normal(4)), 0.3
    s = solve_sparse_diagonal(q, b, torch.ones(4, dtype=torch.float64), weight)
    gradient = q @ s - b  # optimality: |gradient| <= weight, equal with the opposite sign where s is not zero
    assert bool((gradient.abs() <= weight + 1e-8).all())
    alive = s != 0
    assert torch.allclose(gradient[alive], -weight * s[alive].sign(), atol=1e-6)
    assert bool((solve_sparse_diagonal(q, b, s, 1e3) == 0).all())


# -- the books -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEARCHES)
def test_every_structure_is_fitted_once_and_told(name):
    x, told = planted(seed=1), []
    options = {**SEARCHES[name], "error_weight": 7.0, "fit": QUICK}
    r = baselines.run(name, x, random_state=3, callbacks=told.append, max_evaluations=15, **options)
    assert told == list(r.history)
    assert len(r.history) == r.info["evaluations"] <= 15
    structures = [s.structure for s in r.history]
    assert len(set(structures)) == len(structures)
    assert r.info["rounds"] >= len(structures)
    fitness = [s.num_parameters / x.numel() + 7.0 * s.relative_error**2 for s in r.history]
    assert math.isclose(min(fitness), r.info["fitness"], rel_tol=1e-9)
    assert r.history[int(np.argmin(fitness))].structure == r.structure
    error = float(torch.linalg.vector_norm(r.network.to_dense() - x))
    assert math.isclose(error, r.relative_error, rel_tol=1e-6, abs_tol=1e-12)
    assert [p.num_parameters for p in r.path] == sorted(p.num_parameters for p in r.path)


def test_the_goal_chooses_among_what_was_fitted():
    x = planted(seed=2)
    free = baselines.tnale(x, max_rank=3, random_state=0)
    small = baselines.tnale(x, max_rank=3, random_state=0, max_error=0.5)
    assert small.relative_error <= 0.5
    assert small.num_parameters <= free.num_parameters
    tight = baselines.tnale(x, max_rank=3, random_state=0, max_parameters=30)
    assert max(s.num_parameters for s in tight.history) <= 30


def test_one_seed_gives_one_run_and_processes_change_nothing():
    x = planted(seed=1)
    options = {"max_rank": 3, "samples": 4, "iterations": 2, "random_state": 5, "fit": QUICK}
    runs = [baselines.tnls(x, **options), baselines.tnls(x, **options)]
    with ThreadPoolExecutor(2) as pool:
        runs.append(baselines.tnls(x, **options, map=pool.map))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        runs.append(baselines.tnls(x, **options, map=pool.map))
    rows = [[(s.structure, round(s.relative_error, 8)) for s in r.history] for r in runs]
    assert rows[0] == rows[1] == rows[2] == rows[3]


def test_adam_as_published_lowers_the_error():
    x = planted()
    short, long = (
        baselines.tnale(x, max_rank=2, random_state=0, max_evaluations=1, fit=FitOptions("adam", steps=n))
        for n in (5, 150)
    )
    assert short.structure == long.structure
    assert long.relative_error < 0.8 * short.relative_error
    assert long.info["rounds"] == 150
    assert long.info["fit"] == "adam"


def test_too_large_structures_are_not_fitted():
    x = planted()
    r = baselines.genetic(x, rank=9, population=6, generations=2, density=0.2, random_state=0)
    assert max(s.num_parameters for s in r.history) <= x.numel()
    with pytest.raises(tg.OptionError, match="no structure that fits in"):
        baselines.genetic(x, rank=9, population=2, generations=1, elites=0, density=1.0, random_state=0)


def test_structures_that_lose_without_edges_are_not_fitted():
    x = torch.randn((3,) * 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.01 + 1.0
    r = baselines.genetic(
        x, rank=2, population=12, generations=2, density=0.5, error_weight=50.0, random_state=0, fit=QUICK
    )
    alone = tg.fit(x, tg.Structure.rank_one(x.shape), random_state=0)
    bound = alone.num_parameters / x.numel() + 50.0 * alone.relative_error**2
    assert all(s.num_parameters / x.numel() <= bound for s in r.history)
    assert r.info["evaluations"] < 12


def test_surplus_ranks_are_fitted_without_and_stored_with():
    # Rank 6 on a leaf of dimension 3; its neighbour then has surplus towards the next one.
    chain = tg.Structure((3, 2, 4), {(0, 1): 6, (1, 2): 6})
    lean = drop_surplus(chain)
    assert dict(lean.ranks) == {(0, 1): 3, (1, 2): 4}
    network = tg.TensorNetwork.random(lean, random_state=0)
    whole = tg.TensorNetwork(chain, list(pad_cores(lean, chain, network.cores)))
    assert torch.allclose(whole.to_dense(), network.to_dense(), rtol=1e-13, atol=0.0)
    x = torch.randn((3, 2, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cores, loss, _ = InnerFit(x, FitOptions())(FitTask(chain, seed=0))
    assert [c.shape for c in cores] == list(chain.core_shapes)
    assert loss < 1e-9  # it holds every tensor of this shape


def test_a_surplus_edge_of_dimension_one_vanishes():
    structure = tg.Structure((1, 2, 2), {(0, 1): 3, (1, 2): 2})
    lean = drop_surplus(structure)
    assert dict(lean.ranks) == {(1, 2): 2}
    cores = list(pad_cores(lean, structure, tg.TensorNetwork.random(lean, random_state=0).cores))
    assert [tuple(c.shape) for c in cores] == list(structure.core_shapes)


# -- templates -----------------------------------------------------------------------------------------


def test_templates():
    dims = (2,) * 6
    edges = {
        n: set(make_template(n, dims, 3).edges) for n in ("chain", "ring", "tree", "lattice", "complete")
    }
    assert edges["ring"] - edges["chain"] == {(0, 5)}
    assert edges["tree"] == {(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)}
    assert edges["lattice"] == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}
    assert len(edges["complete"]) == 15
    assert not make_template("complete", dims, 3).permutes
    template = make_template([(0, 1), (2, 1)], (2, 3, 4), 3)
    structure = template.structure(Point((2, 3), (2, 0, 1)))
    assert dict(structure.ranks) == {(0, 2): 2, (0, 1): 3}


# -- the authors' demo tensors -------------------------------------------------------------------------


def demo(name: str) -> tuple[np.ndarray, tg.Structure]:
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("TENSORGROW_DATA") or root.parent / "shared" / "data") / "tn_demo"
    if not (folder / name).exists():
        pytest.skip("the demo tensors are not here; set TENSORGROW_DATA")
    data = np.load(folder / name)
    x, ranks = data["goal"].astype(float), data["adj_matrix"]
    pairs = [(i, j) for i in range(x.ndim) for j in range(i + 1, x.ndim) if ranks[i, j] > 1]
    return x, tg.Structure(x.shape, {(i, j): int(ranks[i, j]) for i, j in pairs})


def test_the_demo_of_tnga():
    x, hidden = demo("tnga_demo_2pow4.npz")
    r = baselines.genetic(
        x, rank=2, population=20, generations=12, density=0.3, error_weight=200.0, random_state=0
    )
    assert r.structure == hidden
    assert baselines.svd_ins_tn(x, max_rank=2, max_error=1e-3, random_state=0).structure == hidden


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("tnls", 1), ("tnale", 1)])
def test_the_demo_of_tnls_and_tnale(name, seed):
    x, hidden = demo("tnls_demo_3pow6.npz")
    r = baselines.run(name, x, max_rank=4, random_state=seed)
    assert r.structure == hidden
    assert r.relative_error < 1e-6
