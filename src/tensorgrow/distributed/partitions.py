"""Observations in partitions: dask dataframes and parquet files of index columns and a value column."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, MissingPackageError, OptionError
from ..observations import Observations

__all__ = [
    "Columns",
    "Listed",
    "PartitionedObservations",
    "as_partitions",
    "is_partitioned",
    "loader",
    "read_partition",
]


@dataclass(frozen=True)
class Columns:
    """Which column is what."""

    index: tuple[str, ...]
    value: str
    weights: str | None = None
    held_out: str | None = None

    @property
    def all(self) -> list[str]:
        """Every column that is read."""
        return [c for c in (*self.index, self.value, self.weights, self.held_out) if c is not None]


@dataclass(frozen=True)
class PartitionedObservations:
    """Listed entries of a tensor in partitions, which are read where they are computed with.

    Made by `from_frame` or `from_parquet`.

    Attributes
    ----------
    names
        What partitions are called in messages.
    columns
        Names of all columns.
    client
        A ``dask.distributed.Client``; by default the active one. Without any, threads of this process.
    threads
        Threads without a client; by default one per core.
    """

    pieces: tuple[Any, ...]
    names: tuple[str, ...]
    columns: tuple[str, ...]
    value: str | None = None
    index: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None
    weights: str | None = None
    client: Any = None
    threads: int | None = None

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        value: str | None = None,
        index: Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        weights: str | None = None,
        client: Any = None,
        threads: int | None = None,
    ) -> PartitionedObservations:
        """Entries from a dask dataframe with one row each; its partitions are kept.

        Parameters
        ----------
        frame
            Index columns of whole numbers counted from 0, and a value column.
        value, index, weights
            Names of the value column (by default the last), of the index columns in the order of the modes
            (by default all others) and of a column of weights.
        shape
            Shape of the tensor; by default just large enough.
        client, threads
            Who works on the partitions.
        """
        if not _is_dask_frame(frame):
            raise DataError(f"a dask dataframe is needed, not {type(frame).__name__}")
        pieces = tuple(frame.to_delayed())
        names = tuple(f"partition {k} of the dask dataframe" for k in range(len(pieces)))
        return cls(pieces, names, tuple(map(str, frame.columns)))._with(
            value, index, shape, weights, client, threads
        )

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str],
        *,
        value: str | None = None,
        index: Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        weights: str | None = None,
        client: Any = None,
        threads: int | None = None,
    ) -> PartitionedObservations:
        """Entries from parquet files, each of which is a partition.

        Parameters
        ----------
        path
            A file, a folder of them, or a pattern like ``a/*.parquet``.
        value, index, shape, weights, client, threads
            As for `from_frame`.
        """
        try:
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise MissingPackageError(
                "parquet files need pandas and pyarrow; install tensorgrow[dask]"
            ) from error
        files = _files(path)
        names = tuple(f"the file {f}" for f in files)
        try:
            columns = tuple(parquet.read_schema(files[0]).names)
        except Exception as error:
            raise DataError(f"{names[0]} cannot be read ({type(error).__name__}: {error})") from error
        columns = tuple(c for c in columns if not c.startswith("__index_level_"))
        return cls(tuple(map(ParquetFile, files)), names, columns)._with(
            value, index, shape, weights, client, threads
        )

    def _with(
        self, value: Any, index: Any, shape: Any, weights: Any, client: Any, threads: Any
    ) -> PartitionedObservations:
        if threads is not None and threads < 1:
            raise OptionError(f"threads={threads} must be at least 1")
        return replace(
            self,
            value=value,
            index=None if index is None else tuple(index),
            shape=None if shape is None else tuple(int(d) for d in shape),
            weights=weights,
            client=client,
            threads=threads,
        )

    def __len__(self) -> int:
        return len(self.pieces)

    def roles(self, weights: Any, validation: Any) -> Columns:
        """Which column is what, once it is known which say what to hold out and what counts how much."""
        for name, given in (("weights", weights), ("validation", validation)):
            if given is not None and not isinstance(given, str):
                raise OptionError(f"{name} of entries in partitions must be the name of a column")
        weights = self.weights if weights is None else weights
        special = (weights, validation)
        plain = [c for c in self.columns if c not in special]
        value = self.value or (plain[-1] if plain else "")
        index = tuple(c for c in plain if c != value) if self.index is None else self.index
        found = Columns(index, value, weights, validation)
        missing = [c for c in found.all if c not in self.columns]
        if missing or not index:
            raise DataError(
                f"the partitions have the columns {list(self.columns)}; {missing or 'index columns'} are "
                "missing"
            )
        if self.shape is not None and len(self.shape) != len(index):
            raise DataError(
                f"shape={self.shape} has {len(self.shape)} axes, but the index columns are {index}"
            )
        return found


@dataclass(frozen=True)
class ParquetFile:
    """A file of one partition."""

    path: str

    def read(self, columns: list[str]) -> Any:
        """A pandas frame."""
        import pandas

        return pandas.read_parquet(self.path, columns=columns)


def is_partitioned(x: Any) -> bool:
    """Whether `x` lists entries in partitions."""
    return isinstance(x, PartitionedObservations | str | os.PathLike) or _is_dask_frame(x)


def as_partitions(x: Any) -> PartitionedObservations | None:
    """Partitions from whatever form they come in; None for anything else."""
    if isinstance(x, PartitionedObservations):
        return x
    if _is_dask_frame(x):
        return PartitionedObservations.from_frame(x)
    if isinstance(x, str | os.PathLike):
        return PartitionedObservations.from_parquet(x)
    return None


def _is_dask_frame(x: Any) -> bool:
    """Told by the module, so that nothing is imported for it."""
    library = type(x).__module__.partition(".")[0]
    return library in ("dask", "dask_expr") and hasattr(x, "columns") and hasattr(x, "to_delayed")


def _files(path: str | os.PathLike[str]) -> list[str]:
    text = os.fspath(path)
    if Path(text).is_dir():
        found = sorted(str(p) for p in Path(text).rglob("*.parquet"))
    elif Path(text).is_file():
        found = [text]
    else:
        found = sorted(glob.glob(text, recursive=True))
    if not found:
        raise DataError(
            f"there is no parquet file at {text}; give a file, a folder or a pattern like a/*.parquet"
        )
    return found


# -- one partition -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listed:
    """Entries of one partition, each position once, in order.

    Attributes
    ----------
    held_out
        What the column of held-out entries says; None without one.
    differ
        Positions that were listed with different values.
    """

    indices: Any
    values: Any
    weights: Any = None
    held_out: Any = None
    differ: int = 0

    def __len__(self) -> int:
        return len(self.values)


def loader(piece: Any, columns: Columns, shape: tuple[int, ...] | None, name: str) -> Callable[[], Listed]:
    """What reads a partition in this process."""
    return partial(_load_here, piece, columns, shape, name)


def _load_here(piece: Any, columns: Columns, shape: tuple[int, ...] | None, name: str) -> Listed:
    if isinstance(piece, ParquetFile):
        return read_partition(piece, columns, shape, name)
    try:
        frame = piece.compute(scheduler="synchronous")
    except Exception as error:
        raise DataError(f"{name} cannot be computed ({type(error).__name__}: {error})") from error
    return read_partition(frame, columns, shape, name)


def read_partition(frame: Any, columns: Columns, shape: tuple[int, ...] | None, name: str) -> Listed:
    """Entries of a pandas frame, or of a file; errors name the partition."""
    if isinstance(frame, ParquetFile):
        try:
            frame = frame.read(columns.all)
        except Exception as error:
            raise DataError(
                f"{name} cannot be read ({type(error).__name__}: {error}). Restore or rewrite it, then run "
                "again; a checkpoint goes on from the last step"
            ) from error
    count, order = len(frame), len(columns.index)
    if count == 0:
        return Listed(np.empty((0, order), dtype=np.int64), np.empty(0))
    try:
        indices = np.stack([_positions(frame[c], c) for c in columns.index], 1)
        weights = None if columns.weights is None else _numbers(frame[columns.weights], columns.weights)
        given = Observations(indices, _numbers(frame[columns.value], columns.value), shape, weights=weights)
        held_out = None if columns.held_out is None else _truths(frame[columns.held_out], columns.held_out)
        if given.weights is not None and not bool((given.weights > 0).any()):
            return Listed(np.empty((0, order), dtype=np.int64), np.empty(0))
        found, differ = given.merged_quietly()
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    kept = None if found.weights is None else found.weights.numpy()
    where = found.indices.numpy()
    if held_out is not None:
        chosen = {tuple(row) for row in indices[held_out].tolist()}
        held_out = np.fromiter((tuple(row) in chosen for row in where.tolist()), dtype=bool, count=len(where))
    return Listed(where, found.values.numpy(), kept, held_out, differ)


def _positions(column: Any, name: str) -> Any:
    """Positions along one mode."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"{int(missing.sum())} of {len(column)} rows have no value in the index column {name!r}; the "
            f"first is row {int(missing.argmax())}. Drop such rows"
        )
    array = _numbers(
        column, name, "whole numbers counted from 0: number names first, the same in all partitions"
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
