"""From the command line to tensors: files, tensorisations, edges, and which entries are known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..data.array_files import Source, read_array
from ..data.tensorization import DEFAULT_ERROR, Tensorization, even, for_missing, plan, tensorize
from ..errors import DataError, OptionError
from .options import ModeOrder

__all__ = ["Input", "load", "load_known", "parse_edges"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Input:
    """An array, where it came from, how it becomes a tensor, and which entries are known (None: all).

    Entries that nobody knows are NaN; those that were hidden to try things out have their values.
    """

    array: Array
    source: Source
    how: Tensorization
    known: npt.NDArray[np.bool_] | None = None

    @cached_property
    def tensor(self) -> Array:
        """The tensor."""
        return self.how.apply(self.array)

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Known entries of the tensor; padding is not."""
        return self.how.apply(np.ones(self.array.shape, bool) if self.known is None else self.known)

    @property
    def description(self) -> str:
        """One line about the data."""
        sizes = "x".join(map(str, self.array.shape))
        colour = " in colour" if self.array.ndim == 3 else " in grey"
        kind = f"picture{colour}" if self.source.is_picture else self.array.dtype.name
        key = f" [{self.source.key}]" if self.source.key else ""
        return f"{self.source.name}{key}, {sizes}, {kind}"


def load(
    path: Path, key: str | None, shape: str | None, order: ModeOrder | None, max_error: float | None
) -> Input:
    """An array of which everything is known."""
    array, source = _numbers(path, key)
    missing = int(np.isnan(array).sum())
    if missing:
        raise DataError(
            f"{missing:,} of {array.size:,} entries of {path} are NaN; all are needed here. "
            "Use `tensorgrow complete`, which takes NaN for missing"
        )
    return Input(array, source, _tensorization(array, source, shape, order, max_error))


def load_known(
    path: Path,
    key: str | None,
    shape: str | None,
    order: ModeOrder | None,
    *,
    mask: Path | None,
    observed: float | None,
    seed: int,
    max_error: float | None = None,
    all_known: bool = False,
) -> Input:
    """An array of which some entries are known: not NaN, in the mask, and drawn at random where asked.

    With `all_known` it may be known as a whole, too.
    """
    array, source = _numbers(path, key)
    if mask is not None:  # whatever the file has elsewhere is not the truth
        array = np.where(_mask(mask, array.shape), array, np.nan)
    known = ~np.isnan(array)
    if observed is not None:
        if not 0.0 < observed < 1.0:
            raise OptionError(f"--observed {observed:g} must lie between 0 and 1")
        known &= np.random.default_rng(seed).random(array.shape) < observed
    if known.all() and all_known:
        return Input(array, source, _tensorization(array, source, shape, order, max_error))
    if known.all():
        raise OptionError(
            f"all {array.size:,} entries of {path} are known; give --mask FILE or --observed SHARE, "
            "mark missing entries with NaN, or use `tensorgrow decompose`"
        )
    if not known.any():
        raise DataError(f"none of the {array.size:,} entries of {path} is known; at least one is needed")
    if _is_default_auto(source, array, shape):
        how = for_missing(array.shape, None if order is None else order.literal)
    else:
        how = _tensorization(array, source, shape, order, None)
    return Input(array, source, how, known)


def _numbers(path: Path, key: str | None) -> tuple[Array, Source]:
    array, source = read_array(path, key)
    if array.dtype.kind not in "biufc":
        raise DataError(f"{path} has dtype {array.dtype}; numbers are needed")
    if array.ndim == 0 or array.size == 0:
        raise DataError(f"{path} has shape {array.shape}; an array with entries is needed")
    if array.dtype.kind in "bui" or array.dtype.itemsize < 4:
        array = array.astype(np.float64)
    if np.isinf(array).any():
        raise DataError(
            f"{int(np.isinf(array).sum()):,} of {array.size:,} entries of {path} are infinite; "
            "finite numbers are needed, or NaN where `tensorgrow complete` is to find them"
        )
    return array, source


def _mask(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    values, source = read_array(path)
    if values.dtype.kind not in "biuf" or np.isnan(values).any():
        given = "NaN" if values.dtype.kind == "f" else f"dtype {values.dtype}"
        raise DataError(f"the mask {path} has {given}; it must be 0 or 1 (black or white) everywhere")
    known = values > 0.5 if source.is_picture else values != 0
    if known.shape != shape and known.ndim < len(shape) and known.shape == shape[: known.ndim]:
        known = known.reshape(
            known.shape + (1,) * (len(shape) - known.ndim)
        )  # a grey mask of a colour picture
        return np.broadcast_to(known, shape)
    if known.shape != shape:
        raise DataError(f"the mask {path} has shape {known.shape}, the data {shape}; they must agree")
    return np.asarray(known)


def _is_default_auto(source: Source, array: Array, shape: str | None) -> bool:
    return shape == "auto" or (shape is None and (source.is_picture or array.ndim < 3))


def _tensorization(
    array: Array, source: Source, shape: str | None, order: ModeOrder | None, max_error: float | None
) -> Tensorization:
    name = None if order is None else order.literal
    if _is_default_auto(source, array, shape):
        return tensorize(array, "auto", order=name, max_error=max_error or DEFAULT_ERROR)[1]
    if shape is None or shape == "none":
        return even(array.shape, name or "C", None)
    return plan(array.shape, _parse_shape(shape), order=name or "C")


def _parse_shape(text: str) -> Any:
    if not re.fullmatch(r"\d+([x,]\d+)*", text.strip().lower()):
        raise OptionError(
            f"--tensorize {text!r} is not a shape; give sizes such as 4x4x4x4, digits of every axis such as "
            "8x8x8,8x8x8,3, auto or none"
        )
    axes = [tuple(int(d) for d in axis.split("x")) for axis in text.strip().lower().split(",")]
    return axes[0] if len(axes) == 1 else axes


def parse_edges(text: str) -> Any:
    """A name of a set of edges, or the pairs themselves."""
    if text in ("all", "chain", "ring"):
        return text
    if not re.fullmatch(r"\d+-\d+(,\d+-\d+)*", text):
        raise OptionError(
            f"--edges {text!r} is not known; give all, chain, ring, or pairs such as 0-1,1-2,0-3"
        )
    return [tuple(int(k) for k in pair.split("-")) for pair in text.split(",")]
