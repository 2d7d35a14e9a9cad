"""How an array becomes a tensor of higher order: axes cut into digits, digits arranged into modes.

An index of an axis of size 256 is four digits in base 4. Each digit can be a mode of its own, or digits of
several axes at the same scale can share a mode. A `Tensorization` says which digits there are and where they
go; it is plain data, saved in the file of a network, and leads from the network back to the array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from ...errors import DataError, FileFormatError, OptionError, check_choice

# Version 2 knows cyclic shifts; what has none is written as version 1, which earlier versions read.
FORMAT_VERSION = 2

Order = Literal["C", "F", "interleaved", "grouped"]
Padding = Literal["edge", "reflect"]
ORDERS: tuple[str, ...] = ("C", "F", "interleaved", "grouped")
PADDINGS: tuple[str, ...] = ("edge", "reflect")
# An axis and the place of a digit in it; place 0 is the most significant.
Digit = tuple[int, int]

A = TypeVar("A", np.ndarray[Any, Any], torch.Tensor)


@dataclass(frozen=True)
class Tensorization:
    """The way from an array to a tensor and back.

    Attributes
    ----------
    shape
        Shape of the array.
    digits
        For every axis the sizes of its digits, the most significant first. Where their product exceeds the
        axis, it is padded at its end.
    modes
        For every mode of the tensor the digits it holds, the slowest first.
    order
        Name of the arrangement: "C", "F", "interleaved" or "grouped".
    padding
        What padding repeats: the last entry ("edge") or the entries before it ("reflect").
    flattened
        The array is flattened in this order first, and `digits` are those of the one axis that gives.
    shift
        By how much the array is moved cyclically along every axis first, so that the borders of the digits
        lie elsewhere; empty for none.
    """

    shape: tuple[int, ...]
    digits: tuple[tuple[int, ...], ...]
    modes: tuple[tuple[Digit, ...], ...]
    order: Order
    padding: Padding = "edge"
    flattened: Literal["C", "F"] | None = None
    shift: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        check_choice("padding", self.padding, PADDINGS)
        if len(self.digits) != len(self._axes) or any(m < n for m, n in zip(self.padded_shape, self._axes)):
            raise OptionError(f"digits {self.digits} do not hold an array of shape {self._axes}")
        if self.shift and len(self.shift) != len(self.shape):
            raise OptionError(f"shift={self.shift} needs one number for each axis of {self.shape}")
        placed = sorted(digit for mode in self.modes for digit in mode)
        if placed != [(a, k) for a, sizes in enumerate(self.digits) for k in range(len(sizes))]:
            raise OptionError(f"the modes {self.modes} do not hold every digit of {self.digits} once")

    # -- sizes -----------------------------------------------------------------------------------------

    @property
    def _axes(self) -> tuple[int, ...]:
        return self.shape if self.flattened is None else (math.prod(self.shape),)

    @cached_property
    def padded_shape(self) -> tuple[int, ...]:
        """Shape of the array after padding."""
        return tuple(math.prod(sizes) for sizes in self.digits)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(math.prod(self.digits[a][k] for a, k in mode) for mode in self.modes)

    @property
    def pads(self) -> bool:
        """Whether the tensor has entries that the array does not have."""
        return self.padded_shape != self._axes

    @property
    def cut_axes(self) -> tuple[int, ...]:
        """Axes of the array that are cut into digits; all where it is flattened first."""
        is_flat = self.flattened is not None
        return tuple(a for a in range(len(self.shape)) if is_flat or len(self.digits[a]) > 1)

    # -- there and back --------------------------------------------------------------------------------

    def apply(self, x: A) -> A:
        """Return the tensor of an array.

        Padding repeats entries; in a mask (an array of bools) it is False, and in an array with NaN it is
        NaN: where entries are missing, the padding is missing as well.
        """
        if tuple(x.shape) != self.shape:
            raise DataError(f"the array has shape {tuple(x.shape)}, the tensorisation is for {self.shape}")
        x = _roll(x, self.shift)
        padded = self._pad(x if self.flattened is None else _flatten(x, self.flattened))
        split = padded.reshape([size for sizes in self.digits for size in sizes])
        return _contiguous(_permute(split, self._permutation).reshape(self.dims))

    def invert(self, tensor: A) -> A:
        """Return the array of a tensor; padding is cut off."""
        if tuple(tensor.shape) != self.dims:
            raise DataError(
                f"the tensor has shape {tuple(tensor.shape)}, the tensorisation gives {self.dims}"
            )
        there = self._permutation
        flat_sizes = [size for sizes in self.digits for size in sizes]
        split = tensor.reshape([flat_sizes[k] for k in there])
        back = sorted(range(len(there)), key=there.__getitem__)
        padded = _permute(split, back).reshape(self.padded_shape)
        array = padded[tuple(slice(n) for n in self._axes)]
        array = array if self.flattened is None else _unflatten(array, self.shape, self.flattened)
        return _contiguous(_roll(array, tuple(-n for n in self.shift)))

    def positions(self, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return positions in the tensor, ``(n, modes)``, of positions in the array, ``(n, axes)``."""
        outside = (where < 0) | (where >= self.shape)
        if outside.any():
            first = tuple(int(k) for k in where[int(outside.any(1).argmax())])
            raise DataError(f"the position {first} lies outside an array of shape {self.shape}")
        if self.shift:
            where = (where + np.asarray(self.shift)) % self.shape
        if self.flattened is not None:
            where = np.ravel_multi_index(tuple(where.T), self.shape, order=self.flattened)[:, None]
        digits = [np.stack(np.unravel_index(where[:, a], sizes), 1) for a, sizes in enumerate(self.digits)]
        columns = []
        for mode in self.modes:
            place = np.zeros(len(where), np.int64)
            for a, k in mode:
                place = place * self.digits[a][k] + digits[a][:, k]
            columns.append(place)
        return np.stack(columns, 1)

    def leg(self, axis: int) -> int | None:
        """Return the mode that is one axis of the array as it is; None where that is cut, or not alone."""
        if self.flattened is not None or ((axis, 0),) not in self.modes or len(self.digits[axis]) > 1:
            return None
        return self.modes.index(((axis, 0),))

    def resized(self, axis: int, size: int) -> Tensorization:
        """Return the same for arrays of another size along one axis.

        That is possible along an axis that is a mode as it is, and within the padding of one that is cut.
        """
        shape = tuple(size if a == axis else n for a, n in enumerate(self.shape))
        if self.leg(axis) is not None:
            digits = tuple((size,) if a == axis else sizes for a, sizes in enumerate(self.digits))
            return replace(self, shape=shape, digits=digits)
        fits = self.flattened is None and self.shape[axis] <= size <= self.padded_shape[axis]
        if not fits or (self.shift and self.shift[axis]):
            raise DataError(
                f"axis {axis}, of {self.shape[axis]} slices, is cut into digits or shifted ({self}): it "
                f"cannot have {size}. Complete the new array, or leave that axis whole from the start"
            )
        return replace(self, shape=shape)

    @cached_property
    def _permutation(self) -> list[int]:
        first = np.cumsum([0, *(len(sizes) for sizes in self.digits)])
        return [int(first[a]) + k for mode in self.modes for a, k in mode]

    def _pad(self, x: A) -> A:
        if not self.pads:
            return x
        for axis, (n, m) in enumerate(zip(self._axes, self.padded_shape)):
            x = x[(slice(None),) * axis + (_padded_index(n, m, self.padding),)]
        blank = _blank(x)
        if blank is None:
            return x
        for axis, (n, m) in enumerate(zip(self._axes, self.padded_shape)):
            if n < m:
                x[(slice(None),) * axis + (slice(n, None),)] = blank
        return x

    # -- plain data ------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form; `from_dict` is its inverse."""
        return {
            "version": FORMAT_VERSION if self.shift else 1,
            "shape": list(self.shape),
            "digits": [list(sizes) for sizes in self.digits],
            "modes": [[list(digit) for digit in mode] for mode in self.modes],
            "order": self.order,
            "padding": self.padding,
            "flattened": self.flattened,
            **({"shift": list(self.shift)} if self.shift else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tensorization:
        """Rebuild a tensorisation written by `to_dict`."""
        try:
            if data["version"] > FORMAT_VERSION:
                raise FileFormatError(
                    f"the tensorisation has version {data['version']}; this library reads up to version "
                    f"{FORMAT_VERSION}. Upgrade tensorgrow to read it"
                )
            return cls(
                tuple(int(n) for n in data["shape"]),
                tuple(tuple(int(d) for d in sizes) for sizes in data["digits"]),
                tuple(tuple((int(a), int(k)) for a, k in mode) for mode in data["modes"]),
                data["order"],
                data["padding"],
                data["flattened"],
                tuple(int(n) for n in data.get("shift", ())),
            )
        except FileFormatError:
            raise
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FileFormatError(f"not a tensorisation: {error!r}") from error

    def __str__(self) -> str:
        array, tensor = ("x".join(map(str, sizes)) for sizes in (self.shape, self.dims))
        padded = f", padded to {'x'.join(map(str, self.padded_shape))}" if self.pads else ""
        moved = f", moved by {'x'.join(map(str, self.shift))}" if any(self.shift) else ""
        return f"{array} as {tensor} ({self.order}{padded}{moved})"


# -- NumPy and torch alike ---------------------------------------------------------------------------------


def _permute(x: A, axes: list[int]) -> A:
    return x.permute(axes) if isinstance(x, torch.Tensor) else x.transpose(axes)


def _contiguous(x: A) -> A:
    return x.contiguous() if isinstance(x, torch.Tensor) else np.ascontiguousarray(x)


def _roll(x: A, shift: tuple[int, ...]) -> A:
    if not any(shift):
        return x
    axes = tuple(range(len(shift)))
    return torch.roll(x, shift, axes) if isinstance(x, torch.Tensor) else np.roll(x, shift, axes)


def _flatten(x: A, order: str) -> A:
    return x.reshape(-1) if order == "C" else _permute(x, list(range(x.ndim))[::-1]).reshape(-1)


def _unflatten(x: A, shape: tuple[int, ...], order: str) -> A:
    if order == "C":
        return x.reshape(shape)
    return _permute(x.reshape(shape[::-1]), list(range(len(shape)))[::-1])


def _padded_index(n: int, m: int, padding: str) -> np.ndarray[Any, Any]:
    index = np.arange(m)
    if padding == "edge" or n == 1:
        return np.minimum(index, n - 1)
    index %= 2 * (n - 1)
    return np.minimum(index, 2 * (n - 1) - index)


def _blank(x: A) -> float | bool | None:
    """Return what padding is: False in masks, NaN where entries are missing, None for repeated entries."""
    if str(x.dtype) in ("bool", "torch.bool"):
        return False
    return math.nan if bool((x != x).any()) else None  # only NaN differs from itself
