"""Observations in partitions: dask dataframes and parquet files of index columns and a value column."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...errors import DataError, OptionError, import_package
from .rows import Columns

Item = TypeVar("Item")


@dataclass(frozen=True)
class PartitionedObservations:
    """Listed entries of a tensor in partitions, each of which is read where the work on it is done.

    Created by `from_frame` or `from_parquet`.

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

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise OptionError(f"threads={self.threads} must be at least 1")

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
        """Read entries from a dask dataframe with one row each; its partitions stay as they are.

        Parameters
        ----------
        frame
            Index columns and a value column. Labels are taken as by `Observations.from_frame`, in a pass of
            their own over the index columns; rows without a value are not observed.
        value, index, weights
            Names of the value column (by default the last), of the index columns in the order of the modes
            (by default all others) and of a column of weights.
        shape
            Shape of the tensor, in which index columns hold positions, counted from 0; by default just large
            enough.
        client, threads
            Who works on the partitions.
        """
        if not _is_dask_frame(frame):
            raise DataError(f"a dask dataframe is needed, not {type(frame).__name__}")
        pieces = tuple(frame.to_delayed())
        names = tuple(f"partition {k} of the dask dataframe" for k in range(len(pieces)))
        columns = tuple(map(str, frame.columns))
        return cls(
            pieces, names, columns, value, _tuple(str, index), _tuple(int, shape), weights, client, threads
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
        """Read entries from parquet files, each of which is a partition.

        Parameters
        ----------
        path
            A file, a folder of them, or a pattern like ``a/*.parquet``.
        value, index, shape, weights, client, threads
            As for `from_frame`.
        """
        parquet = import_package("pyarrow.parquet", "parquet files need pandas and pyarrow", "dask")
        files = _find_files(path)
        names = tuple(f"the file {f}" for f in files)
        try:
            columns = tuple(parquet.read_schema(files[0]).names)
        except Exception as error:
            said = " ".join(str(error).split())
            raise DataError(f"{names[0]} cannot be read ({type(error).__name__}: {said})") from error
        columns = tuple(c for c in columns if not c.startswith("__index_level_"))
        return cls(
            files, names, columns, value, _tuple(str, index), _tuple(int, shape), weights, client, threads
        )

    def __len__(self) -> int:
        return len(self.pieces)

    def roles(self, weights: Any, validation: Any) -> Columns:
        """Assign the columns; those of weights and of what is held out may come from the user of a task."""
        for name, column in (("weights", weights), ("validation", validation)):
            if column is not None and not isinstance(column, str):
                raise OptionError(f"{name} of entries in partitions must be the name of a column")
        weights = self.weights if weights is None else weights
        special = (weights, validation)
        plain = [c for c in self.columns if c not in special]
        value = self.value or (plain[-1] if plain else "")
        index = tuple(c for c in plain if c != value) if self.index is None else self.index
        columns = Columns(index, value, weights, validation)
        missing = [c for c in columns.all if c not in self.columns]
        if missing or not index:
            raise DataError(
                f"the partitions have the columns {list(self.columns)}; {missing or 'index columns'} are "
                "missing"
            )
        if self.shape is not None and len(self.shape) != len(index):
            raise DataError(
                f"shape={self.shape} has {len(self.shape)} axes, but the index columns are {index}"
            )
        return columns


def is_partitioned(x: Any) -> bool:
    """Whether `x` lists entries in partitions."""
    if isinstance(x, str):  # any other text is a mistake of another kind
        return os.sep in x or x.endswith(".parquet") or Path(x).exists()
    return isinstance(x, PartitionedObservations | os.PathLike) or _is_dask_frame(x)


def as_partitions(x: Any) -> PartitionedObservations | None:
    """Convert partitions of any form; return None for anything else."""
    if isinstance(x, PartitionedObservations):
        return x
    if not is_partitioned(x):
        return None
    if isinstance(x, str | os.PathLike):
        return PartitionedObservations.from_parquet(x)
    return PartitionedObservations.from_frame(x)


def _is_dask_frame(x: Any) -> bool:
    """Whether it is a dask dataframe, by the name of its module, so that nothing is imported."""
    library = type(x).__module__.partition(".")[0]
    return library in ("dask", "dask_expr") and hasattr(x, "columns") and hasattr(x, "to_delayed")


def _find_files(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    text = os.fspath(path)
    if Path(text).is_dir():
        files = sorted(Path(text).rglob("*.parquet"), key=str)
    elif Path(text).is_file():
        files = [Path(text)]
    else:
        files = [Path(file) for file in sorted(glob.glob(text, recursive=True))]
    if not files:
        raise DataError(
            f"there is no parquet file at {text}; give a file, a folder or a pattern like a/*.parquet"
        )
    return tuple(files)


def _tuple(kind: Callable[[Any], Item], items: Sequence[Item] | None) -> tuple[Item, ...] | None:
    return None if items is None else tuple(map(kind, items))
