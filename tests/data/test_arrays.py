from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.arrays import (
    as_dtype,
    as_floats,
    as_target,
    as_tensor,
    compute_dtype,
    scale_out,
    times_power,
)

X = np.random.default_rng(0).standard_normal((3, 4))


def frozen(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


FORMS = {
    "plain": X,
    "list": X.tolist(),
    "fortran": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": X[::-1].copy()[::-1],
    "other byte order": X.astype(X.dtype.newbyteorder()),
    "longdouble": X.astype(np.longdouble),
    "read-only": frozen(X),
    "tensor": torch.from_numpy(X.copy()),
}


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_array_becomes_the_same_tensor(form, copy):
    tensor = as_tensor(FORMS[form], copy=copy)
    assert tensor.dtype == torch.float64
    assert np.array_equal(tensor.numpy(), X)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_numbers_of_half_precision_keep_their_imaginary_part():
    z = torch.complex(torch.ones(2, 3), torch.full((2, 3), 2.0))
    half = z.to(torch.complex32)
    for tensor in (as_floats(half), as_target(half, None)):
        assert tensor.dtype == torch.complex64
        assert torch.equal(tensor, z)
    assert as_target(half, torch.complex128).dtype == torch.complex128
    with pytest.raises(tg.OptionError, match="imaginary part"):
        as_target(half, torch.float64)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint8, np.uint16, np.uint32, np.int64, np.float16, np.complex64, ">i2"]
)
def test_numbers_keep_their_dtype(dtype):
    x = np.abs(X * 5).astype(dtype)
    tensor = as_tensor(x)
    assert str(tensor.dtype) == f"torch.{x.dtype.newbyteorder('=').name}"
    assert np.array_equal(tensor.numpy(), x)
    floats = as_floats(x)
    assert floats.is_floating_point() or floats.is_complex()
    assert np.array_equal(floats.numpy(), x)
    assert as_tensor(x[0, 0]).shape == ()


def test_memory_is_shared_unless_a_copy_is_wanted():
    x = X.copy()
    assert np.shares_memory(as_tensor(x).numpy(), x) and np.shares_memory(as_target(x, None).numpy(), x)
    assert not np.shares_memory(as_tensor(x, copy=True).numpy(), x)
    tensor = torch.ones(3, requires_grad=True)
    assert as_tensor(tensor, copy=True) is tensor and not as_floats(tensor).requires_grad


@pytest.mark.parametrize("wrong", [np.array(["a"]), None, np.array([None, 1]), {"a": 1}])
def test_what_holds_no_numbers_is_refused(wrong):
    with pytest.raises(tg.DataError, match=r"the mask has dtype .*; numbers are needed$"):
        as_tensor(wrong, "the mask")
    with pytest.raises(tg.DataError, match=r"numbers are needed. Convert it"):
        as_target(wrong, None)


def test_a_path_is_refused_with_what_reads_it():
    read = r"is 'abc.npy', a text; numbers are needed. Read a file first: x = tensorgrow.read\('abc.npy'\)"
    for take in (as_tensor, lambda x: as_target(x, None)):
        with pytest.raises(tg.DataError, match=read):
            take("abc.npy")


def test_ragged_lists_are_refused():
    with pytest.raises(tg.DataError, match="cannot make an array of list"):
        as_tensor([[1, 2], [3]])
    with pytest.raises(tg.DataError, match="cannot make an array of the mask"):
        as_tensor([[1, 2], [3]], "the mask")


def test_dtypes():
    assert as_dtype(None) is None
    for name in ("float32", np.float32, torch.float32, np.dtype("f4")):
        assert as_dtype(name) == torch.float32
    assert compute_dtype(np.float16, None) == compute_dtype(torch.bfloat16, None) == torch.float32
    assert compute_dtype(np.uint16, None) == compute_dtype(torch.bool, None) == torch.float64
    assert compute_dtype(np.float32, torch.complex128) == torch.complex128
    with pytest.raises(tg.OptionError, match="imaginary"):
        compute_dtype(torch.complex64, torch.float32)
    with pytest.raises(tg.DataError, match="numbers"):
        compute_dtype(np.dtype("U3"), None)


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e9, 1e-200, 3e200])
def test_scales_are_powers_of_two_that_round_nothing(size):
    x = torch.from_numpy(X) * size
    scaled, exponent = scale_out(x)
    assert torch.equal(times_power(scaled, exponent), x)
    assert 1e-6 < float(scaled.abs().max()) < 1e6
    assert exponent == 0 or not 1e-6 < size < 1e6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_the_smallest_and_largest_numbers_are_scaled_too(dtype):
    info = torch.finfo(dtype)
    for size in (info.smallest_normal * info.eps, info.max):
        x = torch.full((2,), size, dtype=dtype)
        scaled, exponent = scale_out(x)
        assert 1.0 <= float(scaled.real[0]) < 2.0
        assert torch.equal(times_power(scaled, exponent), x)


def test_zeros_have_no_scale():
    assert scale_out(torch.zeros(3))[1] == 0
