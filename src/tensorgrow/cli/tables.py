"""Tables on the command line: entries listed by their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.array_files import TABLES, WRITABLE, Source, write_array
from ..data.axes import Axes, check_names
from ..data.observations import Observations
from ..data.table_files import read_table, write_table
from ..errors import DataError, MemoryLimitError, OptionError
from ..results import Result
from .options import KnownOptions

# Rows that a completed table may have: a CSV file of about 300 MB.
MOST_ROWS = 10_000_000


@dataclass(frozen=True)
class Table:
    """A frame of entries, which of them are known, and those that ``--observed`` hides.

    Attributes
    ----------
    frame
        All rows; `value` is the name of the value column.
    tensor
        The known entries.
    truth
        All entries with a value, where some of them were hidden.
    """

    frame: Any
    value: str
    tensor: Observations
    source: Source
    truth: Observations | None = None

    how: None = None
    mask: None = None
    writable = (*WRITABLE, *TABLES)

    @property
    def axes(self) -> Axes:
        axes = self.tensor.axes
        assert axes is not None  # a table names its columns
        return axes

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.tensor.shape

    @property
    def num_known(self) -> int:
        """Rows that are known."""
        return len(self.tensor)

    @property
    def description(self) -> str:
        """One line about the data."""
        sizes = "x".join(map(str, self.dims))
        return f"{self.source.name}, {len(self.frame):,} rows, {sizes} ({', '.join(self.axes.names)})"

    @property
    def num_written(self) -> int:
        """Rows of the completed table."""
        return len(self.frame) if self.has_gaps else math.prod(self.dims)

    @property
    def has_gaps(self) -> bool:
        """Whether rows lack a value: these are then what is asked for."""
        return bool(self.frame[self.value].isna().any())

    def default_outputs(self, file: Path) -> list[Path]:
        """The network, and the completed table unless that would be too long."""
        table = Path(f"{file.stem}-completed{file.suffix.lower()}")
        return [Path(f"{file.stem}.safetensors"), *([table] if self.num_written <= MOST_ROWS else [])]

    def check_length(self, outputs: Sequence[Path]) -> None:
        """Refuse a table that nobody could open, before the search."""
        asked = [p for p in outputs if p.suffix.lower() in TABLES]
        if asked and self.num_written > MOST_ROWS:
            raise MemoryLimitError(
                f"{asked[0]} would have {self.num_written:,} rows, one for each combination of labels; at "
                f"most {MOST_ROWS:,} are written. List those to predict in {self.source.name}, without values"
            )

    def measure(self, result: Result, keep_observed: bool) -> dict[str, float]:
        """Tables have no error but those of the result."""
        return {}

    def compare(self, result: Result) -> None:
        """Labels have no neighbours to interpolate between."""

    def write(self, path: Path, result: Result, keep_observed: bool) -> None:
        """Write the completed table, or the array of all entries."""
        if path.suffix.lower() in TABLES:
            write_table(path, self.complete(result, keep_observed))
        else:
            write_array(path, self._array(result, keep_observed), axes=result.axes)

    def complete(self, result: Result, keep_observed: bool) -> Any:
        """Fill the rows that lack a value; where none does, list every combination of labels."""
        if self.has_gaps:
            return result.fill(self.frame, keep_observed=keep_observed)
        where = np.indices(self.dims).reshape(len(self.dims), -1)
        columns = {
            name: k if labels is None else labels[k]
            for name, labels, k in zip(self.axes.names, self.axes.labels, where)
        }
        return type(self.frame)({**columns, self.value: self._array(result, keep_observed).ravel()})

    def _array(self, result: Result, keep_observed: bool) -> Any:
        array = np.array(result.to_array())
        if keep_observed:
            known, _ = self.tensor.merge()
            array[tuple(known.indices.T.numpy())] = known.values.numpy()
        return array


def load_table(options: KnownOptions, seed: int) -> Table:
    """Read a table; known are the rows that have a value and are drawn by ``--observed``."""
    path, share = options.file, options.observed
    for name in ("mask", "tensorize", "order"):
        if getattr(options, name) is not None:
            raise OptionError(f"--{name} goes with arrays; {path} is a table of entries")
    if share is not None and not 0.0 < share < 1.0:
        raise OptionError(f"--observed {share:g} must lie between 0 and 1")
    frame = read_table(path)
    columns = list(map(str, frame.columns))
    frame.columns = columns
    value = options.key or (columns[-1] if columns else "")
    if value not in columns or len(columns) < 2:
        raise DataError(
            f"{path} has the columns {columns}; index columns are needed and a value column, which is the "
            "last or the one that --key names"
        )
    if frame[value].dtype.kind not in "biuf":
        raise DataError(
            f"the value column {value!r} of {path} holds {frame[value].dtype}; numbers are needed. --key "
            "NAME chooses another column"
        )
    if options.names is not None:
        index = [c for c in columns if c != value]
        frame = frame.rename(columns=dict(zip(index, check_names(options.names, len(index)))))
    source, full = Source(path.name, "table", key=options.key), Observations.from_frame(frame, value=value)
    if share is None:
        return Table(frame, value, full, source)
    drawn = np.random.default_rng(seed).random(len(frame)) < share
    hidden = frame.assign(**{value: frame[value].where(drawn)})
    return Table(hidden, value, Observations.from_frame(hidden, value=value), source, full)
