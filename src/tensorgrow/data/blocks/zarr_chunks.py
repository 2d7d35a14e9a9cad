"""Chunks of a zarr array read straight from their files, where nothing has to be decoded.

The zarr library returns a chunk in fresh memory, copied twice. Here parts of a chunk are read, one after
the other, into memory that stays in the cache of the processor.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .grid import Box

Array = Any

_memory = threading.local()


class ChunkFiles:
    """Files, below the folder `root`, of a zarr array that is neither compressed nor sharded."""

    def __init__(
        self, root: Path, keys: Any, shape: Sequence[int], chunks: Sequence[int], dtype: Any, fill: Any
    ) -> None:
        self._root, self._keys = root, keys
        self._shape, self._chunks, self._dtype, self._fill = tuple(shape), tuple(chunks), dtype, fill

    @classmethod
    def of(cls, array: Any) -> ChunkFiles | None:
        """Return the files of an array; None where only the library can read it."""
        root, path = getattr(array.store, "root", None), getattr(array, "path", "")
        metadata = getattr(array, "metadata", None)
        keys = getattr(metadata, "encode_chunk_key", None)
        if type(array.store).__name__ != "LocalStore" or root is None or keys is None:
            return None
        plain = not (array.compressors or array.filters or array.shards) and array.order == "C"
        dtype = np.dtype(array.dtype)
        if not plain or dtype.kind not in "biufc" or not _is_native(metadata, dtype):
            return None
        return cls(Path(root) / path, keys, array.shape, array.chunks, dtype, array.fill_value)

    def read(self, box: Box) -> Array | None:
        """Read a box that lies in one chunk and in one piece; return None for others.

        The numbers are valid until the same thread reads again.
        """
        where = [start // c for (start, _), c in zip(box, self._chunks)]
        first = [start - k * c for (start, _), k, c in zip(box, where, self._chunks)]
        sizes = [stop - start for start, stop in box]
        if any(a + n > c for a, n, c in zip(first, sizes, self._chunks)) or not self._in_one_piece(sizes):
            return None
        out = self._take(sizes)
        begin = int(np.ravel_multi_index(first, self._chunks)) * self._dtype.itemsize
        try:
            file = os.open(self._root / self._keys(tuple(where)), os.O_RDONLY)
        except FileNotFoundError:  # such a chunk counts as filled
            out.fill(0 if self._fill is None else self._fill)
            return out
        try:
            size, needed = os.fstat(file).st_size, math.prod(self._chunks) * self._dtype.itemsize
            if size != needed:
                raise OSError(f"its file has {size} bytes instead of {needed}")
            _fill(file, memoryview(out.reshape(-1).view(np.uint8)), begin)
        finally:
            os.close(file)
        return out

    def _in_one_piece(self, sizes: Sequence[int]) -> bool:
        """Whether a part of a chunk is stored without gaps."""
        split = next((k for k, n in enumerate(sizes) if n > 1), len(sizes))
        return all(n == c for n, c in zip(sizes[split + 1 :], self._chunks[split + 1 :]))

    def _take(self, sizes: Sequence[int]) -> Array:
        """Return memory of this thread, which is used again for every read."""
        count = math.prod(sizes) * self._dtype.itemsize
        held = getattr(_memory, "held", None)
        if held is None or len(held) < count:
            _memory.held = held = np.empty(count, dtype=np.uint8)
        return held[:count].view(self._dtype).reshape(sizes)


def _fill(file: int, memory: memoryview, begin: int) -> None:
    done = 0
    while done < len(memory):
        count = os.preadv(file, [memory[done:]], begin + done)
        if count == 0:
            raise OSError("its file ended while it was read")
        done += count


def _is_native(metadata: Any, dtype: Any) -> bool:
    """Whether numbers are stored in the byte order of this machine."""
    if not dtype.isnative:
        return False
    codecs = getattr(metadata, "codecs", None)  # of version 3; in version 2 the dtype says everything
    if codecs is None or dtype.itemsize == 1:
        return True
    endian = getattr(getattr(codecs[0], "endian", None), "value", None)
    return len(codecs) == 1 and type(codecs[0]).__name__ == "BytesCodec" and endian == sys.byteorder
