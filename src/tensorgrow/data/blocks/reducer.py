"""Sums over the blocks of a tensor: the only way in which blockwise algorithms touch their data.

A *kernel* turns one block into small arrays, each under a key; arrays with the same key are added up. Blocks
are dealt into groups that do not depend on who computes them, groups are added in their order, and sums have
double precision. So one thread, many threads and a cluster give the same bits, and a group that is computed
again after a fault changes nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import torch

from ...errors import DataError
from ..arrays import as_tensor, times_power
from ..parallel.executor import map_in_order
from .grid import Box, entries_of
from .sources import BlockSource

Array = Any

# Most tasks of one pass: enough for a hundred workers, few enough for one scheduler.
MAX_GROUPS = 512
# Entries that are worth a task, as long as there are at least MIN_GROUPS tasks.
TASK_ENTRIES = 1 << 23
MIN_GROUPS = 16
# Entries of a block from which the overhead of torch operations is negligible.
LARGE_BLOCK = 1 << 18


@dataclass
class Partial:
    """What kernels return and reducers add up."""

    sums: dict[Any, Array] = field(default_factory=dict)  # arrays or numbers to add by key
    largest: float = 0.0  # of which the maximum is taken; NaN wins

    def add(self, other: Partial) -> None:
        """Add another one, which must not be used afterwards."""
        if not self.largest >= other.largest:  # a comparison with NaN is false: NaN stays
            self.largest = self.largest if math.isnan(self.largest) else other.largest
        for key, value in other.sums.items():
            if key in self.sums:
                self.sums[key] += value  # widened on the way, without a copy
            else:
                self.sums[key] = widen(value)

    def detach_from(self, block: Array) -> Partial:
        """Copy arrays that share memory with a block: the next block is read into that memory."""
        if not isinstance(block, np.ndarray):
            block = block.numpy() if block.device.type == "cpu" else np.empty(0)
        sums = {
            k: v.copy() if isinstance(v, np.ndarray) and np.may_share_memory(v, block) else v
            for k, v in self.sums.items()
        }
        return Partial(sums, self.largest)

    def to_numpy(self) -> Partial:
        """Convert to arrays that can be sent to another process."""
        sums = {k: v.cpu().numpy() if isinstance(v, torch.Tensor) else v for k, v in self.sums.items()}
        return Partial(sums, self.largest)


class Kernel(Protocol):
    """Computes small arrays from a block that lies at a box; it can be sent to another process."""

    def __call__(self, block: Array, box: Box) -> Partial: ...


def widen(value: Array) -> Array:
    """Convert numbers to double precision."""
    if isinstance(value, np.ndarray):
        return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64, copy=False)
    if isinstance(value, torch.Tensor):
        return value.to(torch.complex128 if value.is_complex() else torch.float64)
    return value


@dataclass(frozen=True)
class Form:
    """The form in which kernels get blocks."""

    dtype: str  # name of the NumPy dtype to compute in
    device: str | None = None  # where torch computes with blocks; None for NumPy arrays
    exponent: int = 0  # blocks are divided by this power of two

    def __call__(self, block: Array) -> Array:
        """Convert a block as it was read."""
        check_is_real(block, self.dtype)
        if self.device is not None:
            moved = block_tensor(block).to(device=self.device, dtype=getattr(torch, self.dtype))
            return times_power(moved, -self.exponent)
        if isinstance(block, torch.Tensor):
            block = block.resolve_conj().resolve_neg().numpy()
        array = np.asarray(block).astype(self.dtype, copy=False)
        return times_power(array, -self.exponent)


def check_is_real(block: Array, dtype: str) -> None:
    """Raise `DataError` where a block holds complex numbers although its array was declared as real."""
    held = str(getattr(block, "dtype", ""))
    if "complex" in held and "complex" not in dtype:
        raise DataError(
            f"a block holds {held}, but the array was declared as real: the imaginary part would be "
            "lost. Declare what it holds, for example x.astype(complex), or map_blocks(..., dtype=complex)"
        )


def block_tensor(block: Array) -> torch.Tensor:
    """Turn a block as it was read into a tensor, on its memory where that may be written to."""
    if isinstance(block, torch.Tensor):
        return block.resolve_conj().resolve_neg()
    array = np.asarray(block)
    return as_tensor(array, copy=not array.flags.writeable)


def group_boxes(boxes: Sequence[Box]) -> list[Sequence[Box]]:
    """Deal blocks into at most `MAX_GROUPS` runs: one task each, small blocks together."""
    together = TASK_ENTRIES // entries_of(boxes[0])
    size = max(-(-len(boxes) // MAX_GROUPS), min(together, len(boxes) // MIN_GROUPS), 1)
    return [boxes[k : k + size] for k in range(0, len(boxes), size)]


def run_group(source: BlockSource, boxes: Sequence[Box], form: Form, kernel: Kernel) -> Partial:
    """Sum a kernel over some blocks, one after the other."""
    total = Partial()
    for box in boxes:
        total.add(run_kernel(kernel, form(source.read(box)), box))
    return total


def run_kernel(kernel: Kernel, block: Array, box: Box) -> Partial:
    """Run a kernel on a block; nothing of the result shares memory with the block.

    Large NumPy blocks go through torch, whose matrix products are faster.
    """
    if not (isinstance(block, np.ndarray) and block.size >= LARGE_BLOCK):
        return kernel(block, box).detach_from(block)
    if not block.flags.writeable:  # torch knows no other memory
        block = np.array(block)
    return kernel(torch.from_numpy(block), box).to_numpy().detach_from(block)


Sums = Generator[Partial, None, None]


@dataclass(eq=False)
class Reducer(ABC):
    """Sums kernels over all blocks of one tensor."""

    source: BlockSource
    boxes: Sequence[Box]  # the blocks, which cover the tensor
    form: Form
    _count: list[int] = field(default_factory=lambda: [0], kw_only=True)  # shared with other forms

    @property
    def passes(self) -> int:
        """How often the data was read."""
        return self._count[0]

    def with_form(self, form: Form) -> Self:
        """Return a reducer of the same data with blocks in another form; passes are counted together."""
        return replace(self, form=form)

    def reduce(self, kernel: Kernel) -> Partial:
        """Make one pass over the data."""
        self._count[0] += 1
        total = Partial()
        with closing(self._reduce_groups(kernel, group_boxes(self.boxes))) as groups:
            for group in groups:
                total.add(group)
        return total

    @property
    @abstractmethod
    def at_once(self) -> int:
        """Blocks that are in the memory of one process at the same time."""

    @abstractmethod
    def _reduce_groups(self, kernel: Kernel, groups: list[Sequence[Box]]) -> Sums:
        """Sums over each group, in their order."""


@dataclass(eq=False)
class ThreadReducer(Reducer):
    """Blocks read and computed by the threads of this process."""

    threads: int = 2  # blocks worked on at the same time: two keep a core busy while the next block is read

    @property
    def at_once(self) -> int:
        return self.threads

    def _reduce_groups(self, kernel: Kernel, groups: list[Sequence[Box]]) -> Sums:
        return map_in_order(
            lambda boxes: run_group(self.source, boxes, self.form, kernel),
            groups,
            0 if self.threads == 1 else self.threads,
        )
