"""TNGA, TNLS and TnALE find planted structures, keep their books, and work in parallel."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines import FitOptions
from tests.warm import forks

from .tensors import RING, demo, planted

QUICK = FitOptions(sweeps=60, tolerance=1e-3)
SEARCHES = {
    "genetic": {"rank": 2, "population": 12, "generations": 8},
    "tnls": {"max_rank": 3, "samples": 12, "iterations": 8},
    "tnale": {"max_rank": 3},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_planted_ring_is_found(name):
    r = baselines.run(name, planted(), random_state=0, fit=FitOptions(restarts=2), **SEARCHES[name])
    assert r.structure == RING
    assert r.relative_error < 1e-4


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
    with ProcessPoolExecutor(1, mp_context=forks()) as pool:
        runs.append(baselines.tnls(x, **options, map=pool.map))
    rows = [[(s.structure, round(s.relative_error, 8)) for s in r.history] for r in runs]
    assert rows[0] == rows[1] == rows[2] == rows[3]


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


def test_the_demo_of_tnga():
    x, hidden = demo("tnga_demo_2pow4.npz")
    r = baselines.genetic(
        x, rank=2, population=20, generations=12, density=0.3, error_weight=200.0, random_state=0
    )
    assert r.structure == hidden
    assert baselines.svd_ins_tn(x, max_rank=2, max_error=1e-3, random_state=0).structure == hidden


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fit"), [("tnls", QUICK), ("tnale", FitOptions())])
def test_the_demo_of_tnls_and_tnale(name, fit):
    x, hidden = demo("tnls_demo_3pow6.npz")
    r = baselines.run(name, x, max_rank=4, random_state=1, fit=fit)
    assert r.structure == hidden
    assert r.relative_error < 1e-6
