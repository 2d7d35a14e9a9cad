"""Normal equations of one core when entries are missing: one Gram matrix per slice of its dangling leg."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..contraction import RowSource
from ..data.devices import usable_cores
from ..data.parallel.executor import map_in_order

__all__ = ["SliceTable", "ranges_of"]

# Bytes of environment rows held at a time, and of Gram matrices.
CHUNK_BYTES = {"cpu": 1 << 24, "cuda": 1 << 30}
GRAM_BYTES = {"cpu": 1 << 29, "cuda": 1 << 32}
# Slices whose Gram matrices take fewer products than this go through batched products of padded blocks.
LOOP_ABOVE = 30_000
# Environment rows that one matrix product on the CPU reads: they stay in cache, and threads share a slice.
# But so many times the width of a row at least: a Gram matrix is added up once per product.
RUN_BYTES = 1 << 22
RUN_WIDTHS = 4
LONGEST_BLOCK = 1024
MOST_THREADS = 16
# Flops below which threads cost more than they save.
WORTH_THREADS = 1e6


class SliceTable:
    """Fitted entries sorted by their slice of one leg.

    Parameters
    ----------
    chosen
        The entries that are fitted.
    index
        Slice of every entry; None when all lie in one slice.
    size
        Number of slices.
    scale
        Square root of every entry's weight; None for ones.

    Attributes
    ----------
    empty, filled
        Slices without and with entries.
    """

    def __init__(
        self, chosen: torch.Tensor, index: torch.Tensor | None, size: int, scale: torch.Tensor | None
    ) -> None:
        self.size = size
        self.device = chosen.device
        if index is None:
            self.order = chosen
            self._counts = torch.full((1,), len(chosen), device=self.device)
        else:
            found = index[chosen]
            self.order = chosen[torch.argsort(found, stable=True)]
            self._counts = torch.bincount(found, minlength=size)
        self.scale = None if scale is None else scale[self.order]
        self.starts = [0, *torch.cumsum(self._counts, 0).tolist()]
        self.empty = (self._counts == 0).nonzero()[:, 0]
        self.filled = self._counts.nonzero()[:, 0]

    def rescaled(self, scale: torch.Tensor | None) -> SliceTable:
        """The same table with other roots of weights."""
        other = copy(self)
        other.scale = None if scale is None else scale[self.order]
        return other

    def squared_norm(self, source: RowSource) -> float:
        """Sum of the squares of all environment rows."""
        parts = [torch.linalg.vector_norm(rows) ** 2 for rows, _ in self._chunks(source, None)]
        return float(torch.stack(parts).double().sum()) if parts else 0.0

    def right_hand_side(self, source: RowSource, values: torch.Tensor) -> torch.Tensor:
        """``E^H y`` of every slice."""
        index = torch.repeat_interleave(torch.arange(self.size, device=self.device), self._counts)
        total = torch.zeros(self.size, source.width, dtype=source.dtype, device=self.device)
        begin = 0
        for rows, given in self._chunks(source, values):
            end = begin + len(rows)
            total.index_add_(0, index[begin:end], rows.conj() * given[:, None])
            begin = end
        return total

    def sums(
        self, source: RowSource, values: torch.Tensor, first: int, last: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``E^H E`` and ``E^H y`` of slices `first` to `last`; `values` come in the order of all entries."""
        shape = (last - first, source.width)
        gram = torch.zeros(*shape, source.width, dtype=source.dtype, device=self.device)
        rhs = torch.zeros(shape, dtype=source.dtype, device=self.device)
        large = len(self.order) * source.width**2 >= LOOP_ABOVE * self.size
        add = self._add_by_slice if large and self.device.type == "cpu" else self._add_by_block
        add(source, values, first, last, gram, rhs)
        return gram, rhs

    # -- rows ------------------------------------------------------------------------------------------

    def _chunks(
        self, source: RowSource, values: torch.Tensor | None, begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Environment rows and values of sorted entries, weighted, a bounded number at a time."""
        end = len(self.order) if end is None else end
        step = max(1, CHUNK_BYTES[self.device.type] // (8 * source.row_entries))
        for a in range(begin, end, step):
            chosen = self.order[a : min(a + step, end)]
            scale = None if self.scale is None else self.scale[a : min(a + step, end)]
            yield _weighted(source, values, chosen, scale)

    # -- a product per slice ---------------------------------------------------------------------------

    def _add_by_slice(
        self,
        source: RowSource,
        values: torch.Tensor,
        first: int,
        last: int,
        gram: torch.Tensor,
        rhs: torch.Tensor,
    ) -> None:
        """On the CPU: runs of rows that stay in cache, shared by threads of our own.

        NumPy sees that ``x.T @ x`` is symmetric and does half the arithmetic.
        """
        # Only NumPy within the threads: torch would start threads of its own in each.
        rows_of, order, y = _reader(source), self.order.numpy(), values.numpy()
        scales = None if self.scale is None else self.scale.numpy()

        def product(run: tuple[int, int, int]) -> tuple[int, Any, Any]:
            s, a, b = run
            rows = rows_of(order[a:b])
            given = y[order[a:b]].astype(rows.dtype, copy=False)
            if scales is not None:
                scale = scales[a:b].astype(rows.real.dtype, copy=False)
                rows, given = rows * scale[:, None], given * scale
            dual = rows.conj().T if rows.dtype.kind == "c" else rows.T
            return s, dual @ rows, dual @ given

        step = max(64, RUN_BYTES // (8 * source.row_entries), RUN_WIDTHS * source.width)
        runs = [
            (s, a, min(a + step, self.starts[s + 1]))
            for s in range(first, last)
            for a in range(self.starts[s], self.starts[s + 1], step)
        ]
        spread = (self.starts[last] - self.starts[first]) * source.width**2 > WORTH_THREADS
        threads = min(usable_cores(), MOST_THREADS) if spread else 0
        for s, g, m in map_in_order(product, runs, threads, lasting=True):
            gram[s - first] += torch.from_numpy(g)
            rhs[s - first] += torch.from_numpy(m)

    # -- padded blocks ---------------------------------------------------------------------------------

    @cached_property
    def _block(self) -> int:
        """Rows of a block: about the mean of a slice, so that padding at most doubles the work."""
        mean = max(1, len(self.order) // self.size)
        return int(min(LONGEST_BLOCK, 1 << (mean - 1).bit_length()))

    @cached_property
    def _blocks(self) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """Positions in `order` by block (-1: padding), the slice of each block, blocks before each slice."""
        size = self._block
        per_slice = torch.div(self._counts + size - 1, size, rounding_mode="floor")
        before = torch.cumsum(per_slice, 0)
        slices = torch.repeat_interleave(torch.arange(self.size, device=self.device), per_slice)
        starts = torch.cumsum(self._counts, 0) - self._counts
        number = torch.arange(len(slices), device=self.device) - (before - per_slice)[slices]
        offset = number[:, None] * size + torch.arange(size, device=self.device)
        positions = torch.where(offset < self._counts[slices, None], starts[slices, None] + offset, -1)
        return positions, slices, [0, *before.tolist()]

    def _add_by_block(
        self,
        source: RowSource,
        values: torch.Tensor,
        first: int,
        last: int,
        gram: torch.Tensor,
        rhs: torch.Tensor,
    ) -> None:
        """Batched products of blocks of equal length, then a sum over the blocks of a slice."""
        positions, slices, before = self._blocks
        width, size = source.width, self._block
        step = max(1, CHUNK_BYTES[self.device.type] // (8 * (size * source.row_entries + width * width)))
        for a in range(before[first], before[last], step):
            b = min(a + step, before[last])
            where = positions[a:b].reshape(-1)
            inside = where.clamp_min(0)
            scale = (where >= 0).to(values.real.dtype)
            if self.scale is not None:
                scale = scale * self.scale[inside]
            rows, given = _weighted(source, values, self.order[inside], scale)
            e = rows.reshape(b - a, size, width)
            dual = e.mH
            gram.index_add_(0, slices[a:b] - first, dual @ e)
            rhs.index_add_(0, slices[a:b] - first, (dual @ given.reshape(b - a, size, 1))[:, :, 0])


def ranges_of(size: int, width: int, device: str) -> list[tuple[int, int]]:
    """Runs of slices whose Gram matrices fit in memory together."""
    step = max(1, GRAM_BYTES[device] // (8 * width * width))
    return [(a, min(a + step, size)) for a in range(0, size, step)]


def _weighted(
    source: RowSource, values: torch.Tensor | None, chosen: torch.Tensor, scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = source.rows(chosen)
    given = rows[:, 0] if values is None else values[chosen].to(rows.dtype)
    if scale is None:
        return rows, given
    scale = scale.to(rows.dtype)
    return rows * scale[:, None], given * scale


def _reader(source: RowSource) -> Callable[[Any], Any]:
    """Rows of chosen entries as a NumPy array of the thread's own, valid until its next call."""
    table = source.table()
    if table is None or table[1] is None:
        return lambda chosen: source.rows(torch.from_numpy(chosen)).contiguous().numpy()
    rows, ids = table[0].numpy(), table[1].numpy()
    local = threading.local()

    def read(chosen: Any) -> Any:
        count = len(chosen)
        held = getattr(local, "held", None)
        if held is None or len(held) < count:
            local.held = held = np.empty((count, rows.shape[1]), rows.dtype)
        return np.take(rows, ids[chosen], axis=0, out=held[:count], mode="clip")

    return read
