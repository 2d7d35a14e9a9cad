"""One partition: a frame or a file of index columns and a value column, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..labels import Labels, distinct_labels, find_labels
from ..observations import Observations


@dataclass(frozen=True)
class Columns:
    """Names of the columns, and for every index column its labels, None where it holds positions."""

    index: tuple[str, ...]
    value: str
    weights: str | None = None
    held_out: str | None = None
    labels: tuple[Labels | None, ...] | None = None

    @property
    def all(self) -> list[str]:
        """Every column that is read."""
        return [c for c in (*self.index, self.value, self.weights, self.held_out) if c is not None]


@dataclass(frozen=True)
class Rows:
    """Entries of one partition, each position once, in order."""

    indices: Any
    values: Any
    weights: Any = None
    held_out: Any = None  # what the column of held-out entries says; None without one
    differ: int = 0  # positions that were listed with different values

    def __len__(self) -> int:
        return len(self.values)


def read_labels(piece: Any, columns: Columns, name: str) -> list[Labels | None] | None:
    """Read the distinct labels of every index column, as `distinct_labels`; None without any rows."""
    frame = _read_frame(piece, list(columns.index), name)
    if len(frame) == 0:
        return None
    try:
        return [distinct_labels(frame[c].to_numpy(), c) for c in columns.index]
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def read_partition(piece: Any, columns: Columns, shape: tuple[int, ...] | None, name: str) -> Rows:
    """Read entries from a parquet file, a pandas frame, or what dask computes one from.

    Errors name the partition.
    """
    frame = _read_frame(piece, columns.all, name)
    frame = frame[frame[columns.value].notna()]  # rows without a value are not observed
    nothing = Rows(np.empty((0, len(columns.index)), np.int64), np.empty(0), held_out=np.empty(0, bool))
    if len(frame) == 0:
        return nothing
    try:
        labels = columns.labels or (None,) * len(columns.index)
        indices = np.stack([_positions(frame[c], c, known) for c, known in zip(columns.index, labels)], 1)
        weights = None if columns.weights is None else _numbers(frame[columns.weights], columns.weights)
        entries = Observations(indices, _numbers(frame[columns.value], columns.value), shape, weights=weights)
        held_out = None if columns.held_out is None else _truths(frame[columns.held_out], columns.held_out)
        if entries.weights is not None and not bool((entries.weights > 0).any()):
            return nothing
        entries, differ = entries.merge()
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    where = entries.indices.numpy()
    if held_out is not None:  # a position listed several times is held out where one of its rows is
        marked = {tuple(row) for row in indices[held_out].tolist()}
        held_out = np.fromiter((tuple(row) in marked for row in where.tolist()), dtype=bool, count=len(where))
    merged = None if entries.weights is None else entries.weights.numpy()
    return Rows(where, entries.values.numpy(), merged, held_out, differ)


def _read_frame(piece: Any, columns: list[str], name: str) -> Any:
    if isinstance(piece, Path):
        import pandas

        try:
            return pandas.read_parquet(piece, columns=columns)
        except Exception as error:
            raise DataError(
                f"{name} cannot be read ({type(error).__name__}: {error}). Restore or rewrite it, then run "
                "again; a checkpoint resumes at the last step"
            ) from error
    if not hasattr(piece, "compute"):
        return piece
    try:
        return piece.compute(scheduler="synchronous")
    except Exception as error:
        raise DataError(f"{name} cannot be computed ({type(error).__name__}: {error})") from error


def _positions(column: Any, name: str, known: Labels | None) -> Any:
    if known is not None:
        return find_labels(name, known, column.to_numpy())
    missing = column.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"{int(missing.sum())} of {len(column)} rows have no value in the index column {name!r}; the "
            f"first is row {int(missing.argmax())}. Drop such rows"
        )
    array = _numbers(
        column, name, "whole numbers counted from 0, because a shape is given; without it, labels are taken"
    )
    whole = array.astype(np.int64) if array.dtype.kind in "iuf" else None
    if whole is None or (array.dtype.kind == "f" and not bool((whole == array).all())):
        raise DataError(f"the index column {name!r} has other values than whole numbers")
    return whole


def _numbers(column: Any, name: str, what: str = "numbers") -> Any:
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(column.dtype) and not column.isna().all():
        raise DataError(f"the column {name!r} holds {column.dtype}; it must hold {what}")
    array = column.to_numpy()
    if array.dtype.kind == "O":  # a nullable column with missing values
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return array


def _truths(column: Any, name: str) -> Any:
    array = column.to_numpy()
    if array.dtype != np.dtype(bool):
        raise DataError(f"the column {name!r} says what is held out; it must hold True and False")
    return array
