"""Where blocks come from: zarr, HDF5 and netCDF files, memory maps, dask arrays, arrays in memory.

A source knows its shape, the chunks it is stored in and how to read a block. It can be sent to another
process, where it opens its file again. The error for a chunk that cannot be read names it.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np
import torch

from ...errors import DataError, MemoryLimitError
from ..trust import check_zarr
from .grid import Box, block_grid, part_grid
from .zarr_chunks import ChunkFiles

Array = Any


class BlockSource:
    """A tensor read block by block; `chunks` is the shape of a stored chunk, `label` its name in messages."""

    def __init__(self, shape: Sequence[int], dtype: Any, chunks: Sequence[int], label: str) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.chunks = tuple(int(c) for c in chunks)
        self.label = label

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    def boxes(self, max_entries: int, wanted: int | None = None) -> list[Box]:
        """Cut the tensor into blocks of whole chunks, of about `wanted` entries where chunks allow it.

        Chunks with more than `max_entries` are refused.
        """
        least = math.prod(min(c, n) for c, n in zip(self.chunks, self.shape))
        if least > max_entries:
            raise MemoryLimitError(
                f"{self.label} is stored in chunks of {least:,} entries, but the memory limit allows blocks "
                f"of {max_entries:,}. Raise memory_limit, use fewer threads, or store it in smaller chunks"
            )
        wanted = max_entries if wanted is None else min(wanted, max_entries)
        return block_grid(self.shape, self.chunks, max(wanted, least))

    def load(self) -> Array:
        """Read all entries."""
        return self.read(tuple((0, n) for n in self.shape))

    def read(self, box: Box) -> Array:
        """Read a block, which is valid until the same thread reads another."""
        try:
            return self._read(box)
        except Exception as error:
            name, cause = self._culprit(box, error)
            raise DataError(
                f"{name} of {self.label} cannot be read ({type(cause).__name__}: {cause}). "
                "Restore or rewrite it, then run again; a checkpoint resumes at the last step"
            ) from error

    def name(self, box: Box) -> str:
        """What to call a block in messages."""
        return "block [" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"

    def _read(self, box: Box) -> Array:
        raise NotImplementedError

    def _culprit(self, box: Box, error: Exception) -> tuple[str, Exception]:
        """Find the chunk of a block that fails by itself, and how."""
        steps = [
            [(s, min(s + c, stop)) for s in range(start, stop, c)]
            for (start, stop), c in zip(box, self.chunks)
        ]
        for part in product(*steps):
            try:
                self._read(part)
            except Exception as cause:  # noqa: BLE001 - whatever a storage library raises is what we report
                return self.name(part), cause
        return self.name(box), error


class ArraySource(BlockSource):
    """A NumPy array or a torch tensor; blocks are views."""

    def __init__(self, array: Any, label: str = "the tensor") -> None:
        super().__init__(array.shape, array.dtype, (1,) * len(array.shape), label)
        self.array = array

    def _read(self, box: Box) -> Array:
        return self.array[_slices(box)]


class MemmapSource(ArraySource):
    """A `numpy.memmap`; another process maps the file again."""

    def __init__(self, array: np.memmap[Any, Any]) -> None:
        super().__init__(array, f"the memory map {array.filename}")

    def __reduce__(self) -> tuple[Any, ...]:
        a = self.array
        if not isinstance(a.base, mmap.mmap):
            raise DataError(
                "a part of a memory map cannot be sent to another process; pass the whole map, or use threads"
            )
        order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
        return _open_memmap, (str(a.filename), a.dtype, a.offset, a.shape, order)


def _open_memmap(filename: str, dtype: Any, offset: int, shape: tuple[int, ...], order: Any) -> MemmapSource:
    return MemmapSource(np.memmap(filename, dtype=dtype, mode="r", offset=offset, shape=shape, order=order))


class ZarrSource(BlockSource):
    def __init__(self, array: Any) -> None:
        chunks = getattr(array, "shards", None) or array.chunks
        super().__init__(array.shape, np.dtype(array.dtype), chunks, f"the zarr array {_zarr_name(array)}")
        check_zarr(array, self.label)
        self.array = array
        self._files = ChunkFiles.of(array)

    def boxes(self, max_entries: int, wanted: int | None = None) -> list[Box]:
        size = max_entries if wanted is None else min(wanted, max_entries)
        if self._files is None or math.prod(self.chunks) <= size:
            return super().boxes(max_entries, wanted)
        return part_grid(self.shape, self.chunks, size)

    def name(self, box: Box) -> str:
        coordinates = tuple(start // c for (start, _), c in zip(box, self.chunks))
        encode = getattr(getattr(self.array, "metadata", None), "encode_chunk_key", None)
        return f"chunk {encode(coordinates) if encode else '.'.join(map(str, coordinates))}"

    def _read(self, box: Box) -> Array:
        block = None if self._files is None else self._files.read(box)
        return self.array[_slices(box)] if block is None else block


def _zarr_name(array: Any) -> str:
    store = str(getattr(array, "store", ""))
    return "/".join(part for part in (store, getattr(array, "path", "")) if part) or "in memory"


class HDF5Source(BlockSource):
    """A dataset of an HDF5 file; another process opens the file again."""

    def __init__(self, dataset: Any) -> None:
        self.filename, self.path = dataset.file.filename, dataset.name
        chunks = dataset.chunks or (1,) * len(dataset.shape)
        super().__init__(dataset.shape, dataset.dtype, chunks, f"the dataset {self.path} of {self.filename}")
        self.dataset = dataset

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_hdf5, (self.filename, self.path)

    def _read(self, box: Box) -> Array:
        return self.dataset[_slices(box)]


def _open_hdf5(filename: str, path: str) -> HDF5Source:
    import h5py

    return HDF5Source(h5py.File(filename, "r")[path])


class XarraySource(BlockSource):
    """A `DataArray` whose values are still in a file."""

    def __init__(self, array: Any) -> None:
        stored = array.encoding.get("chunksizes") or array.encoding.get("preferred_chunks")
        if isinstance(stored, dict):
            stored = tuple(stored.get(d, n) for d, n in zip(array.dims, array.shape))
        fits = stored is not None and len(stored) == array.ndim  # a selection may have dropped axes
        super().__init__(
            array.shape,
            array.dtype,
            stored if fits else (1,) * array.ndim,
            f"the variable {array.name!r} of {array.encoding.get('source', 'a dataset')}",
        )
        self.array = array

    def _read(self, box: Box) -> Array:
        return self.array[_slices(box)].values


class DaskSource(BlockSource):
    """A dask array; its own chunks are the blocks."""

    def __init__(self, array: Any) -> None:
        if any(math.isnan(n) for n in array.shape):
            raise DataError("the dask array has chunks of unknown size; call compute_chunk_sizes() first")
        super().__init__(
            array.shape, array.dtype, array.chunksize, f"the dask array {array.name.partition('-')[0]}"
        )
        self.array = array
        self._edges = [list(pairwise(np.cumsum([0, *sizes]).tolist())) for sizes in array.chunks]
        self._ready: dict[Box, Any] = {}
        self._number = [{edge: k for k, edge in enumerate(edges)} for edges in self._edges]

    def boxes(self, max_entries: int, wanted: int | None = None) -> list[Box]:
        if math.prod(self.chunks) > max_entries:
            raise MemoryLimitError(
                f"the dask array has chunks of {math.prod(self.chunks):,} entries, but the memory limit "
                f"allows {max_entries:,}. Call rechunk() first, raise memory_limit, or use fewer threads"
            )
        return list(product(*self._edges))

    def load(self) -> Array:
        return self.array.compute()

    def delayed_chunks(self) -> dict[Box, Any]:
        """Return what dask computes each chunk from."""
        chunks = self.array.to_delayed()
        return {box: chunks[self._position(box)] for box in product(*self._edges)}

    def name(self, box: Box) -> str:
        return f"chunk {self._position(box)}"

    def _position(self, box: Box) -> tuple[int, ...]:
        return tuple(number[edge] for number, edge in zip(self._number, box))

    def _read(self, box: Box) -> Array:
        from dask.base import optimize

        if box not in self._ready:  # it takes longer to find the tasks of one chunk than to run them
            self._ready[box] = optimize(self.array.blocks[self._position(box)])[0]
        return self._ready[box].compute(scheduler="synchronous", optimize_graph=False)

    def _culprit(self, box: Box, error: Exception) -> tuple[str, Exception]:
        return self.name(box), error


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)


def is_lazy(x: Any) -> bool:
    """Whether `x` is an array whose entries are not in memory."""
    return _maker(x) is not None


def as_source(x: Any) -> BlockSource:
    """Return a source of blocks of an array; a source stays as it is."""
    if isinstance(x, BlockSource):
        return x
    maker = _maker(x)
    if maker is not None:
        return maker(x)
    if isinstance(x, torch.Tensor | np.ndarray):
        return ArraySource(x)
    raise DataError(
        f"{type(x).__name__} cannot be read block by block; give a zarr, dask, xarray or h5py array, a "
        "numpy.memmap, a NumPy array or a torch tensor"
    )


def _maker(x: Any) -> Callable[[Any], BlockSource] | None:
    """Find what makes a source of a lazy array, by the names of its class, so that nothing is imported."""
    if isinstance(x, np.memmap):
        return MemmapSource
    kind = (type(x).__module__.partition(".")[0], type(x).__name__)
    if kind == ("xarray", "DataArray"):
        if x.chunks is not None:
            return lambda array: DaskSource(array.data)
        return None if x.variable._in_memory else XarraySource
    makers: dict[tuple[str, str], Callable[[Any], BlockSource]] = {
        ("zarr", "Array"): ZarrSource,
        ("h5py", "Dataset"): HDF5Source,
        ("dask", "Array"): DaskSource,
    }
    return makers.get(kind)
