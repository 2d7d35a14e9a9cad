"""Which part of a tensor is a block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

__all__ = ["Box", "block_grid", "entries_of"]

Box = tuple[tuple[int, int], ...]
"""First index and end of a block along every axis."""


def entries_of(box: Box) -> int:
    """Number of entries of a block."""
    return math.prod(stop - start for start, stop in box)


def block_grid(shape: Sequence[int], chunks: Sequence[int], max_entries: int) -> list[Box]:
    """Blocks of whole chunks, as large as allowed, in the order of storage.

    Last axes are filled first: there, neighbours are stored together.
    """
    size = [min(c, n) for c, n in zip(chunks, shape)]
    for axis in reversed(range(len(shape))):
        others = math.prod(size) // size[axis]
        room = max(1, max_entries // (others * size[axis]))
        size[axis] = min(shape[axis], size[axis] * room)
        if size[axis] < shape[axis]:
            break
    edges = [[(start, min(start + step, n)) for start in range(0, n, step)] for n, step in zip(shape, size)]
    return list(product(*edges))
