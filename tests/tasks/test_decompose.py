from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow import StopReason as Stop
from tests.oracles import dense, random_network

RING = Structure((4, 5, 4, 3), {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2})


def planted(structure: Structure = RING, seed: int = 1, dtype: torch.dtype = torch.float64) -> np.ndarray:
    x = dense(structure, random_network(structure, seed, dtype).cores)
    return x / np.linalg.norm(x)


def noisy(shape: tuple[int, ...] = (5, 4, 5, 4), seed: int = 0, level: float = 0.3) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    return planted(Structure.tensor_train(shape, 2), seed) + level * noise / np.linalg.norm(noise)


def smooth(shape: tuple[int, ...]) -> np.ndarray:
    grids = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    return 1.0 / (0.3 + sum(grids)) + np.cos(3 * grids[0] * grids[-1])


def error_of(x: np.ndarray, network: TensorNetwork, scale: float = 1.0) -> float:
    """Relative error by plain NumPy in double precision; `scale` is divided out first."""
    wide = np.complex128 if np.asarray(x).dtype.kind == "c" else np.float64
    x = np.asarray(x).astype(wide) / scale
    share = scale ** (1.0 / network.structure.num_nodes)
    cores = [np.asarray(c.resolve_conj().numpy()).astype(wide) / share for c in network.cores]
    return float(np.linalg.norm(x - dense(network.structure, cores)) / np.linalg.norm(x))


def tt_svd(x: np.ndarray, rank: int) -> tuple[int, float]:
    """Parameters and error of the uniform-rank TT-SVD."""
    rest, left, cores = x.reshape(1, -1), 1, []
    for n in x.shape[:-1]:
        u, s, vh = np.linalg.svd(rest.reshape(left * n, -1), full_matrices=False)
        r = min(rank, len(s))
        cores.append(u[:, :r].reshape(left, n, r))
        rest, left = s[:r, None] * vh[:r], r
    cores.append(rest.reshape(left, x.shape[-1], 1))
    out = cores[0]
    for core in cores[1:]:
        out = np.tensordot(out, core, 1)
    return sum(c.size for c in cores), float(np.linalg.norm(out.reshape(x.shape) - x) / np.linalg.norm(x))


class Wrapped:
    """Something with `__array__` only."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


# -- forms of input ----------------------------------------------------------------------------------------


def _memmap(x, folder):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def _read_only(x, folder):
    x = x.copy()
    x.setflags(write=False)
    return x


def _strided(x, folder):
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]))
    wide[..., ::2] = x
    return wide[..., ::2]


FORMS = {
    "numpy": lambda x, folder: x.copy(),
    "torch": lambda x, folder: torch.from_numpy(x.copy()),
    "list": lambda x, folder: x.tolist(),
    "memmap": _memmap,
    "read-only": _read_only,
    "fortran": lambda x, folder: np.asfortranarray(x),
    "negative strides": lambda x, folder: x[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "strided": _strided,
    "byte-swapped": lambda x, folder: x.astype(x.dtype.newbyteorder()),
    "array object": lambda x, folder: Wrapped(x),
    "torch permuted": lambda x, folder: torch.from_numpy(x.transpose(3, 1, 0, 2).copy()).permute(2, 1, 3, 0),
    "torch grad": lambda x, folder: torch.from_numpy(x.copy()).requires_grad_(),
    "torch negated view": lambda x, folder: (
        torch.complex(torch.zeros(x.shape).double(), torch.from_numpy(-x)).conj().imag
    ),
    "unmasked": lambda x, folder: np.ma.masked_array(x.copy(), np.zeros(x.shape, bool)),
}


@pytest.mark.parametrize("form", FORMS)
def test_reaches_the_error_whatever_holds_the_numbers(form, tmp_path):
    x = planted()
    given = FORMS[form](x, tmp_path)
    result = tg.decompose(given, max_error=1e-6, random_state=0)
    assert result.stop is Stop.TARGET_REACHED
    assert result.num_parameters <= RING.num_parameters
    assert error_of(x, result.network) <= 1e-6
    kept = given.detach().resolve_neg().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    np.testing.assert_array_equal(kept, x)  # not modified
    assert result.structure.dims == x.shape
    assert result.network.to_dense().shape == x.shape


def test_all_forms_of_the_same_numbers_give_the_same_network(tmp_path):
    x = noisy()
    first = tg.decompose(x, max_error=0.3, random_state=4)
    for form in ("torch", "fortran", "byte-swapped", "negative strides", "list"):
        other = tg.decompose(FORMS[form](x, tmp_path), max_error=0.3, random_state=4)
        assert other.structure == first.structure
        assert other.relative_error == pytest.approx(first.relative_error, rel=1e-12)


def test_conjugated_torch_views():
    x = planted(dtype=torch.complex128)
    given = torch.from_numpy(x.conj().copy()).conj()
    assert given.is_conj()
    result = tg.decompose(given, max_error=1e-6, random_state=0)
    assert error_of(x, result.network) <= 1e-6


# -- dtypes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "expected", "max_error"),
    [
        ("float16", torch.float32, 1e-3),
        ("float32", torch.float32, 1e-4),
        ("float64", torch.float64, 1e-9),
        ("longdouble", torch.float64, 1e-9),
        ("complex64", torch.complex64, 1e-4),
        ("complex128", torch.complex128, 1e-9),
        ("clongdouble", torch.complex128, 1e-9),
    ],
)
def test_floating_dtypes(dtype, expected, max_error):
    kind = torch.complex128 if dtype.startswith("c") else torch.float64
    x = planted(dtype=kind).astype(dtype)
    result = tg.decompose(x, max_error=max_error, random_state=0)
    assert result.network.dtype == expected
    assert error_of(x, result.network) <= max_error
    assert result.relative_error <= max_error
    if dtype != "float16":  # rounding to half precision leaves no exact structure
        assert result.num_parameters <= RING.num_parameters


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_whole_numbers_compute_in_double(dtype):
    a, b = [[1, 2, 0], [0, 1, 1]], [[1, 0, 2, 1], [2, 1, 0, 0]]
    c, d = [[1, 1, 0, 2, 1], [0, 2, 1, 0, 1]], [[2, 1, 0], [1, 0, 1]]
    x = np.einsum("ri,rj,sk,sl->ijkl", a, b, c, d).astype(dtype)
    result = tg.decompose(x, max_error=1e-9, random_state=0)
    assert result.network.dtype == torch.float64
    assert error_of(x, result.network) <= 1e-9
    # Two independent matrices of rank 2.
    assert result.num_parameters == 2 * (3 + 4) + 2 * (5 + 3)


def test_large_whole_numbers_are_not_rounded_to_single():
    x = np.add.outer(np.arange(5) * 2**40, np.arange(6)) + 1
    result = tg.decompose(x, max_error=1e-12, random_state=0)
    assert error_of(x, result.network) <= 1e-12


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_bools(library):
    vectors = [np.array(v, bool) for v in ([1, 0, 1], [1, 1, 0, 1], [0, 1, 1])]
    x = np.einsum("i,j,k->ijk", *vectors)
    given = x if library == "numpy" else torch.from_numpy(x)
    result = tg.decompose(given, max_error=1e-9, random_state=0)
    assert result.num_parameters == 3 + 4 + 3
    np.testing.assert_allclose(result.network.to_dense().numpy(), x.astype(float), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_torch_half_precision_computes_in_single(dtype):
    x = torch.from_numpy(noisy()).to(dtype)
    result = tg.decompose(x, max_error=0.3, random_state=0)
    assert result.network.dtype == torch.float32
    assert error_of(x.double().numpy(), result.network) <= 0.3


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("f4"), torch.float32])
def test_dtype_asked_for(dtype):
    x = noisy()
    result = tg.decompose(x, max_error=0.3, dtype=dtype, random_state=0)
    assert result.network.dtype == torch.float32
    assert error_of(x, result.network) <= 0.3 * (1 + 1e-5)  # the data itself is rounded


def test_real_data_may_be_computed_as_complex():
    x = noisy()
    result = tg.decompose(x, max_error=0.3, dtype="complex128", random_state=0)
    assert result.network.dtype == torch.complex128
    assert error_of(x.astype(complex), result.network) <= 0.3


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("max_error", [0.4, 0.1, 0.02])
def test_reported_error_is_the_true_one_and_below_the_target(dtype, max_error):
    x = noisy((4, 4, 4, 3), level=0.2)
    if dtype.startswith("complex"):
        x = x + 1j * noisy((4, 4, 4, 3), seed=1, level=0.2)
    x = x.astype(dtype)
    result = tg.decompose(x, max_error=max_error, random_state=0, effort="fast")
    assert result.stop is Stop.TARGET_REACHED
    assert result.relative_error == pytest.approx(error_of(x, result.network), rel=1e-6)
    assert result.relative_error <= max_error
    size = sum(c.numel() for c in result.network.cores)
    assert result.num_parameters == size
    assert result.compression_ratio == pytest.approx(x.size / size)


# -- scale -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [2.0**664, 2.0**-664, 1e5, 1e-5, 1e9])
def test_scale_of_the_data_does_not_matter(scale):
    x = noisy()
    plain = tg.decompose(x, max_error=0.3, random_state=0)
    scaled = tg.decompose(scale * x, max_error=0.3, random_state=0)
    assert scaled.structure == plain.structure
    assert error_of(scale * x, scaled.network, scale) == pytest.approx(scaled.relative_error, rel=1e-9)
    assert scaled.relative_error == pytest.approx(plain.relative_error, rel=1e-6)
    assert np.isfinite(scaled.network.to_dense().numpy()).all()
    last = scaled.history[-1]
    assert last.loss == pytest.approx(last.relative_error * scale * np.linalg.norm(x), rel=1e-6)
    for step in scaled.path:
        assert error_of(scale * x, step.network, scale) == pytest.approx(step.relative_error, rel=1e-5)


@pytest.mark.parametrize("scale", [2.0**664, 2.0**-664])
def test_fit_and_init_at_extreme_scales(scale):
    x = planted()
    init = random_network(RING, 1)
    size = np.linalg.norm(dense(RING, init.cores))
    share = (scale / size) ** 0.25
    init = TensorNetwork(RING, [c * share for c in init.cores])  # the planted network itself
    fitted = tg.fit(scale * x, RING, init=init, max_sweeps=3)
    assert fitted.relative_error <= 1e-9
    grown = tg.decompose(scale * x, max_error=1e-9, init=init, random_state=0)
    assert grown.relative_error <= 1e-9
    assert grown.num_parameters <= RING.num_parameters


def test_numbers_near_the_largest_double():
    x = np.full((2, 3), 1.5e308)
    result = tg.decompose(x, max_error=1e-9, random_state=0)
    np.testing.assert_allclose(result.network.to_dense().numpy(), x, rtol=1e-9)


def test_complex_numbers_near_the_largest_double():
    x = np.full((2, 3), 1.5e308 * (1 + 1j))  # the absolute value overflows
    result = tg.decompose(x, max_error=1e-9, random_state=0)
    np.testing.assert_allclose(result.network.to_dense().numpy(), x, rtol=1e-9)


def test_tiny_numbers_do_not_vanish_in_single_precision():
    x = noisy()
    try:
        result = tg.decompose(1e-200 * x, max_error=0.3, dtype="float32", random_state=0)
    except tg.DataError:
        return  # refusing is fine, a zero network with error 0 is not
    network = result.network.to(dtype=torch.float64)
    assert error_of(1e-200 * x, network, 1e-200) == pytest.approx(result.relative_error, rel=1e-3)


# -- limits ------------------------------------------------------------------------------------------------


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


# -- allowed edges -----------------------------------------------------------------------------------------


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


# -- start and seed ----------------------------------------------------------------------------------------


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


def _same(a, b):
    return (
        a.structure == b.structure
        and a.relative_error == b.relative_error
        and [s.structure for s in a.history] == [s.structure for s in b.history]
        and all(torch.equal(u, v) for u, v in zip(a.network.cores, b.network.cores))
    )


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_same_seed_same_run(effort):
    x = noisy((4, 4, 4, 3))
    first, again = (tg.decompose(x, max_error=0.35, effort=effort, random_state=7) for _ in range(2))
    assert _same(first, again)


def test_generators_as_random_state():
    x = noisy()
    plain = tg.decompose(x, max_error=0.3, random_state=5)
    assert _same(plain, tg.decompose(x, max_error=0.3, random_state=torch.Generator().manual_seed(5)))
    assert _same(plain, tg.decompose(x, max_error=0.3, random_state=np.int64(5)))
    one, two = (tg.decompose(x, max_error=0.3, random_state=np.random.default_rng(5)) for _ in range(2))
    assert _same(one, two)
    shared = np.random.default_rng(5)
    assert _same(one, tg.decompose(x, max_error=0.3, random_state=shared))
    assert not _same(one, tg.decompose(x, max_error=0.3, random_state=shared))  # it has moved on


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
    result = tg.decompose(x, max_error=1e-6, effort=effort, max_seconds=2, random_state=0)
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network) <= 1e-6
    assert result.info["effort"] == effort
    if effort != "fast":
        assert result.num_parameters <= RING.num_parameters


# -- small orders and modes --------------------------------------------------------------------------------


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


# -- fit ---------------------------------------------------------------------------------------------------


def test_fit_recovers_a_planted_network():
    x = planted()
    result = tg.fit(x, RING, random_state=2, max_error=1e-8)
    assert result.structure == RING
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network) == pytest.approx(result.relative_error, rel=1e-5)
    assert result.relative_error <= 1e-8
    assert len(result.history) == 1
    assert result.history[0].structure == RING


def test_fit_of_a_matrix_is_the_truncated_svd():
    x = np.random.default_rng(0).standard_normal((8, 11))
    s = np.linalg.svd(x, compute_uv=False)
    result = tg.fit(x, Structure((8, 11), {(0, 1): 3}), random_state=0, tolerance=1e-12)
    assert result.relative_error == pytest.approx(np.linalg.norm(s[3:]) / np.linalg.norm(s), rel=1e-5)


def test_fit_of_tucker_and_chain_is_not_worse_than_tt_svd():
    x = noisy()
    size, error = tt_svd(x, 2)
    structure = Structure.tensor_train(x.shape, 2)
    assert structure.num_parameters == size
    best = min(tg.fit(x, structure, random_state=k).relative_error for k in range(3))
    assert best <= error


def test_fit_starts_from_init_and_never_gets_worse():
    x = noisy()
    structure = Structure.tensor_train(x.shape, 2)
    first = tg.fit(x, structure, random_state=0, max_sweeps=2)
    assert first.stop is Stop.MAX_STEPS
    before = [c.clone() for c in first.network.cores]
    second = tg.fit(x, structure, init=first.network, max_sweeps=1)
    assert second.relative_error <= first.relative_error * (1 + 1e-12)
    assert all(torch.equal(a, b) for a, b in zip(before, first.network.cores))
    longer = tg.fit(x, structure, init=first.network)
    assert longer.stop is Stop.CONVERGED
    assert longer.relative_error <= second.relative_error


def test_fit_stops_at_max_error():
    x = noisy()
    structure = Structure.complete(x.shape, 2)
    free = tg.fit(x, structure, random_state=0)
    stopped = tg.fit(x, structure, random_state=0, max_error=1.2 * free.relative_error)
    assert free.relative_error < stopped.relative_error <= 1.2 * free.relative_error
    assert stopped.stop is Stop.TARGET_REACHED
    assert stopped.info["sweeps"] < free.info["sweeps"]
    unreachable = tg.fit(x, structure, random_state=0, max_error=0.5 * free.relative_error)
    assert unreachable.stop is not Stop.TARGET_REACHED


def test_fit_respects_max_seconds():
    x = np.random.default_rng(0).standard_normal((8,) * 5)
    begin = time.perf_counter()
    result = tg.fit(
        x, Structure.complete(x.shape, 2), max_seconds=0.3, tolerance=0, max_sweeps=10**6, random_state=0
    )
    assert time.perf_counter() - begin < 15
    assert result.stop is Stop.MAX_SECONDS
    assert result.relative_error < 1


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_fit_dtypes(dtype):
    kind = torch.complex128 if dtype.startswith("c") else torch.float64
    x = planted(dtype=kind).astype(dtype)
    result = tg.fit(x, RING, random_state=0, max_error=1e-4)
    assert str(result.network.dtype).endswith(dtype)
    assert error_of(x, result.network) <= 1.01e-4


def test_fit_is_reproducible():
    x = noisy()
    structure = Structure.tensor_ring(x.shape, 2)
    assert _same(tg.fit(x, structure, random_state=1), tg.fit(x, structure, random_state=1))


# -- results -----------------------------------------------------------------------------------------------


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
    assert _same(result, loaded)
    assert loaded.history == result.history
    assert loaded.stop is result.stop
    assert dict(loaded.info) == dict(result.info)
    assert len(loaded.path) == len(result.path)
    for a, b in zip(loaded.path, result.path):
        assert a.relative_error == b.relative_error
        assert all(torch.equal(u, v) for u, v in zip(a.network.cores, b.network.cores))


def test_device_cpu():
    x = noisy()
    for device in ("cpu", torch.device("cpu"), "auto", None):
        result = tg.decompose(x, max_error=0.3, device=device, random_state=0)
        assert result.network.device.type == "cpu"
        assert result.relative_error <= 0.3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_cuda_is_refused_where_there_is_none(device):
    with pytest.raises(tg.OptionError, match="GPU"):
        tg.decompose(noisy(), max_error=0.3, device=device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda():
    x = planted()
    result = tg.decompose(x, max_error=1e-6, device="cuda", random_state=0)
    assert result.network.device.type == "cuda"
    assert error_of(x, result.network.to("cpu")) <= 1e-6
