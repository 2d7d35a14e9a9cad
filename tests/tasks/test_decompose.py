"""Decomposition: limits, edges, starts, seeds, small orders, results."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure
from tensorgrow import StopReason as Stop
from tests.oracles import random_network
from tests.tasks.tensors import RING, error_of, is_same_run, noisy, planted, smooth, tt_svd

# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_budget_is_kept_and_beats_uniform_tt_svd(rank):
    x = smooth((6, 6, 6, 6))
    size, error = tt_svd(x, rank)
    result = tg.decompose(x, max_parameters=size, random_state=0)
    assert result.num_parameters <= size
    assert result.relative_error <= error
    assert result.relative_error == pytest.approx(error_of(x, result.network), rel=1e-6)
    assert result.stop is Stop.MAX_PARAMETERS
    assert all(s.num_parameters <= size for s in result.history)


@pytest.mark.parametrize("extra", [0, 1, 7, 20])
def test_budget_just_above_rank_one(extra):
    x = noisy()
    least = sum(x.shape)
    result = tg.decompose(x, max_parameters=least + extra, random_state=0)
    assert least <= result.num_parameters <= least + extra
    if extra < 8:  # the cheapest edge joins two legs of 4
        assert result.num_parameters == least


def test_larger_budgets_are_not_worse():
    x = noisy()
    errors = [tg.decompose(x, max_parameters=n, random_state=0).relative_error for n in (18, 40, 80, 160)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_max_steps(steps):
    x = np.random.default_rng(0).standard_normal((4, 4, 4, 4))
    result = tg.decompose(x, max_steps=steps, random_state=0)
    assert result.stop is Stop.MAX_STEPS
    assert [s.kind for s in result.history] == ["start"] + ["grow"] * steps
    assert result.num_parameters == result.history[-1].num_parameters


@pytest.mark.parametrize("effort", ["fast", "balanced", "thorough"])
def test_max_seconds(effort):
    x = np.random.default_rng(0).standard_normal((6,) * 5)
    begin = time.perf_counter()
    result = tg.decompose(x, max_error=1e-3, max_seconds=0.7, effort=effort, random_state=0)
    assert time.perf_counter() - begin < 15
    assert result.stop is Stop.MAX_SECONDS
    assert 0 < result.relative_error < 1
    rest = x - result.network.to_dense().numpy()
    assert np.linalg.norm(rest) / np.linalg.norm(x) == pytest.approx(result.relative_error, rel=1e-9)


def test_no_time_at_all_still_gives_a_network():
    x = noisy()
    result = tg.decompose(x, max_seconds=0, random_state=0)
    assert result.stop is Stop.MAX_SECONDS
    assert result.num_parameters == sum(x.shape)
    assert result.relative_error < 1


def test_both_limits_when_the_error_comes_first():
    x = planted()
    result = tg.decompose(x, max_error=1e-6, max_parameters=2 * RING.num_parameters, random_state=0)
    assert result.stop is Stop.TARGET_REACHED
    assert result.relative_error <= 1e-6
    assert result.num_parameters <= RING.num_parameters


@pytest.mark.parametrize("max_error", [0.05, 1e-6])
def test_both_limits_when_the_budget_comes_first(max_error):
    x = noisy()
    result = tg.decompose(x, max_error=max_error, max_parameters=40, random_state=0)
    assert result.num_parameters <= 40
    assert result.relative_error > max_error
    assert result.stop is Stop.MAX_PARAMETERS
    assert all(s.num_parameters <= 40 for s in result.history)


def test_budget_below_the_exact_size_is_kept():
    structure = Structure.tensor_ring((5,) * 4, 2)
    x = planted(structure)
    budget = structure.num_parameters - 10
    result = tg.decompose(x, max_error=1e-6, max_parameters=budget, random_state=0)
    assert result.num_parameters <= budget
    assert result.stop is Stop.MAX_PARAMETERS
    assert all(p.num_parameters <= budget for p in result.path)


@pytest.mark.parametrize(
    "limits", [{"max_parameters": np.int64(40)}, {"max_error": np.float32(0.5)}, {"max_steps": np.int32(2)}]
)
def test_limits_may_be_numpy_numbers(limits):
    result = tg.decompose(noisy(), random_state=0, **limits)
    assert result.num_parameters <= 40 or result.relative_error <= 0.5


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("limits", [{"max_parameters": 30}, {"max_steps": 4}, {"max_seconds": 0.5}])
@pytest.mark.parametrize("exactly", [True, False], ids=["no residual", "rounding residual"])
def test_nothing_left_to_explain_before_the_limit(dtype, limits, exactly):
    x = (
        np.ones((2, 3, 4))
        if exactly
        else np.einsum("i,j,k->ijk", [0.3, 0.2], [0.1, 0, 0.4], [0.7, 0.8, 1, 1])
    )
    x = x.astype(dtype)
    result = tg.decompose(x, random_state=0, **limits)
    assert result.num_parameters == sum(x.shape)  # more would only fit rounding
    assert result.stop in (Stop.NO_PROGRESS, Stop.TARGET_REACHED, Stop.CONVERGED)
    assert error_of(x, result.network) <= 10 * np.finfo(dtype).eps


def test_single_precision_deep_in_the_noise():
    x = noisy((4, 3, 4, 3), seed=2).astype(np.float32)
    result = tg.decompose(x, max_error=0.2, random_state=2)
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network) <= 0.2


def test_error_of_one_or_more_is_rank_one():
    x = noisy()
    for max_error in (1.0, 5.0, np.inf):
        result = tg.decompose(x, max_error=max_error, random_state=0)
        assert result.num_parameters == sum(x.shape)
        assert result.stop is Stop.TARGET_REACHED


# -- allowed edges ---------------------------------------------------------------------------------------


CHAIN = {(0, 1), (1, 2), (2, 3)}


@pytest.mark.parametrize(
    ("edges", "allowed"),
    [
        ("chain", CHAIN),
        ("ring", CHAIN | {(0, 3)}),
        ([(3, 1), (0, 2), (1, 2)], {(1, 3), (0, 2), (1, 2)}),
        (((0, 1), (0, 2), (0, 3)), {(0, 1), (0, 2), (0, 3)}),
        (np.array([[0, 3], [1, 2], [2, 3]]), {(0, 3), (1, 2), (2, 3)}),
    ],
    ids=["chain", "ring", "pairs", "star", "array"],
)
@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_only_allowed_edges(edges, allowed, effort):
    x = noisy((4, 3, 4, 3))
    result = tg.decompose(x, max_error=0.3, edges=edges, effort=effort, random_state=0)
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network) <= 0.3
    for structure in [result.structure, *(s.structure for s in result.history)]:
        assert set(structure.edges) <= allowed
        assert structure.num_nodes == 4


def test_edges_may_be_an_iterator_that_runs_once():
    result = tg.decompose(noisy(), max_error=0.3, edges=((k, k + 1) for k in range(3)), random_state=0)
    assert set(result.structure.edges) <= CHAIN


def test_chain_finds_the_ranks_of_a_tensor_train():
    structure = Structure.tensor_train((5,) * 5, (2, 4, 3, 2))
    result = tg.decompose(planted(structure), max_error=1e-8, edges="chain", random_state=0)
    assert dict(result.structure.ranks) == dict(structure.ranks)


def test_split_nodes_off_and_on():
    x = planted(Structure.tucker((6,) * 4, 2))
    without = tg.decompose(x, max_error=1e-6, split_nodes=False, random_state=0)
    assert all(s.structure.num_nodes == 4 for s in without.history)
    assert without.structure.num_nodes == 4
    assert without.relative_error <= 1e-6
    split = tg.decompose(x, max_error=1e-6, random_state=0)
    assert split.num_parameters == 4 * 6 * 2 + 2**4
    assert split.num_parameters < without.num_parameters


@pytest.mark.parametrize("split_nodes", [False, True])
@pytest.mark.parametrize("degree", [2, 3])
def test_max_degree(split_nodes, degree):
    x = planted(Structure.tucker((4,) * 4, 2))
    options = GreedyOptions(max_degree=degree)
    result = tg.decompose(x, max_error=1e-6, options=options, split_nodes=split_nodes, random_state=0)
    assert result.relative_error <= 1e-6
    for step in result.history:
        assert max(len(n) for n in step.structure.neighbours) <= degree


# -- start and seed --------------------------------------------------------------------------------------


def test_init_is_used_and_not_modified():
    x = planted()
    init = random_network(RING, 1)  # the planted one, up to its norm
    before = [c.clone() for c in init.cores]
    result = tg.decompose(x, max_error=1e-6, init=init, random_state=0)
    assert result.history[0].kind == "start"
    assert result.history[0].structure == RING
    assert result.history[0].relative_error <= 1e-6
    assert result.num_parameters <= RING.num_parameters
    assert "grow" not in {s.kind for s in result.history}
    assert all(torch.equal(a, b) for a, b in zip(before, init.cores))
    mine = {c.data_ptr() for c in init.cores}
    assert not mine & {c.data_ptr() for c in result.network.cores}


def test_growth_goes_on_from_init():
    x = noisy()
    init = tg.decompose(x, max_error=0.45, random_state=0).network
    result = tg.decompose(x, max_error=0.3, init=init, random_state=0)
    assert result.history[0].num_parameters == init.num_parameters > sum(x.shape)
    assert result.history[0].relative_error <= 0.45
    assert result.relative_error <= 0.3


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (torch.float64, torch.float32),
        (torch.float32, torch.float64),
        (torch.complex128, torch.float64),
        (torch.complex64, torch.complex128),
    ],
)
def test_init_of_another_dtype(data, start):
    x = torch.from_numpy(planted(dtype=torch.complex128 if data.is_complex else torch.float64)).to(data)
    init = random_network(Structure.tensor_train(x.shape, 2), 5, start)
    result = tg.decompose(x, max_error=1e-4, init=init, random_state=0)
    assert result.history[0].structure == init.structure
    assert result.network.dtype == data
    assert result.relative_error <= 1e-4
    assert init.dtype == start


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_same_seed_same_run(effort):
    x = noisy((4, 4, 4, 3))
    first, again = (tg.decompose(x, max_error=0.35, effort=effort, random_state=7) for _ in range(2))
    assert is_same_run(first, again)


def test_generators_as_random_state():
    x = noisy()
    plain = tg.decompose(x, max_error=0.3, random_state=5)
    assert is_same_run(plain, tg.decompose(x, max_error=0.3, random_state=torch.Generator().manual_seed(5)))
    assert is_same_run(plain, tg.decompose(x, max_error=0.3, random_state=np.int64(5)))
    one, two = (tg.decompose(x, max_error=0.3, random_state=np.random.default_rng(5)) for _ in range(2))
    assert is_same_run(one, two)
    shared = np.random.default_rng(5)
    assert is_same_run(one, tg.decompose(x, max_error=0.3, random_state=shared))
    assert not is_same_run(one, tg.decompose(x, max_error=0.3, random_state=shared))  # it has moved on


def test_the_global_generators_are_left_alone():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = float(torch.rand(())), float(np.random.rand())  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    tg.decompose(noisy(), max_error=0.3, random_state=1)
    assert (float(torch.rand(())), float(np.random.rand())) == expected  # noqa: NPY002


@pytest.mark.parametrize("effort", ["fast", "balanced", "thorough"])
def test_every_effort_reaches_the_target(effort):
    x = planted()
    quick = tg.decompose(x, max_error=1e-6, effort="fast", random_state=0)
    seconds = 1 + 10 * quick.info["seconds"]  # a thorough run takes all of it; enough on a busy machine
    result = tg.decompose(x, max_error=1e-6, effort=effort, max_seconds=seconds, random_state=0)
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network) <= 1e-6
    assert result.info["effort"] == effort
    if effort != "fast":
        assert result.num_parameters <= RING.num_parameters


# -- small orders and modes ------------------------------------------------------------------------------


def test_order_one():
    x = np.arange(1.0, 8.0)
    result = tg.decompose(x, max_error=1e-12, random_state=0)
    assert result.num_parameters == 7
    np.testing.assert_allclose(result.network.to_dense().numpy(), x, rtol=1e-14)
    for edges in ("chain", "ring"):
        assert tg.decompose(x, max_error=1e-12, edges=edges).num_parameters == 7


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("max_error", [0.5, 0.1, 0.01, 1e-8])
def test_order_two_is_the_svd(dtype, max_error):
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((9, 6)) * 0.4 ** np.arange(6)) @ rng.standard_normal((6, 12))
    x = x.astype(dtype) if dtype is np.float64 else x + 1j * rng.standard_normal((9, 6)) @ np.eye(6, 12)
    s = np.linalg.svd(x, compute_uv=False)
    tails = np.sqrt(np.cumsum(s[::-1] ** 2)[::-1])
    rank = int((tails > max_error * tails[0]).sum())
    result = tg.decompose(x, max_error=max_error, random_state=0)
    assert result.structure.rank(0, 1) == rank
    assert result.num_parameters == rank * (9 + 12)


def test_order_two_budget_is_the_truncated_svd():
    x = np.random.default_rng(2).standard_normal((9, 12))
    s = np.linalg.svd(x, compute_uv=False)
    result = tg.decompose(x, max_parameters=4 * 21 + 20, random_state=0)
    assert result.structure.rank(0, 1) == 4
    assert result.relative_error == pytest.approx(np.linalg.norm(s[4:]) / np.linalg.norm(s), rel=1e-4)


@pytest.mark.parametrize("shape", [(1, 4, 1, 5), (4, 5, 1), (1, 1, 4, 5), (1,), (1, 1, 1)])
def test_modes_of_size_one(shape):
    rng = np.random.default_rng(3)
    core = (rng.standard_normal((4, 2)) @ rng.standard_normal((2, 5))) if 5 in shape else np.ones(1)
    x = core.reshape(shape)
    result = tg.decompose(x, max_error=1e-10, random_state=0)
    assert result.relative_error <= 1e-10
    assert result.network.to_dense().shape == shape
    ones = sum(n == 1 for n in shape)
    assert result.num_parameters == (2 * (4 + 5) if 5 in shape else 0) + ones


# -- results ---------------------------------------------------------------------------------------------


def test_at_is_monotone():
    x = noisy((4, 4, 4, 3), level=0.5)
    result = tg.decompose(x, max_error=0.1, effort="fast", random_state=0)
    errors = [0.9, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1]
    networks = [result.at(max_error=e) for e in errors]
    sizes = [n.num_parameters for n in networks]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) >= 4
    for wanted, network in zip(errors, networks):
        assert error_of(x, network) <= wanted * (1 + 1e-6)
    budgets = sorted({s.num_parameters for s in result.history})
    reached = [error_of(x, result.at(max_parameters=n)) for n in budgets]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(reached))
    assert all(result.at(max_parameters=n).num_parameters <= n for n in budgets)
    assert result.at(max_error=0.1).num_parameters == result.num_parameters


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_saved_results_load_equal(tmp_path, dtype):
    x = planted(dtype=torch.complex128 if dtype.is_complex else torch.float64)
    result = tg.decompose(x, max_error=1e-4, dtype=dtype, random_state=0)
    result.save(tmp_path / "run.safetensors")
    loaded = tg.load(tmp_path / "run.safetensors")
    assert isinstance(loaded, tg.Result)
    assert is_same_run(result, loaded)
    assert loaded.history == result.history
    assert loaded.stop is result.stop
    assert dict(loaded.info) == dict(result.info)
    assert len(loaded.path) == len(result.path)
    for a, b in zip(loaded.path, result.path):
        assert a.error == b.error
        assert all(torch.equal(u, v) for u, v in zip(a.network.cores, b.network.cores))


def test_errors_in_single_precision_are_those_of_the_networks():
    """Cores of 24, 20, 78 and 23 that cancelled to 117: sums over them told 0.294 of an error of 0.356."""
    torch.manual_seed(0)
    x = (torch.randn(16, 4) @ torch.randn(4, 256)).reshape(16, 16, 16)
    r = tg.decompose(x, max_error=0.3, random_state=0, progress=False)
    assert r.stop is tg.StopReason.TARGET_REACHED
    assert r.relative_error <= 0.3
    for point in r.path:
        found = point.network.to(dtype=torch.float64).to_dense()
        exact = float(torch.linalg.norm(found - x.double()) / torch.linalg.norm(x.double()))
        assert point.error == pytest.approx(exact, rel=1e-4)
