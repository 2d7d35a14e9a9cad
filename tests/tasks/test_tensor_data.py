"""Every form, dtype and scale of a tensor in memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
import tensorgrow.objectives.base
from tensorgrow import StopReason as Stop
from tensorgrow import TensorNetwork
from tests.oracles import dense, random_network
from tests.tasks.tensors import RING, error_of, noisy, planted

# -- memory ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_error_of_a_large_tensor_is_computed_in_parts(dtype, monkeypatch):
    x = noisy().astype(dtype)
    x = x if x.dtype.kind == "f" else x + 1j * x[::-1]
    whole = tg.decompose(x, max_error=0.2, random_state=0, effort="fast")
    monkeypatch.setattr("tensorgrow.tasks.tensor_data.WHOLE_ENTRIES", 20)
    assert tg.decompose(x, max_error=0.2, random_state=0, effort="fast").relative_error == pytest.approx(
        whole.relative_error, rel=1e-12
    )


def test_a_converted_copy_counts():
    x = np.ones((40, 40, 40), dtype=np.int16)
    with pytest.raises(tg.MemoryLimitError):  # 512 kB of doubles, and twice that for a sweep
        tg.decompose(x, max_error=0.1, memory_limit=1.7e6)
    assert tg.decompose(x.astype(float), max_error=0.1, memory_limit=1.7e6).num_parameters == 120


# -- precision -------------------------------------------------------------------------------------------


def _photograph():
    """Smooth, with noise of a twentieth: what single precision is for."""
    grid = np.indices((6,) * 5).sum(0) / 15.0
    return np.sin(grid**2) + 0.05 * np.random.default_rng(0).standard_normal(grid.shape)


def _dtypes_of_sweeps(monkeypatch):
    """Dtypes of the arrays that are solved for, noted while something runs; every sweep counts as costly."""
    monkeypatch.setattr("tensorgrow.objectives.dense.SINGLE_FLOPS", 0.0)
    seen = set()
    solve = tensorgrow.objectives.base.solve_for_core

    def note(gram, rhs, ridge, **how):
        seen.add(str(rhs.dtype).removeprefix("torch."))
        return solve(gram, rhs, ridge, **how)

    monkeypatch.setattr("tensorgrow.objectives.base.solve_for_core", note)
    return seen


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_large_errors_are_searched_for_in_single_precision(dtype, monkeypatch):
    x = _photograph().astype(dtype)
    seen = _dtypes_of_sweeps(monkeypatch)
    result = tg.decompose(x, max_error=0.1, random_state=0, effort="fast")
    assert seen == {"float32" if dtype == "float64" else "complex64"}
    assert str(result.network.dtype) == f"torch.{dtype}" and result.to_array().dtype == dtype
    assert result.stop is Stop.TARGET_REACHED
    # Errors are those of the network in double precision, also those of the steps.
    error = np.linalg.norm(result.to_array() - x) / np.linalg.norm(x)
    assert result.relative_error == pytest.approx(error, rel=1e-12) and error <= 0.1
    assert result.history[-1].relative_error == pytest.approx(error, rel=1e-12)
    for point in result.path:
        network = point.network.to_dense().numpy()
        assert point.error == pytest.approx(np.linalg.norm(network - x) / np.linalg.norm(x), rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "limits"),
    [
        ("float64", {"max_error": 1e-3, "max_steps": 3}),
        ("float64", {"max_parameters": 100}),
        ("float32", {"max_error": 0.1}),
    ],
    ids=["small error", "budget", "single data"],
)
def test_others_are_searched_for_in_the_precision_of_the_data(dtype, limits, monkeypatch):
    seen = _dtypes_of_sweeps(monkeypatch)
    tg.decompose(_photograph().astype(dtype), random_state=0, effort="fast", **limits)
    assert seen == {dtype}


def test_single_precision_needs_no_larger_networks(monkeypatch):
    x = _photograph()
    sizes = []
    for least in (0.0, math.inf):
        monkeypatch.setattr("tensorgrow.objectives.dense.SINGLE_FLOPS", least)
        results = [tg.decompose(x, max_error=0.1, random_state=s, effort="fast") for s in range(3)]
        sizes.append(np.mean([r.num_parameters for r in results]))
    assert sizes[0] <= 1.05 * sizes[1]


# -- forms of input --------------------------------------------------------------------------------------


class Wrapped:
    """Something with `__array__` only."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


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


# -- dtypes ----------------------------------------------------------------------------------------------


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


# -- scale -----------------------------------------------------------------------------------------------


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
    for point in scaled.path:
        assert error_of(scale * x, point.network, scale) == pytest.approx(point.error, rel=1e-5)


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


# -- devices ---------------------------------------------------------------------------------------------


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
