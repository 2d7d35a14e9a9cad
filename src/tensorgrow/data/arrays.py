"""The public door for data: what is accepted, converted or refused."""

from __future__ import annotations

import math
import os
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from ..errors import DataError, MemoryLimitError, OptionError

__all__ = [
    "as_dtype",
    "as_target",
    "check_memory",
    "choose_device",
    "compute_dtype",
    "free_memory",
    "power_of_two_scale",
    "scale_for",
]

# Entries from which a GPU beats the CPU on whole runs (benchmarks/results/gpu.json).
GPU_ENTRIES = 1_000_000

_FLOATS = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def as_dtype(dtype: Any) -> torch.dtype | None:
    """A torch floating dtype from a torch or NumPy dtype or its name; None stays None."""
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


def as_target(x: Any, dtype: torch.dtype | None) -> torch.Tensor:
    """The data as a floating tensor where it is, checked once; the input is not modified."""
    tensor = x if isinstance(x, torch.Tensor) else _from_array(x)
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise DataError(
            "a sparse or quantized tensor was given; a dense one is needed: call .to_dense() first, or "
            "tensorgrow.complete if entries that are not stored are unknown"
        )
    if tensor.device.type == "meta":
        raise DataError("a tensor on the meta device has no data")
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dim() == 0:
        raise DataError("a single number was given; a tensor needs at least one axis")
    if tensor.numel() == 0:
        raise DataError(f"the tensor is empty: its shape is {tuple(tensor.shape)}")
    dtype = compute_dtype(tensor.dtype, dtype)
    _check_finite(tensor)
    converted = tensor.to(dtype)
    if converted.dtype != tensor.dtype:
        largest = _largest(tensor)
        info = torch.finfo(dtype)
        if largest > info.max or 0.0 < largest < info.tiny:
            raise DataError(f"entries of size {largest:.3g} do not fit in {dtype}; use dtype=float64")
    return converted


def compute_dtype(stored: Any, asked: torch.dtype | None) -> torch.dtype:
    """Dtype to compute in, for data of a torch or NumPy dtype."""
    if not isinstance(stored, torch.dtype):
        if np.dtype(stored).kind not in "biufc":
            raise DataError(f"the data has dtype {stored}; numbers are needed")
        stored = getattr(torch, np.dtype(stored).name, torch.float64)
    if asked is None:
        return stored if stored in _FLOATS else _widened(stored)
    if stored.is_complex and not asked.is_complex:
        raise OptionError(f"dtype={asked} would drop the imaginary part of complex data; use a complex dtype")
    return asked


def _largest(tensor: torch.Tensor) -> float:
    """Largest absolute part, real or imaginary: the absolute value of a complex number may overflow."""
    parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return float(parts.abs().max()) if parts.is_floating_point() else float(parts.double().abs().max())


def _widened(dtype: torch.dtype) -> torch.dtype:
    """Half precision computes in single, whole numbers and bools in double."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else torch.float64


def _from_array(x: Any) -> torch.Tensor:
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise DataError(
            f"{int(np.ma.getmaskarray(x).sum())} entries are masked, but all are needed. Fill them first"
        )
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise DataError(f"cannot make an array of {type(x).__name__}: {error}") from error
    if array.ndim == 0 and array.dtype.kind in "biufc":
        raise DataError("a single number was given; a tensor needs at least one axis")
    if array.dtype.kind not in "biufc":
        raise DataError(
            f"the data has dtype {array.dtype}; numbers are needed. Convert it, for example x.astype(float)"
        )
    if array.dtype in (np.longdouble, np.clongdouble) and array.dtype.itemsize > 16 - 8 * (
        array.dtype.kind == "f"
    ):
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    if array.dtype.kind in "bui" and array.dtype != np.uint8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # read-only inputs are only read
        return torch.from_numpy(np.ascontiguousarray(array))


def _check_finite(tensor: torch.Tensor) -> None:
    # A sum is finite only if every entry is; it needs no array of flags.
    if bool(torch.isfinite(tensor.sum())):
        return
    bad = ~torch.isfinite(tensor)
    count = int(bad.sum())
    if count == 0:
        return  # the sum overflowed, not an entry
    nans = int(torch.isnan(tensor).sum())
    first = tuple(int(k) for k in np.unravel_index(int(bad.reshape(-1).int().argmax()), tensor.shape))
    raise DataError(
        f"{count} of {tensor.numel()} entries are not finite ({nans} NaN, {count - nans} infinite); "
        f"the first is at {first}. Remove or fill them first"
    )


def power_of_two_scale(tensor: torch.Tensor) -> float:
    """A power of two that brings the data near 1, so that squares neither overflow nor vanish; usually 1."""
    return scale_for(_largest(tensor))


def scale_for(largest: float) -> float:
    """The same from the largest absolute value."""
    if largest == 0.0 or 1e-6 < largest < 1e6:
        return 1.0
    return float(2.0 ** math.floor(math.log2(largest)))


def choose_device(device: Any, tensor: torch.Tensor, gpu_from: int = GPU_ENTRIES) -> torch.device:
    """Where to compute: where the data is (None), where it is likely faster ("auto"), or as asked."""
    if device is None:
        return tensor.device
    if device == "auto":
        large = tensor.numel() >= gpu_from
        return torch.device("cuda") if large and torch.cuda.is_available() else tensor.device
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"device={device!r} is not known: use 'cpu', 'cuda' or 'auto'") from error
    if chosen.type not in ("cpu", "cuda"):
        raise OptionError(f"device={device!r} is not supported: use 'cpu', 'cuda' or 'auto'")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(
            f"device={device!r} was asked for, but no CUDA GPU is available; use 'cpu' or 'auto'"
        )
    return chosen


def free_memory(device: torch.device) -> float:
    """Bytes that can still be taken on a device."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return math.inf


def check_memory(needed: int, limit: float, what: str) -> None:
    """Refuse before anything is allocated."""
    if needed > limit:
        raise MemoryLimitError(
            f"{what} needs about {needed / 1e9:.2f} GB, but the limit is {limit / 1e9:.2f} GB. "
            "Use float32, a smaller tensor, or raise memory_limit if the machine has more"
        )
