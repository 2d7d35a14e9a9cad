"""Arrays that stay in their file, because memory has little room for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.array_files import WRITABLE, Source, open_large, write_array
from ..data.axes import Axes
from ..errors import OptionError
from ..results import Result
from .options import DataOptions


@dataclass(frozen=True)
class Stored:
    """A zarr or HDF5 array that is read block by block, as it is."""

    tensor: Any
    source: Source
    axes: Axes | None = None

    how: None = None
    mask: None = None
    truth: None = None
    num_known: None = None
    writable = WRITABLE

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.tensor.shape)

    @property
    def description(self) -> str:
        """One line about the data."""
        sizes = "x".join(map(str, self.dims))
        key = f" [{self.source.key}]" if self.source.key else ""
        return f"{self.source.name}{key}, {sizes}, {self.tensor.dtype}, read block by block"

    def measure(self, result: Result, keep_observed: bool) -> dict[str, float]:
        """The error of the result is that of the array."""
        return {"array_error": result.errors.total}

    def compare(self, result: Result) -> None:
        """There are no gaps to interpolate."""

    def write(self, path: Path, result: Result, keep_observed: bool) -> None:
        """Write what the network stands for."""
        write_array(path, np.asarray(result.to_array()), axes=self.axes)


def load_stored(options: DataOptions) -> Stored | None:
    """Return an array that is better read block by block; None for all others."""
    opened = open_large(options.file, options.key)
    if opened is None:
        return None
    array, source = opened
    if options.order is not None or options.tensorize not in (None, "none"):
        raise OptionError(
            f"--tensorize and --order need {options.file} in memory, which has little room for it; leave "
            "them out to read it block by block"
        )
    return Stored(array, source, Axes.of(array, len(array.shape), options.names))
