"""Fixed formats and growths: honest sizes and errors, limits, one door."""

from __future__ import annotations

import math
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines.formats import capped_train, cp_network, train_network, tucker_network
from tensorgrow.baselines.svd import interleave

DIMS = (3, 4, 2, 5)
CLOSED = ["tt_svd", "hosvd", "tucker", "tt"]


def planted(structure: tg.Structure, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = tg.TensorNetwork.random(structure, random_state=seed, dtype=dtype).to_dense()
    return x / torch.linalg.vector_norm(x)


def noise(seed: int = 0, dims: tuple[int, ...] = DIMS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(dims)


def true_error(result: tg.Result, x) -> float:
    x = torch.as_tensor(x)
    return float(torch.linalg.vector_norm(result.network.to_dense() - x) / torch.linalg.vector_norm(x))


# -- formats -------------------------------------------------------------------------------------------


def test_a_train_in_any_order_is_the_contraction_of_its_cores():
    rng = np.random.default_rng(0)
    order, ranks = (2, 0, 3, 1), (1, 2, 3, 2, 1)
    cores = [rng.standard_normal((ranks[k], DIMS[leg], ranks[k + 1])) for k, leg in enumerate(order)]
    expected = np.einsum("xcp,paq,qdr,rby->abcd", *cores)
    network = train_network(cores, order)
    assert np.allclose(network.to_dense(), expected)
    assert set(network.structure.edges) == {(0, 2), (0, 3), (1, 3)}


def test_a_tucker_network_is_the_product_of_its_factors():
    rng = np.random.default_rng(0)
    core = rng.standard_normal((2, 1, 2, 3))
    factors = [rng.standard_normal((d, r)) for d, r in zip(DIMS, core.shape)]
    expected = np.einsum("pqrs,ap,bq,cr,ds->abcd", core, *factors)
    assert np.allclose(tucker_network(core, factors).to_dense(), expected)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rank", [1, 3])
def test_a_cp_network_is_the_sum_of_rank_one_terms(order, rank):
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, rank)) for d in (3, 4, 2, 5, 2)[:order]]
    letters = "abcde"[:order]
    expected = np.einsum(",".join(f"{k}z" for k in letters) + "->" + letters, *factors)
    assert np.allclose(cp_network(factors).to_dense(), expected)


def test_train_ranks_stay_below_what_a_cut_allows():
    assert dict(capped_train((2, 3, 4), 10).ranks) == {(0, 1): 2, (1, 2): 4}


def test_interleaved_orders():
    assert interleave(8) == (0, 4, 1, 5, 2, 6, 3, 7)
    assert sorted(interleave(7)) == list(range(7))


# -- closed forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("max_error", [0.7, 0.2])
def test_the_error_asked_for_is_met_and_true(name, max_error):
    x = noise()
    r = baselines.run(name, x, max_error=max_error, progress=False)
    assert r.stop == tg.StopReason.TARGET_REACHED
    assert r.relative_error <= max_error
    assert math.isclose(true_error(r, x), r.relative_error, rel_tol=1e-9)
    assert r.num_parameters == r.network.num_parameters == r.history[-1].num_parameters
    assert len(r.history) == r.info["evaluations"]


@pytest.mark.parametrize("name", CLOSED)
def test_a_budget_is_kept_and_used(name):
    x = noise(1)
    small, large = (baselines.run(name, x, max_parameters=n) for n in (30, 90))
    assert small.num_parameters <= 30 < large.num_parameters <= 90
    assert large.relative_error < small.relative_error
    assert small.stop == tg.StopReason.FINISHED


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_tt_svd_finds_a_train_in_its_order(dtype):
    hidden = tg.Structure((4,) * 5, {(0, 3): 2, (1, 3): 3, (1, 4): 2, (2, 4): 3})  # 0-3-1-4-2
    x = planted(hidden, dtype=dtype)
    r = baselines.tt_svd(x, order=(0, 3, 1, 4, 2), max_error=1e-8)
    assert r.structure == hidden
    assert baselines.tt_svd(x, max_error=1e-8).num_parameters > r.num_parameters
    best = baselines.tt_svd(x, order="best", tries=30, max_error=1e-8, random_state=0)
    assert r.num_parameters <= best.num_parameters < baselines.tt_svd(x, max_error=1e-8).num_parameters
    assert true_error(best, x) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_hosvd_finds_a_tucker_tensor(dtype):
    hidden = tg.Structure.tucker((4, 5, 4), (2, 3, 2))
    x = planted(hidden, dtype=dtype)
    assert baselines.hosvd(x, max_error=1e-8).structure == hidden


def test_tt_svd_is_no_worse_than_the_best_ranks_allow():
    """The error of a train is at least the largest of what its cuts must drop (Eckart-Young)."""
    x = noise(2)
    r = baselines.tt_svd(x, max_parameters=60)
    bounds = []
    for k in range(1, 4):
        s = np.linalg.svd(x.reshape(math.prod(DIMS[:k]), -1), compute_uv=False)
        bounds.append(np.linalg.norm(s[r.structure.rank(k - 1, k) :]) / np.linalg.norm(s))
    assert max(bounds) <= r.relative_error <= math.sqrt(3) * max(bounds) * (1 + 1e-9)


# -- CP ------------------------------------------------------------------------------------------------


def test_cp_counts_its_factors_and_not_its_copy_tensors(tmp_path):
    rng = np.random.default_rng(3)
    x = np.einsum("az,bz,cz,dz->abcd", *(rng.standard_normal((d, 2)) for d in DIMS))
    r = baselines.cp(x, max_error=1e-5, random_state=0)
    assert r.num_parameters == 2 * sum(DIMS)
    assert r.network.num_parameters > r.num_parameters
    assert r.compression_ratio == x.size / r.num_parameters
    assert true_error(r, x) <= 1e-5
    assert [p.num_parameters for p in r.path] == [sum(DIMS), 2 * sum(DIMS)]
    r.save(tmp_path / "cp.safetensors")
    back = tg.load(tmp_path / "cp.safetensors")
    assert back.num_parameters == r.num_parameters
    assert [p.num_parameters for p in back.path] == [p.num_parameters for p in r.path]


def test_tensorly_keeps_the_backend_of_others():
    tl = pytest.importorskip("tensorly")
    before = tl.get_backend()
    with tl.backend_context("pytorch"):
        baselines.tensorly_tt(noise(), max_parameters=30)
        assert tl.get_backend() == "pytorch"
    assert tl.get_backend() == before


# -- growths -------------------------------------------------------------------------------------------


def test_the_random_walk_grows_edge_by_edge_and_repeats():
    x = planted(tg.Structure.tensor_ring((4,) * 4, 2))
    r, again = (baselines.random_walk(x, max_error=1e-3, max_parameters=150, random_state=4) for _ in "ab")
    assert [s.structure for s in r.history] == [s.structure for s in again.history]
    assert r.history[0].kind == "start"
    assert all(s.kind == "grow" and s.edge is not None for s in r.history[1:])
    errors = [s.relative_error for s in r.history]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(errors))
    edges = {baselines.random_walk(x, max_parameters=24, random_state=k).history[1].edge for k in range(12)}
    assert len(edges) >= 4  # of 6


def test_greedy_is_the_preset_of_the_paper():
    x = planted(tg.Structure.tensor_train((4,) * 4, 2))
    r = baselines.greedy(x, max_error=1e-4, random_state=0)
    same = tg.decompose(x, max_error=1e-4, random_state=0, options=tg.GreedyOptions.paper())
    assert r.structure == same.structure
    assert r.info["options"]["edge_score"] == "drop"


# -- the door ------------------------------------------------------------------------------------------


def test_a_tensor_in_other_units_gives_the_same():
    x = noise()
    for name in ("tt_svd", "cp", "random_walk"):
        a, b = (baselines.run(name, f * x, max_parameters=45, random_state=0) for f in (1.0, 1e9))
        assert a.num_parameters == b.num_parameters
        assert math.isclose(a.relative_error, b.relative_error, rel_tol=1e-6)
        assert math.isclose(a.history[-1].loss * 1e9, b.history[-1].loss, rel_tol=1e-6)


def test_vectors_matrices_and_zeros():
    vector = np.arange(1.0, 5.0)
    for name in ("tt_svd", "hosvd", "random_walk"):
        assert baselines.run(name, vector, max_error=1e-6).relative_error < 1e-6
        assert baselines.run(name, np.zeros((2, 3)), max_error=0.1).relative_error == 0.0
    matrix = np.outer(vector, vector) + np.eye(4)
    assert baselines.cp(matrix, max_error=1e-3, random_state=0).relative_error <= 1e-3
    assert baselines.tt_svd(matrix, max_error=1e-9).structure.rank(0, 1) == 4


def test_callbacks_and_limits_end_a_run():
    x = noise(dims=(4,) * 4)
    seen = []

    def third(step):
        seen.append(step)
        return len(seen) == 3

    r = baselines.random_walk(x, max_parameters=200, callbacks=third, random_state=0)
    assert r.stop == tg.StopReason.CALLBACK
    assert len(seen) == len(r.history) == 3
    r = baselines.random_walk(x, max_parameters=200, max_evaluations=4, random_state=0)
    assert r.stop == tg.StopReason.MAX_EVALUATIONS
    assert len(r.history) == 4
    r = baselines.random_walk(x, max_parameters=200, max_seconds=0.0, random_state=0)
    assert r.stop == tg.StopReason.MAX_SECONDS
    assert len(r.history) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: baselines.run("nothing", x), "choose one of cp"),
        (lambda x: baselines.run("tnls", x, np.ones(x.shape, bool)), "choose one of cp, tucker, tt_als"),
        (lambda x: baselines.tt_svd(x), "give max_error or max_parameters"),
        (lambda x: baselines.tt_svd(x, order="odd", max_error=0.1), "interleaved"),
        (lambda x: baselines.tt_svd(x, order=(0, 0, 1, 2), max_error=0.1), "permutation"),
        (lambda x: baselines.tt_svd(x, max_parameters=3), "already has 14"),
        (lambda x: baselines.tt_svd(x, max_error=0.1, sweeps=3), "does not know sweeps"),
        (lambda x: baselines.tnale(x, max_evaluations=0), "max_evaluations"),
        (lambda x: baselines.tnale(x, template="square"), "'lattice'"),
        (lambda x: baselines.tnale(x, max_rank=1), "max_rank"),
        (lambda x: baselines.tnls(x, samples=0), "samples"),
        (lambda x: baselines.genetic(x, rank=1), "rank=1"),
        (lambda x: baselines.genetic(x, rank=2, population=1), "population=1"),
        (lambda x: baselines.genetic(x, rank=2, error_weight=0.0), "error_weight"),
        (lambda x: baselines.svd_ins_tn(x, sparsity=2.0), "between 0 and 1"),
        (lambda x: baselines.svd_ins_tn(x + 1j, max_error=0.1), "real tensors"),
        (lambda x: baselines.tnale(x, fit="sgd"), "'adam'"),
        (lambda x: baselines.tnale(x, fit=baselines.FitOptions(restarts=0)), "restarts"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(tg.OptionError, match=message):
        call(noise())


@pytest.mark.parametrize(
    ("package", "name", "options"),
    [("tensorly", "cp", {"max_error": 0.1}), ("pymoo.core.problem", "genetic", {"rank": 2})],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, name, options):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tg.MissingPackageError, match=r"tensorgrow\[baselines\]"):
        baselines.run(name, noise(), **options)
