"""Any array -> tensor: dtype, scale, finiteness. What is accepted, converted or refused."""

from __future__ import annotations

import math
import os
import warnings
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

import numpy as np
import torch

from ..errors import DataError, OptionError

Numbers = TypeVar("Numbers", torch.Tensor, np.ndarray[Any, Any], float, complex)

_FLOATS = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def as_dtype(dtype: Any) -> torch.dtype | None:
    """Return a torch floating dtype for a torch or NumPy dtype or its name; None stays None."""
    if dtype is None:
        return None
    name = str(dtype)
    if not isinstance(dtype, torch.dtype):
        with suppress(TypeError):
            name = np.dtype(dtype).name
    for known in _FLOATS:
        if name in (str(known), str(known).removeprefix("torch.")):
            return known
    raise OptionError(f"dtype={dtype!r} is not supported; use float32, float64, complex64 or complex128")


def compute_dtype(stored: Any, wanted: torch.dtype | None) -> torch.dtype:
    """Return the dtype to compute in, for data of a torch or NumPy dtype.

    By default, half precision and less is computed in single, whole numbers and bools in double.
    """
    if not isinstance(stored, torch.dtype):
        if np.dtype(stored).kind not in "biufc":
            raise DataError(f"the data has dtype {stored}; numbers are needed")
        stored = getattr(torch, np.dtype(stored).name, torch.float64)
    if wanted is None:
        if stored.is_complex:  # of half precision: torch has no wider one than those computed in
            return stored if stored in _FLOATS else torch.complex64
        wide = torch.float32 if stored.is_floating_point and stored.itemsize <= 2 else torch.float64
        return stored if stored in _FLOATS else wide
    if stored.is_complex and not wanted.is_complex:
        raise OptionError(
            f"dtype={wanted} would drop the imaginary part of complex data; use a complex dtype"
        )
    return wanted


def as_tensor(x: Any, name: str = "the data", *, copy: bool = False) -> torch.Tensor:
    """Turn an array of any library into a tensor of the same numbers.

    Numbers keep their dtype, except that the other byte order and more than double precision, which torch
    does not have, are converted. Tensors are returned as they are, with their device and gradient.

    Parameters
    ----------
    name
        What to call the array in messages.
    copy
        Whether an array must not share memory with the tensor. Otherwise even read-only memory may be shared:
        do not write to such a tensor.
    """
    if isinstance(x, torch.Tensor):
        return x
    if isinstance(x, str | os.PathLike):
        read = f"x = tensorgrow.read({str(x)!r})"
        raise DataError(f"{name} is {str(x)!r}, a text; numbers are needed. Read a file first: {read}")
    if hasattr(x, "cores") and hasattr(x, "to_dense"):  # it has __array__, but this is seldom what is meant
        raise DataError(f"{name} is a {type(x).__name__}, not an array: call its to_dense() first")
    if hasattr(x, "tocoo"):  # of which NumPy makes an array with one object in it
        unknown = ", or tensorgrow.complete if entries that are not stored are unknown"
        hint = unknown if name == "the data" else ""
        raise DataError(f"{name} is a {type(x).__name__}, which is sparse: call its toarray() first{hint}")
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        what = type(x).__name__ if name == "the data" else name
        raise DataError(f"cannot make an array of {what}: {error}") from error
    kind = array.dtype.kind
    if kind not in "biufc":
        hint = ". Convert it, for example x.astype(float)" if name == "the data" else ""
        raise DataError(f"{name} has dtype {array.dtype}; numbers are needed{hint}")
    if array.dtype.itemsize > (16 if kind == "c" else 8):
        dtype = np.dtype(np.complex128 if kind == "c" else np.float64)
    else:
        dtype = array.dtype.newbyteorder("=")
    array = array.astype(dtype, order="C", copy=copy)
    with nullcontext() if array.flags.writeable else warnings.catch_warnings():
        if not array.flags.writeable:
            warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)


def as_floats(x: Any, name: str = "the data", *, copy: bool = False) -> torch.Tensor:
    """Convert as `as_tensor` does, without a gradient, to numbers that torch can compute with.

    Whole numbers and bools get double precision; numbers of eight bits, and complex ones of half precision,
    single.
    """
    tensor = as_tensor(x, name, copy=copy).detach().resolve_conj().resolve_neg()
    # Numbers that torch can store, but not compute with:
    if tensor.is_floating_point() and tensor.element_size() == 1:
        tensor = tensor.float()
    elif tensor.dtype == torch.complex32:
        tensor = tensor.to(torch.complex64)
    return tensor if tensor.is_floating_point() or tensor.is_complex() else tensor.double()


def as_target(x: Any, dtype: torch.dtype | None) -> torch.Tensor:
    """Return the data as a floating tensor on its device, checked; the input is not modified."""
    return measured_target(x, dtype)[0]


def measured_target(
    x: Any, dtype: torch.dtype | None, norm: float | None = None
) -> tuple[torch.Tensor, float]:
    """Return `as_target` and its `norm_of`, in one pass over the data; in none where the `norm` is known."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise DataError(
            f"{int(np.ma.getmaskarray(x).sum())} entries are masked, but all are needed. Fill them first, "
            "or call tensorgrow.complete, for which they are missing"
        )
    tensor = as_tensor(x)
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise DataError(
            "a sparse or quantized tensor was given; a dense one is needed: call .to_dense() first, or "
            "tensorgrow.complete if entries that are not stored are unknown"
        )
    if tensor.device.type == "meta":
        raise DataError("a tensor on the meta device has no data")
    if tensor.dim() == 0:
        raise DataError("a single number was given; a tensor needs at least one axis")
    if tensor.numel() == 0:
        raise DataError(f"the tensor is empty: its shape is {tuple(tensor.shape)}")
    dtype = compute_dtype(tensor.dtype, dtype)
    tensor = as_floats(tensor)
    norm = norm_of(tensor) if norm is None else norm
    if not math.isfinite(norm):  # which one entry that is not finite is enough for
        _check_finite(tensor)
    converted = tensor.to(dtype)
    if converted.dtype != tensor.dtype:
        size, info = largest(tensor), torch.finfo(dtype)
        if size > info.max or 0.0 < size < info.tiny:
            raise DataError(f"entries of size {size:.3g} do not fit in {dtype}; use dtype=float64")
        norm = norm_of(converted)
    return converted, norm


def _check_finite(tensor: torch.Tensor) -> None:
    bad = ~torch.isfinite(tensor)
    count = int(bad.sum())
    if count == 0:
        return  # the norm overflowed, not an entry
    nans = int(torch.isnan(tensor).sum())
    first = tuple(int(k) for k in np.unravel_index(int(bad.reshape(-1).int().argmax()), tensor.shape))
    hint = ", or call tensorgrow.complete, for which NaN is missing" if nans == count else ""
    raise DataError(
        f"{count} of {tensor.numel()} entries are not finite ({nans} NaN, {count - nans} infinite); "
        f"the first is at {first}. Remove or fill them first{hint}"
    )


# -- scale ---------------------------------------------------------------------------------------------


def scale_out(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Divide data by the power of two that brings it near 1, and return its exponent."""
    exponent = exponent_of(tensor)
    return times_power(tensor, -exponent), exponent


def exponent_of(tensor: torch.Tensor) -> int:
    """Return the exponent of a power of two near the data: divided by it, no squares overflow or vanish.

    Usually 0, since data of about one stays as it is.
    """
    return exponent_for(largest(tensor))


def exponent_for(size: float) -> int:
    """Return the `exponent_of` data with this largest absolute value."""
    return 0 if 1e-6 < size < 1e6 else floor_exponent(size)


def exponent_within(norm: float, count: int) -> int | None:
    """Return the `exponent_of` data with this norm and so many entries, where these two tell it."""
    # The largest absolute value lies between the norm and the root of the mean square.
    return 0 if norm / math.sqrt(2 * count) > 1e-6 and norm < 1e6 else None


def floor_exponent(size: float) -> int:
    """Return the exponent of the power of two at or below a number; 0 for zero."""
    return math.frexp(size)[1] - 1 if size > 0.0 else 0


def times_power(array: Numbers, exponent: int) -> Numbers:
    """Multiply by ``2**exponent``: exact, unless the result overflows or vanishes."""
    while exponent:  # in steps that every dtype can represent, upwards and downwards
        step = max(-100, min(100, exponent))
        array = array * 2.0**step
        exponent -= step
    return array


def add_at(total: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
    """Add rows to those of `total` that `index` names, in the same order each time.

    Atomic sums of a GPU come in any order; with ``accumulate`` it sorts first.
    """
    if total.device.type == "cuda":
        total.index_put_((index,), rows, accumulate=True)
    else:
        total.index_add_(0, index, rows)


def add_runs(index: torch.Tensor, *sums: tuple[torch.Tensor, torch.Tensor]) -> None:
    """`add_at` for several pairs of a total and its rows, and an `index` that never falls.

    A GPU adds up such runs of rows without sorting them.
    """
    if index.device.type != "cuda":
        for total, rows in sums:
            add_at(total, index, rows)
        return
    bounds = torch.searchsorted(index, torch.arange(len(sums[0][0]) + 1, device=index.device))
    for total, rows in sums:
        total += sum_runs(bounds, rows)


def sum_runs(bounds: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Sums of runs of rows, of which number ``k`` begins at ``bounds[k]`` and ends before the next one."""
    parts = torch.view_as_real(rows) if rows.is_complex() else rows
    total = torch.segment_reduce(parts.contiguous(), "sum", offsets=bounds, axis=0, unsafe=True)
    return torch.view_as_complex(total) if rows.is_complex() else total


def norm_of(tensor: torch.Tensor) -> float:
    """Norm, accumulated in double precision; of numbers as they are, so that squares may overflow."""
    if tensor.dtype == torch.float64 and tensor.device.type == "cpu" and tensor.is_contiguous():
        flat = tensor.detach().numpy().reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            return math.sqrt(float(flat.dot(flat)))  # takes half as long
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(tensor, dtype=wide))


def largest(tensor: torch.Tensor) -> float:
    """Largest absolute part, real or imaginary: the absolute value of a complex number may overflow."""
    tensor = tensor.detach().resolve_conj()
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    least, most = torch.aminmax(parts)  # in one pass, without an array of absolute values
    return max(-float(least), float(most))
