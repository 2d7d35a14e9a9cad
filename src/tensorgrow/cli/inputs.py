"""From the command line to tensors: files, tensorisations, known entries."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..data.array_files import LOSSY, TABLES, WRITABLE, Source, read_array, write_array
from ..data.axes import Axes
from ..data.tensorization import DEFAULT_ERROR, Tensorization, even, for_missing, plan, tensorize
from ..errors import DataError, FileFormatError, OptionError
from ..network import TensorNetwork
from ..plotting.picture import ValueRange, View
from ..report.comparison import Comparison, compare
from ..report.quality import relative_error
from ..results import Errors, Result
from ..steps import StopReason
from .options import DataOptions, KnownOptions
from .tables import Table, load_table

Array = npt.NDArray[Any]

# Names of the axes of a picture, unless the user gives others.
PICTURE_NAMES = ("row", "column", "colour")


@dataclass(frozen=True)
class Input:
    """An array: where it came from, how it becomes a tensor, its axes, which entries are known (None: all).

    Entries that are really unknown are NaN; those that ``--observed`` hides keep their values.
    """

    array: Array
    source: Source
    how: Tensorization
    axes: Axes | None = None
    known: npt.NDArray[np.bool_] | None = None

    @cached_property
    def tensor(self) -> Array:
        """The array as a tensor."""
        return self.how.apply(self.array)

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_] | None:
        """Which entries of the tensor are known (None: all); padding is not."""
        return None if self.known is None else self.how.apply(self.known)

    @property
    def truth(self) -> Array | None:
        """The tensor with the entries that ``--observed`` hides, to measure the error; None without any."""
        if self.known is None or not (~np.isnan(self.array) & ~self.known).any():
            return None
        return np.where(self.how.apply(np.ones(self.array.shape, bool)), self.tensor, np.nan)

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.how.dims

    writable = WRITABLE

    @property
    def num_known(self) -> int | None:
        """Entries that are known; None where all are."""
        return None if self.known is None else int(self.known.sum())

    def default_outputs(self, file: Path) -> list[Path]:
        """The network, and the completed array in the format of the input unless that format is lossy."""
        suffix = file.suffix.lower()
        if suffix not in WRITABLE:
            suffix = ".npy"
        elif suffix in LOSSY:
            suffix = ".png"
        return [Path(f"{file.stem}.safetensors"), Path(f"{file.stem}-completed{suffix}")]

    def measure(self, result: Result, keep_observed: bool) -> dict[str, float]:
        """Errors on the array without padding, where all of it is known; of a picture as it is written."""
        truth = self.array
        if not np.isfinite(truth).all():
            return {}
        errors = {"array_error": relative_error(np.asarray(result.to_array()), truth)}
        if self.source.is_picture:
            screen = ValueRange(0.0, 1.0)
            errors["psnr"] = screen.psnr(screen.to_unit(self.filled(result, keep_observed)), truth)
        return errors

    def compare(self, result: Result) -> Comparison | None:
        """What interpolation makes of the gaps; None where there are none or it does not apply."""
        if self.known is None:
            return None
        truth = None if self.truth is None else self.array
        view = View(self.array.shape) if self.source.is_picture else None
        return compare(result, np.where(self.known, self.array, np.nan), truth, view)

    def filled(self, result: Result, keep_observed: bool) -> Array:
        """The completed array, or what the network stands for."""
        array = np.asarray(result.to_array())
        return np.where(self.known, self.array, array) if self.known is not None and keep_observed else array

    def write(self, path: Path, result: Result, keep_observed: bool) -> None:
        """Write the completed array, or what the network stands for."""
        array = self.filled(result, keep_observed)
        write_array(path, array, levels=self.source.levels, axes=self.axes)

    @property
    def description(self) -> str:
        """One line about the data."""
        sizes = "x".join(map(str, self.array.shape))
        colour = " in colour" if self.array.ndim == 3 else " in grey"
        kind = f"picture{colour}" if self.source.is_picture else self.array.dtype.name
        key = f" [{self.source.key}]" if self.source.key else ""
        return f"{self.source.name}{key}, {sizes}, {kind}"


def load(options: DataOptions, max_error: float | None, edges: object = "all") -> Input:
    """Read an array of which all entries are known, for a network that may have these edges."""
    array, source, axes = _numbers(options)
    missing = int(np.isnan(array).sum())
    if missing:
        raise DataError(
            f"{missing:,} of {array.size:,} entries of {options.file} are NaN; all are needed here. "
            "Use `tensorgrow complete`, which takes NaN for missing"
        )
    return Input(array, source, _tensorization(array, source, options, max_error, edges), axes)


def load_known(
    options: KnownOptions,
    *,
    seed: int,
    max_error: float | None = None,
    all_known: bool = False,
    like: Tensorization | None = None,
) -> Input | Table:
    """Read an array or a table; known are entries that are not NaN, in the mask, drawn by ``--observed``.

    Parameters
    ----------
    all_known
        Take an array without missing entries, too.
    like
        How an array of this shape is cut where the user says nothing else.
    """
    path = options.file
    if path.suffix.lower() in TABLES:
        return load_table(options, seed)
    array, source, axes = _numbers(options)
    if options.mask is not None:  # values outside the mask are not the truth
        array = np.where(_mask(options.mask, array.shape), array, np.nan)
    known = ~np.isnan(array)
    if options.observed is not None:
        if not 0.0 < options.observed < 1.0:
            raise OptionError(f"--observed {options.observed:g} must lie between 0 and 1")
        known &= np.random.default_rng(seed).random(array.shape) < options.observed
    if known.all() and not all_known:
        raise OptionError(
            f"all {array.size:,} entries of {path} are known; give --mask FILE or --observed SHARE, "
            "mark missing entries with NaN, or use `tensorgrow decompose`"
        )
    if not known.any():
        raise DataError(f"none of the {array.size:,} entries of {path} is known; at least one is needed")
    some_missing = not known.all()
    if like is not None and like.shape == array.shape and options.tensorize is None and options.order is None:
        how = like
    else:  # for a format that is given, which has few edges
        how = _tensorization(array, source, options, max_error, "chain", some_missing)
    return Input(array, source, how, axes, known if some_missing else None)


def load_in_own_shape(
    options: KnownOptions, *, seed: int
) -> tuple[Input | Table, Tensorization | Literal["auto"] | None]:
    """Read an array or a table as it is, and the shape that it is to be completed in.

    "auto" where held-out entries are to choose; None where it stays as it is.
    """
    if options.file.suffix.lower() in TABLES:
        return load_known(options, seed=seed), None
    source = load_known(replace(options, tensorize="none", order=None), seed=seed)
    assert isinstance(source, Input)  # tables have been taken above
    if options.order is None and _is_auto(options, source.array, source.source):
        return source, "auto"
    how = _tensorization(source.array, source.source, options, None, "all", some_missing=True)
    return source, None if how == source.how else how


def load_result(path: Path, *, with_history: bool = False) -> Result:
    """Read a result; a bare network becomes a result without a history, or is refused `with_history`."""
    from .. import load as load_file  # who reads which kind of file is known where all is imported

    loaded = load_file(path)
    if isinstance(loaded, Result):
        return loaded
    if isinstance(loaded, TensorNetwork) and not with_history:
        return Result(loaded, Errors(float("nan")), (), StopReason.CONVERGED)
    needed = "the result of a run" if with_history else "a network or the result of a run"
    raise FileFormatError(f"{path} holds a {type(loaded).__name__}; {needed} is needed")


def _numbers(options: DataOptions) -> tuple[Array, Source, Axes | None]:
    path = options.file
    given, source = read_array(path, options.key)
    names = options.names if options.names or not source.is_picture else PICTURE_NAMES[: given.ndim]
    axes, array = Axes.of(given, given.ndim, names), np.asarray(given)
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
    return array, source, axes


def _mask(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    values, source = read_array(path)
    values = np.asarray(values)
    if values.dtype.kind not in "biuf" or np.isnan(values).any():
        content = "NaN" if values.dtype.kind == "f" else f"dtype {values.dtype}"
        raise DataError(f"the mask {path} has {content}; it must be 0 or 1 (black or white) everywhere")
    known = values > 0.5 if source.is_picture else values != 0
    if known.shape != shape and known.ndim < len(shape) and known.shape == shape[: known.ndim]:
        # A grey mask of a colour picture.
        return np.broadcast_to(known.reshape(known.shape + (1,) * (len(shape) - known.ndim)), shape)
    if known.shape != shape:
        raise DataError(f"the mask {path} has shape {known.shape}, the data {shape}; they must agree")
    return np.asarray(known)


def _is_auto(options: DataOptions, array: Array, source: Source) -> bool:
    """Whether the shape of the tensor is to be chosen: by default that of pictures, matrices and vectors."""
    shape = options.tensorize
    return shape == "auto" or (shape is None and (source.is_picture or array.ndim < 3))


def _tensorization(
    array: Array,
    source: Source,
    options: DataOptions,
    max_error: float | None,
    edges: object,
    some_missing: bool = False,
) -> Tensorization:
    shape = options.tensorize
    order = None if options.order is None else options.order.literal
    if _is_auto(options, array, source):
        if some_missing:
            return for_missing(array.shape, order)
        error = max_error or DEFAULT_ERROR
        return tensorize(array, "auto", order=order, max_error=error, edges=edges)[1]
    if shape is None or shape == "none":
        return even(array.shape, order or "C", None)
    return plan(array.shape, _parse_shape(shape), order=order or "C")


def _parse_shape(text: str) -> tuple[int, ...] | list[tuple[int, ...]]:
    if not re.fullmatch(r"\d+([x,]\d+)*", text.strip().lower()):
        raise OptionError(
            f"--tensorize {text!r} is not a shape; give sizes such as 4x4x4x4, digits of every axis such as "
            "8x8x8,8x8x8,3, auto or none"
        )
    axes = [tuple(int(d) for d in axis.split("x")) for axis in text.strip().lower().split(",")]
    return axes[0] if len(axes) == 1 else axes
