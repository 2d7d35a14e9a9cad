"""Sums over the blocks of a tensor: the only way in which blockwise algorithms touch their data.

A *kernel* turns one block into small arrays, each under a key; arrays with the same key are added up. Blocks
are dealt into groups that do not depend on who computes them, groups are added in their order, and sums are
kept in double precision. So one thread, many threads and a cluster give the same bits, and a group that is
computed again after a fault changes nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from .grid import Box, entries_of
from .sources import BlockSource

__all__ = [
    "Form",
    "Kernel",
    "Partial",
    "Reducer",
    "ThreadReducer",
    "as_tensor",
    "computed",
    "groups_of",
    "run_group",
    "widen",
]

Array = Any

# Tasks per pass at most: enough for a hundred workers, few enough for one scheduler.
MAX_GROUPS = 512
# Entries that are worth a task, as long as there are some tasks for everyone.
TASK_ENTRIES = 1 << 23
MIN_GROUPS = 16
# Entries of a block from which starting operations of torch takes no time to speak of.
LARGE_BLOCK = 1 << 18


@dataclass
class Partial:
    """What kernels return and reductions add up.

    Attributes
    ----------
    sums
        Arrays or numbers to add by key.
    largest
        Of this the maximum is kept.
    """

    sums: dict[Any, Array] = field(default_factory=dict)
    largest: float = 0.0

    def add(self, other: Partial) -> None:
        """Add another one, which must not be used afterwards."""
        if not self.largest >= other.largest:  # a comparison with NaN is false: NaN stays
            self.largest = self.largest if math.isnan(self.largest) else other.largest
        for key, value in other.sums.items():
            if key in self.sums:
                self.sums[key] += value  # widened on the way, without a copy
            else:
                self.sums[key] = widen(value)

    def apart_from(self, block: Array) -> Partial:
        """With copies of what shares memory with a block, which the next one is read into."""
        if not isinstance(block, np.ndarray):
            block = block.numpy() if block.device.type == "cpu" else np.empty(0)
        found = {
            k: v.copy() if isinstance(v, np.ndarray) and np.may_share_memory(v, block) else v
            for k, v in self.sums.items()
        }
        return Partial(found, self.largest)

    def to_numpy(self) -> Partial:
        """With arrays that can be sent to another process."""
        found = {k: v.cpu().numpy() if isinstance(v, torch.Tensor) else v for k, v in self.sums.items()}
        return Partial(found, self.largest)


class Kernel(Protocol):
    """What is computed from one block; it must be possible to send it to another process."""

    def __call__(self, block: Array, box: Box) -> Partial:
        """Small arrays from a block, given where it lies in the tensor."""


def widen(value: Array) -> Array:
    """The same numbers in double precision."""
    if isinstance(value, np.ndarray):
        return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64, copy=False)
    if isinstance(value, torch.Tensor):
        return value.to(torch.complex128 if value.is_complex() else torch.float64)
    return value


@dataclass(frozen=True)
class Form:
    """The form in which kernels get blocks.

    Attributes
    ----------
    dtype
        Name of the NumPy dtype to compute in.
    device
        Device of a torch tensor, to which blocks move where they are computed; None for NumPy arrays.
    scale
        What blocks are divided by.
    """

    dtype: str
    device: str | None = None
    scale: float = 1.0

    def __call__(self, block: Array) -> Array:
        """Convert a block as it was read."""
        if self.device is not None:
            moved = as_tensor(block).to(device=self.device, dtype=getattr(torch, self.dtype))
            return moved if self.scale == 1.0 else moved / self.scale
        if isinstance(block, torch.Tensor):
            block = block.numpy()
        found = np.asarray(block).astype(self.dtype, copy=False)
        return found if self.scale == 1.0 else found / found.dtype.type(self.scale)


def as_tensor(block: Array) -> torch.Tensor:
    """A block as it was read, as a tensor; on its memory where that is possible."""
    if isinstance(block, torch.Tensor):
        return block
    array = np.asarray(block)
    if array.dtype.kind in "bui":
        array = array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=not array.flags.writeable)
    return torch.from_numpy(np.ascontiguousarray(array))


def groups_of(boxes: Sequence[Box]) -> list[Sequence[Box]]:
    """Blocks dealt into at most `MAX_GROUPS` runs: one task each, small ones together."""
    together = TASK_ENTRIES // entries_of(boxes[0])
    size = max(-(-len(boxes) // MAX_GROUPS), min(together, len(boxes) // MIN_GROUPS), 1)
    return [boxes[k : k + size] for k in range(0, len(boxes), size)]


def run_group(source: BlockSource, boxes: Sequence[Box], form: Form, kernel: Kernel) -> Partial:
    """Sum of a kernel over some blocks, one after the other."""
    total = Partial()
    for box in boxes:
        total.add(computed(kernel, form(source.read(box)), box))
    return total


def computed(kernel: Kernel, block: Array, box: Box) -> Partial:
    """What a kernel gives for a block; nothing of it shares memory with the block.

    Large NumPy blocks go through torch, whose matrix products are faster.
    """
    if not (isinstance(block, np.ndarray) and block.size >= LARGE_BLOCK):
        return kernel(block, box).apart_from(block)
    if not block.flags.writeable:  # torch knows no other memory
        block = np.array(block)
    return kernel(torch.from_numpy(block), box).to_numpy().apart_from(block)


class Reducer(Protocol):
    """Sums a kernel over all blocks of one tensor."""

    @property
    def source(self) -> BlockSource:
        """The tensor."""

    @property
    def boxes(self) -> Sequence[Box]:
        """Its blocks."""

    @property
    def form(self) -> Form:
        """The form in which kernels get blocks."""

    @property
    def at_once(self) -> int:
        """Blocks that are held in the memory of one process at the same time."""

    @property
    def passes(self) -> int:
        """How often the data was read."""

    def reduce(self, kernel: Kernel) -> Partial:
        """One pass over the data."""

    def with_form(self, form: Form) -> Reducer:
        """The same with blocks in another form."""


class ThreadReducer:
    """Blocks read and computed by the threads of this process.

    Parameters
    ----------
    threads
        Blocks worked on at the same time. Two keep a core busy while the next block is read.
    """

    def __init__(self, source: BlockSource, boxes: Sequence[Box], form: Form, threads: int = 2) -> None:
        self.source, self.boxes, self.form, self.threads = source, boxes, form, threads
        self._count = [0]  # shared with other forms of the same data

    @property
    def at_once(self) -> int:
        """Blocks in memory at the same time."""
        return self.threads

    @property
    def passes(self) -> int:
        """How often the data was read."""
        return self._count[0]

    def with_form(self, form: Form) -> ThreadReducer:
        """The same with blocks in another form."""
        other = ThreadReducer(self.source, self.boxes, form, self.threads)
        other._count = self._count
        return other

    def reduce(self, kernel: Kernel) -> Partial:
        """One pass over the data."""
        self._count[0] += 1
        total = Partial()
        for found in self._in_order(lambda boxes: run_group(self.source, boxes, self.form, kernel)):
            total.add(found)
        return total

    def _in_order(self, task: Callable[[Sequence[Box]], Partial]) -> Iterator[Partial]:
        groups = groups_of(self.boxes)
        if self.threads == 1:
            yield from map(task, groups)
            return
        waiting: deque[Future[Partial]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            try:
                for boxes in groups:
                    # A short queue: what is done early waits in memory for its turn.
                    if len(waiting) == self.threads:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(task, boxes))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
