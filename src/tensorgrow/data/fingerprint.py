"""Fingerprints: what identifies data, so that a checkpoint of other data is refused.

The same data has the same fingerprint, on every device and with any number of threads; data that differs in
one entry almost surely has another. Each takes one pass of whole-number arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

# Codes are computed in runs of this many: on the CPU so that they stay in its cache, on a GPU so that it is
# worth starting a kernel.
RUNS = {"cpu": 1 << 16, "cuda": 1 << 24}


def fingerprint_tensor(x: torch.Tensor) -> str:
    """Fingerprint of the numbers of a tensor and their places."""
    return format_codes(x.shape, sum_codes(x))


def format_codes(shape: Sequence[int], codes: int) -> str:
    """Write the fingerprint of a tensor of which `codes` is the sum of `sum_codes` over its blocks."""
    return f"{'x'.join(map(str, shape))}:{codes % 2**64:016x}"


def sum_codes(
    x: torch.Tensor, box: Sequence[tuple[int, int]] | None = None, shape: Sequence[int] = ()
) -> int:
    """Sum of the codes of all numbers of a tensor, or of its block at `box` of a tensor of this shape.

    The codes know where in the whole tensor a number is: their sum does not depend on how it is cut.
    """
    flat = x.detach().resolve_conj().resolve_neg().reshape(-1)
    words = (torch.view_as_real(flat) if flat.is_complex() else flat).reshape(-1)
    if words.is_floating_point():
        words = words.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[words.element_size()])
    places = None if box is None else _places(box, shape, flat.is_complex(), x.device)
    total, run = 0, RUNS.get(x.device.type, 1 << 16)
    count = torch.arange(min(run, len(words)), device=words.device)
    for start in range(0, len(words), run):
        codes = words[start : start + run].to(torch.int64, copy=True)
        # Sums of whole numbers that wrap around do not depend on their order.
        codes ^= count[: len(codes)] + start if places is None else places[start : start + run]
        codes *= 0x5851F42D4C957F2D
        codes ^= codes >> 29
        codes *= 0x14057B7EF767814F
        codes ^= codes >> 32
        total += int(codes.sum())
    return total


def _places(
    box: Sequence[tuple[int, int]], shape: Sequence[int], is_complex: bool, device: torch.device
) -> torch.Tensor:
    """Where the words of a block are among those of the whole tensor, which is stored row by row."""
    places = torch.zeros((), dtype=torch.int64, device=device)
    for (start, stop), size in zip(box, shape):
        places = places[..., None] * size + torch.arange(start, stop, device=device)
    places = places.reshape(-1)
    return (2 * places[:, None] + torch.arange(2, device=device)).reshape(-1) if is_complex else places


def fingerprint_tensors(tensors: Iterable[torch.Tensor | None]) -> str:
    """Fingerprint of several tensors in their order, for example the parameters of a model."""
    parts = ["-" if x is None else fingerprint_tensor(x) for x in tensors]
    return hashlib.sha256(";".join(parts).encode()).hexdigest()[:16]


def fingerprint_positions(indices: Any) -> int:
    """Fingerprint of listed positions, ``(n, order)``, whatever their order.

    The fingerprint of two lists together is the sum of theirs modulo 2^64.
    """
    array = indices.cpu().numpy() if isinstance(indices, torch.Tensor) else indices
    return int(position_codes(array, 1).sum(dtype=np.uint64))


def fingerprint_entries(indices: Any, *numbers: Any) -> int:
    """Fingerprint of listed entries, positions ``(n, order)`` and real or complex numbers, in any order.

    As with `fingerprint_positions`, those of two lists add up.
    """
    n = len(indices)
    words = [np.ascontiguousarray(v).astype(np.complex128).view(np.int64).reshape(n, -1) for v in numbers]
    return fingerprint_positions(np.concatenate([indices, *words], axis=1))


def position_codes(indices: Any, seed: int) -> Any:
    """Hash every row of an array of positions into 64 bits (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        code = np.full(len(indices), seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        for column in indices.T:
            code += column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            code ^= code >> np.uint64(31)
    return code


def fingerprint_function(function: Any) -> str:
    """Fingerprint of a function: its code, and the numbers, text, tensors and functions that it refers to.

    Nothing is run. Lists, dictionaries and objects of other classes, which may change from call to call,
    count by their class only.
    """
    return hashlib.sha256("\0".join(_traits(function, set())).encode()).hexdigest()[:16]


def _traits(value: Any, seen: set[int]) -> Iterator[str]:
    """Describe a value piece by piece; what was seen before is not looked at again."""
    yield type(value).__qualname__
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        yield repr(value)
    elif isinstance(value, torch.Tensor):
        yield fingerprint_tensor(value)
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        yield hashlib.sha256(repr((value.dtype, value.shape)).encode() + value.tobytes()).hexdigest()
    elif id(value) in seen:
        return
    else:
        seen.add(id(value))
        for part in _parts(value):
            yield from _traits(part, seen)


def _parts(value: Any) -> Iterable[Any]:
    """Return what a value is made of, as far as that does not change."""
    if isinstance(value, tuple | frozenset):
        return value if isinstance(value, tuple) else sorted(map(repr, value))
    if isinstance(value, CodeType):
        return (value.co_code, value.co_names, value.co_consts)
    if isinstance(value, partial):
        return (value.func, value.args, *(part for item in sorted(value.keywords.items()) for part in item))
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, FunctionType):
        cells = [c.cell_contents for c in value.__closure__ or () if c != CellType()]
        names = [n for n in value.__code__.co_names if n in value.__globals__]
        known = [_named(value.__globals__[n], value.__module__) for n in names]
        return (value.__code__, value.__defaults__, *cells, *known)
    if isinstance(value, torch.nn.Module):
        return tuple(value.state_dict().values())
    if isinstance(value, ModuleType | type | BuiltinFunctionType):
        return (value.__name__,)
    if callable(value):  # an object with a loss of its own
        own = [v for _, v in sorted(vars(value).items())] if hasattr(value, "__dict__") else []
        return (getattr(type(value).__call__, "__code__", None), *own)
    return ()


def _named(value: Any, module: str | None) -> Any:
    """Return a function of another module by its name: its code is that of a library."""
    is_foreign = isinstance(value, FunctionType) and value.__module__ != module
    return f"{value.__module__}.{value.__qualname__}" if is_foreign else value
