"""Data that is not an array in memory: arrays that stay in their file, and networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.array_files import WRITABLE, Source, open_large, write_array
from ..data.axes import Axes
from ..data.tensorization import Tensorization
from ..errors import OptionError, counted
from ..network import TensorNetwork
from ..results import Result
from .options import DataOptions

NETWORK_SUFFIX = ".safetensors"


class Whole:
    """Data of which all entries are known."""

    axes: Axes | None
    mask = truth = num_known = None
    writable = WRITABLE

    def compare(self, result: Result) -> None:
        """There are no gaps to interpolate."""

    def write(self, path: Path, result: Result, keep_observed: bool) -> None:
        """Write what the network stands for."""
        write_array(path, np.asarray(result.to_array()), axes=self.axes)


@dataclass(frozen=True)
class Stored(Whole):
    """A zarr or HDF5 array that is read block by block, as it is."""

    tensor: Any
    source: Source
    axes: Axes | None = None
    how: None = None

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


@dataclass(frozen=True)
class StoredNetwork(Whole):
    """A tensor that a file of our own knows as a network; it is never formed."""

    tensor: TensorNetwork
    source: Source
    axes: Axes | None = None
    how: Tensorization | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.tensor.structure.dims

    @property
    def description(self) -> str:
        """One line about the data."""
        size, order = self.tensor.num_parameters, len(self.dims)
        return f"{self.source.name}, a network with {size:,} parameters over {counted(order, 'mode')}"

    def measure(self, result: Result, keep_observed: bool) -> dict[str, float]:
        """The error of the result is that of the tensor."""
        return {}


def load_network(options: DataOptions) -> StoredNetwork | None:
    """Return the network of a file of our own, or of the result that it holds; None for all others."""
    from .inputs import load_result

    if options.file.suffix.lower() != NETWORK_SUFFIX:
        return None
    if options.order is not None or options.tensorize not in (None, "none"):
        raise OptionError(
            f"--tensorize and --order are about arrays; {options.file} holds a network, whose modes stay as "
            "they are. Leave them out"
        )
    result = load_result(options.file)
    order = len(result.structure.dims if result.tensorization is None else result.tensorization.shape)
    axes = Axes.of(result, order, options.names)
    return StoredNetwork(result.network, Source(options.file.name), axes, result.tensorization)


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
