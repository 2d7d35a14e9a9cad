"""Tensorisation: arrays of few long axes as tensors of many short modes, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch

from ...errors import DataError, OptionError, check_choice
from ..arrays import as_floats
from .axes import ORDERS, Order, Padding, Tensorization
from .choice import DEFAULT_ERROR, choose, even, for_missing, train_size
from .digits import arrange, match

__all__ = [
    "DEFAULT_ERROR",
    "Order",
    "Tensorization",
    "detensorize",
    "even",
    "for_missing",
    "plan",
    "tensorize",
    "train_size",
]

Shape = Literal["auto"] | Sequence[int] | Sequence[Sequence[int]]


def tensorize(
    x: Any,
    shape: Shape | Tensorization = "auto",
    *,
    order: Order | None = None,
    padding: Padding = "edge",
    max_error: float = DEFAULT_ERROR,
    edges: object = "all",
) -> tuple[Any, Tensorization]:
    """Turn an array into a tensor of more modes.

    Parameters
    ----------
    x
        NumPy array or torch tensor; it is not modified. Masks and arrays with NaN are welcome.
    shape
        "auto"; the shape of the tensor, such as ``(4,) * 8``; the digits of every axis, such as
        ``((8, 8, 8), (8, 8, 8), (3,))``, the most significant first; or a `Tensorization` to repeat.
    order
        "C": axis after axis, significant digits first. "F": the least significant first, as a column-major
        reshape. "interleaved": scale after scale, one mode per axis. "grouped": the digits that all axes have
        at a scale share a mode, so that a mode is a block of the picture. By default "C" for a shape; "auto"
        takes "interleaved", or "grouped" where entries are missing (NaN), or leaves the array as it is.
    padding
        Axes that are too short are padded at their end with the last entry ("edge") or the mirrored ones
        ("reflect"). The padding of a mask is False, that of an array with NaN is NaN.
    max_error
        With "auto": the relative error at which the candidates are compared.
    edges
        With "auto": the edges that the network may have, as for `decompose`. Where these are not all,
        candidates are compared by trains.

    Returns
    -------
    tensor, tensorization
        The tensor, of the kind of `x`, and the way back for `detensorize`.

    Examples
    --------
    >>> x = np.arange(256.0 * 256).reshape(256, 256)
    >>> tensor, how = tensorize(x, (4,) * 8, order="F")
    >>> bool((tensor == x.reshape((4,) * 8, order="F")).all()), bool((detensorize(tensor, how) == x).all())
    (True, True)
    """
    array: Any = x if isinstance(x, torch.Tensor) else np.asarray(x)
    if array.ndim == 0:
        raise DataError("a single number was given; an array needs at least one axis")
    if 0 in array.shape:
        raise DataError(f"the array is empty: its shape is {tuple(array.shape)}")
    if isinstance(shape, Tensorization):
        how = shape
    elif isinstance(shape, str):
        how = _choose(array, shape, order, padding, max_error, edges)
    else:
        how = plan(tuple(array.shape), shape, order=order or "C", padding=padding)
    return how.apply(array), how


def detensorize(tensor: Any, how: Tensorization) -> Any:
    """Return the array of a tensor, or of a network: the inverse of `tensorize`.

    Parameters
    ----------
    tensor
        NumPy array or torch tensor of shape ``how.dims``, or anything with ``to_dense``.
    how
        What `tensorize` returned.
    """
    if not isinstance(tensor, (torch.Tensor, np.ndarray)):
        tensor = tensor.to_dense() if hasattr(tensor, "to_dense") else np.asarray(tensor)
    return how.invert(tensor)


def plan(
    sizes: Sequence[int],
    shape: Sequence[int] | Sequence[Sequence[int]],
    *,
    order: Order = "C",
    padding: Padding = "edge",
) -> Tensorization:
    """Return the tensorisation of an array of shape `sizes` into `shape`; no data is needed."""
    check_choice("order", order, ORDERS)
    sizes = tuple(sizes)
    if not isinstance(shape, Iterable):
        raise OptionError(f"shape={shape!r} is neither 'auto' nor a sequence of sizes")
    parts: list[Any] = list(shape)
    if any(isinstance(part, Sequence) for part in parts):
        digits = tuple(tuple(p) if isinstance(p, Sequence) else (p,) for p in parts)
        _check_sizes([d for axis in digits for d in axis], shape)
        if len(digits) != len(sizes):
            raise OptionError(f"digits are given for {len(digits)} axes, but the array has {len(sizes)}")
        _check_waste(math.prod(math.prod(axis) for axis in digits), sizes, shape)
        return Tensorization(sizes, digits, arrange(digits, order), order, padding)
    _check_sizes(parts, shape)
    _check_waste(math.prod(parts), sizes, shape)
    exact = match(parts, sizes, order)
    if exact is not None:
        return Tensorization(sizes, *exact, order, padding)
    if math.prod(parts) == math.prod(sizes) and order in ("C", "F"):
        flat: Literal["C", "F"] = "C" if order == "C" else "F"
        digits = (tuple(parts if order == "C" else parts[::-1]),)
        return Tensorization(sizes, digits, arrange(digits, order), order, padding, flattened=flat)
    raise OptionError(
        f"the shape {_times(parts)} cannot be laid over an array of shape {_times(sizes)} ({order}): "
        "sizes must multiply to each axis, or to slightly more. Give the digits of every axis, such as "
        "((8, 8), (8, 8), (3,)), or use 'auto'"
    )


def _choose(
    array: Any, shape: str, order: Order | None, padding: Padding, max_error: float, edges: object
) -> Tensorization:
    if shape != "auto":
        raise OptionError(f"shape={shape!r} is neither 'auto' nor a sequence of sizes")
    tensor = array if isinstance(array, torch.Tensor) else as_floats(array, "the array")
    inexact = tensor.is_floating_point() or tensor.is_complex()
    if inexact and bool(torch.isnan(tensor).any()):
        return for_missing(tuple(tensor.shape), order, padding)
    return choose(tensor, order, padding, max_error, edges)


def _check_sizes(sizes: Sequence[Any], shape: Any) -> None:
    if not sizes or not all(isinstance(d, Integral) and int(d) >= 1 for d in sizes):
        raise OptionError(f"shape={shape!r} must be whole numbers of at least 1")


def _check_waste(entries: int, sizes: tuple[int, ...], shape: Any) -> None:
    least = math.prod(sizes)
    if entries < least:
        raise OptionError(
            f"the shape {shape!r} has {entries:,} entries, but the array of shape {_times(sizes)} has "
            f"{least:,}; its sizes must multiply to at least that"
        )
    if entries > 2 * least:
        raise OptionError(
            f"the shape {shape!r} has {entries:,} entries, but the array of shape {_times(sizes)} has only "
            f"{least:,}: more than half would be padding. Give smaller sizes, or use 'auto'"
        )


def _times(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
