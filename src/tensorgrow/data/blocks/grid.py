"""Which part of a tensor is a block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

Box = tuple[tuple[int, int], ...]
"""First index and end of a block along every axis."""


def entries_of(box: Box) -> int:
    """Number of entries of a block."""
    return math.prod(stop - start for start, stop in box)


def block_grid(shape: Sequence[int], chunks: Sequence[int], max_entries: int) -> list[Box]:
    """Cut a tensor into blocks of whole chunks, as large as allowed, in the order of storage.

    Last axes are filled first: there, neighbours are stored together.
    """
    size = [min(c, n) for c, n in zip(chunks, shape)]
    for axis in reversed(range(len(shape))):
        others = math.prod(size) // size[axis]
        room = max(1, max_entries // (others * size[axis]))
        size[axis] = min(shape[axis], size[axis] * room)
        if size[axis] < shape[axis]:
            break
    return list(product(*(_steps(0, n, step) for n, step in zip(shape, size))))


def part_grid(shape: Sequence[int], chunks: Sequence[int], max_entries: int) -> list[Box]:
    """Cut a tensor into parts of chunks, each in one piece in storage, as large as allowed, in its order."""
    size = [min(c, n) for c, n in zip(chunks, shape)]
    for axis in range(len(shape)):
        if math.prod(size) <= max_entries:
            break
        size[axis] = max(1, max_entries // math.prod(size[axis + 1 :]))
    ranges = [
        [_steps(first, min(first + c, n), step) for first in range(0, n, c)]
        for n, c, step in zip(shape, chunks, size)
    ]
    return [box for chunk in product(*ranges) for box in product(*chunk)]


def _steps(first: int, last: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, last)) for start in range(first, last, step)]
