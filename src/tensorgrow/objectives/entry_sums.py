"""Sums over listed entries: one Gram matrix per slice of the dangling leg of a core, in the cheapest way."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from ..algebra.linalg import Number, safe_norm
from ..contraction import RowSet, RowSource
from ..data.arrays import add_at, add_runs, sum_runs
from ..data.devices import usable_cores
from ..data.parallel.executor import map_in_order
from ..structure import Edge, Structure
from .entry_cores import CHUNK_BYTES, GRAM_BYTES, SliceSums
from .entry_grid import CoreGrid, grid_for_product, grid_where_cheap

Equations = tuple[torch.Tensor, torch.Tensor]
"""Gram matrices and right-hand sides of some slices."""

# Slices whose environment rows have fewer numbers than this are batched products of padded blocks. (70,000
# entries by blocks and by slices: 137 a slice 1.9 and 1.6 ms at 4 columns, 6.3 and 2.1 at 16; 30 a slice 3.5
# and 7.)
LOOP_ABOVE = 500
# Environment rows that one matrix product on the CPU reads: they stay in cache, and threads share a slice.
RUN_BYTES = 1 << 22
# Rows of a padded block at most.
LONGEST_BLOCK = 1024
# Flops below which threads cost more than they save.
WORTH_THREADS = 1e6
# What handling one number costs beside the arithmetic, in flops of a Gram matrix in single precision (90 a
# nanosecond on one core): reading it from a table by row, computing it into a table, computing it for an
# entry on demand; and the product of one cell.
GATHER, TABLE, ON_DEMAND, CELL = 50.0, 200.0, 400.0, 6e5
# What a solve with a Gram matrix in double precision costs, over ``width**2 * (width + 300)``: ten of width
# 252 take 14 ms, ten of width 648 145 ms.
SOLVE = 3.0
# Bytes of the Gram matrices of cells that are held at a time: they stay in cache.
CELL_BYTES = 1 << 24
# Grids of cells kept by each table, each with an order of all entries; sorting takes as long as a solve.
KEPT_GRIDS = 2


class SliceTable:
    """Fitted entries sorted by their slice of one leg.

    Parameters
    ----------
    fitted
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
        self, fitted: torch.Tensor, index: torch.Tensor | None, size: int, scale: torch.Tensor | None
    ) -> None:
        self.size = size
        self.device = fitted.device
        self._fitted, self._index, self._weights = fitted, index, scale
        self._grids: dict[object, SliceTable] = {}  # shared by tables that differ in weights
        self._places: dict[object, torch.Tensor] = {}  # likewise
        self._kept: TableValues | None = None
        if index is None:
            self.order = fitted
            self._counts = torch.full((1,), len(fitted), device=self.device)
        else:
            slices = index[fitted]
            self.order = fitted[torch.argsort(slices, stable=True)]
            self._counts = torch.bincount(slices, minlength=size)
        self.scale = None if scale is None else scale[self.order]
        self.starts = [0, *torch.cumsum(self._counts, 0).tolist()]
        self.empty = (self._counts == 0).nonzero()[:, 0]
        self.filled = self._counts.nonzero()[:, 0]

    def with_scale(self, scale: torch.Tensor | None) -> SliceTable:
        """The same table with other roots of weights."""
        other = copy(self)
        other.__dict__.pop("_block_scale", None)
        other._kept = None
        other._weights = scale
        other.scale = None if scale is None else scale[self.order]
        return other

    def grid(self, rows: RowSet) -> SliceTable:
        """Entries by slice and row of a set: cell ``slice * rows.count + row``."""
        found = self._grids.pop(rows.key, None)
        if found is None:
            index = None if self._index is None else self._index * rows.count
            cells = rows.ids if index is None else index if rows.ids is None else index + rows.ids
            found = SliceTable(self._fitted, cells, self.size * rows.count, None)
            found._index = None  # cells are not divided further
        self._grids[rows.key] = found  # now the last one used
        if len(self._grids) > KEPT_GRIDS:
            del self._grids[next(iter(self._grids))]
        return found if self._weights is None else found.with_scale(self._weights)

    def places(self, first: RowSet, second: RowSet) -> torch.Tensor:
        """Where entries lie among all combinations of slices and rows of two sets; each has its own place."""
        key = first.key, second.key
        found = self._places.pop(key, None)
        if found is None:
            found = self.slices
            for rows in (first, second):
                found = found * rows.count
                found = found if rows.ids is None else found + rows.ids[self.order]
        self._places[key] = found  # now the last one used
        if len(self._places) > KEPT_GRIDS:
            del self._places[next(iter(self._places))]
        return found

    def equations(self, source: RowSource, values: torch.Tensor, ridge: float) -> SliceSums:
        """Normal equations of the core with this environment; about `ridge` is added to their diagonals."""
        return SliceSums(
            source.width,
            self.size,
            self.filled,
            self.empty,
            lambda first, last: (source.edges, *self.sums(source, values, first, last)),
            lambda: self.squared_norm(source),
            partial(self._iterate, source, values, ridge),
            lambda: self.squared_values(values),
        )

    def _iterate(
        self,
        source: RowSource,
        values: torch.Tensor,
        about: float,
        edges: Sequence[Edge],
        core: torch.Tensor,
        ridge: Number,
        careful: bool,
        explain: bool,
    ) -> tuple[tuple[Edge, ...], torch.Tensor, Number] | None:
        """Solve without Gram matrices where that is cheaper, and converges."""
        if careful == (self.device.type != "cpu"):  # a GPU would wait for the host in every round
            return None
        solves = SOLVE * self.size * source.width**2 * (source.width + 300)
        grid = grid_where_cheap(self, source, about, min(self._costs(source).values()) + solves)
        if grid is None:
            return None
        start = core.permute(0, *(1 + edges.index(e) for e in source.edges)).reshape(len(core), -1)
        found = grid.solve(values, start, ridge, careful=careful, explain=explain)
        return None if found is None else (source.edges, *found)

    @cached_property
    def slices(self) -> torch.Tensor:
        """Slice of every sorted entry."""
        return torch.repeat_interleave(torch.arange(self.size, device=self.device), self._counts)

    def squared_norm(self, source: RowSource) -> float:
        """Sum of the squares of all environment rows."""
        parts = [torch.linalg.vector_norm(rows) ** 2 for _, rows, _ in self._chunks(source, None)]
        return float(torch.stack(parts).double().sum()) if parts else 0.0

    def squared_values(self, values: torch.Tensor) -> float:
        """Sum of the squares of the values of all entries."""
        mine = values[self.order]
        return safe_norm(mine if self.scale is None else mine * self.scale) ** 2

    def right_hand_side(self, source: RowSource, values: torch.Tensor) -> torch.Tensor:
        """``E^H y`` of every slice."""
        grid = grid_for_product(self, source, self._direct_flops(source))
        if grid is not None:
            return grid.adjoint(self._weighted(values, source.dtype)).to(source.dtype)
        if self.device.type == "cuda":  # it would sort all rows to add them up
            (total,) = self._add_blocks(source, values, 0, self.size, grams=False)
            return total
        total = torch.zeros(self.size, source.width, dtype=source.dtype, device=self.device)
        for where, rows, y in self._chunks(source, values):
            add_at(total, self.slices[where], rows.conj() * y[:, None])
        return total

    def diagonals(self, source: RowSource) -> torch.Tensor:
        """Diagonal of ``E^H E`` of every slice."""
        grid = self._grid_of_squares(source)
        if grid is not None:
            ones = torch.ones(len(self.order), dtype=torch.float64, device=self.device)
            return grid.adjoint(ones if self.scale is None else self.scale.double().square())
        total = torch.zeros(self.size, source.width, dtype=torch.float64, device=self.device)
        for where, rows, _ in self._chunks(source, None):
            add_at(total, self.slices[where], rows.abs().double().square())
        return total

    def leverage(self, source: RowSource, variance: torch.Tensor) -> torch.Tensor:
        """Squared environments of all sorted entries times numbers by slice and column, without weights."""
        grid = self._grid_of_squares(source)
        if grid is not None:
            return grid.times(variance)
        step = max(1, CHUNK_BYTES[self.device.type] // (8 * source.row_entries))
        parts = []
        for a in range(0, len(self.order), step):
            squares = source.rows(self.order[a : a + step]).abs().double().square()
            parts.append((squares * variance[self.slices[a : a + step]]).sum(1))
        return torch.cat(parts)

    def _grid_of_squares(self, source: RowSource) -> CoreGrid | None:
        """Products with squared environments over all combinations of rows, where these pay and fit in."""
        if len(source.parts) < 2 or 8 * source.square_entries > CHUNK_BYTES[self.device.type]:
            return None
        return grid_for_product(self, source.squares(), self._direct_flops(source))

    def _direct_flops(self, source: RowSource) -> float:
        """Of one product with rows that are formed for every entry."""
        count, form = len(self.order), ON_DEMAND * len(self.order)
        if source.is_table:
            form = TABLE * math.prod(part.rows.count for part in source.parts)
        return source.width * (2 * GATHER * count + form)

    def sums(self, source: RowSource, values: torch.Tensor, first: int, last: int) -> Equations:
        """``E^H E`` and ``E^H y`` of slices `first` to `last`; `values` come in the order of all entries."""
        costs = self._costs(source)
        fixed = min(costs, key=lambda k: costs[k])
        if fixed is not None:
            return self.sums_by_cell(source, values, first, last, fixed)
        large = len(self.order) * source.width >= LOOP_ABOVE * self.size
        add = self.sums_by_slice if large and self.device.type == "cpu" else self.sums_by_block
        return add(source, values, first, last)

    def _zeros(self, source: RowSource, count: int) -> Equations:
        gram = torch.zeros(count, source.width, source.width, dtype=source.dtype, device=self.device)
        return gram, torch.zeros(count, source.width, dtype=source.dtype, device=self.device)

    # -- rows ------------------------------------------------------------------------------------------

    def _chunks(
        self, source: RowSource, values: torch.Tensor | None
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Places of sorted entries, environment rows and values, weighted: a bounded number at a time."""
        step = max(1, CHUNK_BYTES[self.device.type] // (8 * source.row_entries))
        for a in range(0, len(self.order), step):
            where = slice(a, a + step)
            scale = None if self.scale is None else self.scale[where]
            yield where, *_weigh(source, values, self.order[where], scale)

    # -- a product per cell ----------------------------------------------------------------------------

    def _costs(self, source: RowSource) -> dict[int | None, float]:
        """Flops of the sums where all rows are formed (None), or where a part of them is the fixed one.

        A row is ``A_i B_j``. Its Gram matrix is that of ``A_i`` alone, which may be much smaller, multiplied
        by ``B_j`` from both sides: once for all entries of a cell, which have the same ``j``. On a GPU all
        rows are formed: the costs are those of a CPU, and sorting cells would wait for the host.
        """
        count, width, several = len(self.order), source.width, len(source.parts) > 1
        if not several or self.device.type != "cpu":
            return {None: count * width * (width + GATHER)}
        shared, form = source.parts[0].size(source.shared), ON_DEMAND * count
        if source.is_table:
            form = TABLE * math.prod(part.rows.count for part in source.parts)
        costs: dict[int | None, float] = {None: count * width * (width + GATHER) + form * width}
        for k, part in enumerate(source.parts):
            rows, inner = part.rows.count, shared * (width // part.size(source.free[k]))
            if rows * inner**2 * source.dtype.itemsize <= GRAM_BYTES[self.device.type] // 4:
                cell = CELL + 2.0 * (shared * width) ** 2
                costs[k] = count * inner * (inner + GATHER) + self.size * (
                    rows * cell + 2 * GATHER * width**2
                )
        return costs

    def sums_by_cell(
        self, source: RowSource, values: torch.Tensor, first: int, last: int, fixed: int
    ) -> Equations:
        """Sums of one part's rows for each row of the part `fixed`, multiplied by these rows afterwards."""
        gram, rhs = self._zeros(source, last - first)
        part, free = source.parts[fixed], source.free
        moving, grid = source.part(1 - fixed), self.grid(part.rows)
        factors = part.matrices(source.shared, free[fixed])
        count, c, f = factors.shape
        w = source.width // f
        dual = factors.conj()
        # By bond to the other part in the second factor: pairs of factors, (count * c, f * f).
        pairs = [
            (dual[:, :, :, None] * factors[:, None, None, b, :]).reshape(count * c, f * f) for b in range(c)
        ]
        step = max(1, CELL_BYTES // (8 * count * moving.width**2))
        for a in range(first, last, step):
            b = min(a + step, last)
            grams, sides = grid.sums(moving, values, a * count, b * count)
            mine = sides.reshape(b - a, count * c, w).mT @ dual.reshape(count * c, f)
            rhs[a - first : b - first] = (mine if fixed else mine.mT).reshape(b - a, -1)
            for s, cells in enumerate(grams.reshape(b - a, count * c, w, c, w), a - first):
                total = grams.new_zeros(w, w, f * f)
                for k, pair in enumerate(pairs):
                    total.baddbmm_(cells[:, :, k].permute(1, 2, 0), pair.expand(w, -1, -1))
                order = (0, 2, 1, 3) if fixed else (2, 0, 3, 1)
                moved = total.reshape(w, w, f, f).permute(order)
                gram[s].view(moved.shape).copy_(moved)
        return gram, rhs

    # -- a product per slice ---------------------------------------------------------------------------

    def sums_by_slice(self, source: RowSource, values: torch.Tensor, first: int, last: int) -> Equations:
        """On the CPU: runs of rows that stay in cache, shared by our threads.

        NumPy sees that ``x.T @ x`` is symmetric and does half the arithmetic.
        """
        gram, rhs = self._zeros(source, last - first)
        # Only NumPy within the threads: torch would start more threads in each.
        rows_of, order, y = _reader(source), self.order.numpy(), values.numpy()
        scales = None if self.scale is None else self.scale.numpy()
        totals, sides = gram.numpy(), rhs.numpy()
        # Rows at least four times the width: a Gram matrix is added up once per product.
        step = max(64, RUN_BYTES // (8 * source.row_entries), 4 * source.width)

        def add(task: tuple[int, int]) -> list[tuple[int, Any, Any]]:
            """Add up entries; returned are sums of slices that have more of them elsewhere."""
            begin, end = task
            shared: list[tuple[int, Any, Any]] = []
            for a in range(begin, end, step):
                b = min(a + step, end)
                rows = rows_of(order[a:b])
                mine = y[order[a:b]].astype(rows.dtype, copy=False)
                if scales is not None:
                    scale = scales[a:b].astype(rows.real.dtype, copy=False)
                    rows, mine = rows * scale[:, None], mine * scale
                start, s = a, bisect_right(self.starts, a) - 1
                while start < b:
                    stop = min(self.starts[s + 1], b)
                    x = rows[start - a : stop - a]
                    dual = x.conj().T if x.dtype.kind == "c" else x.T
                    right = dual @ mine[start - a : stop - a]
                    if begin <= self.starts[s] and self.starts[s + 1] <= end:
                        g, m = totals[s - first], sides[s - first]
                    else:
                        if not shared or shared[-1][0] != s:
                            shared.append((s, np.zeros_like(totals[0]), np.zeros_like(sides[0])))
                        _, g, m = shared[-1]
                    if start == max(begin, self.starts[s]):
                        np.matmul(dual, x, out=g)
                    else:
                        g += dual @ x
                    m += right
                    start, s = stop, s + 1
            return shared

        rows = self.starts[last] - self.starts[first]
        threads = min(usable_cores(), 16) if rows * source.width**2 > WORTH_THREADS else 0
        tasks = self._tasks(first, last, max(step, rows // (8 * threads)) if threads else rows)
        for shared in map_in_order(add, tasks, threads, lasting=True):
            for s, g, m in shared:
                totals[s - first] += g
                sides[s - first] += m
        return gram, rhs

    def _tasks(self, first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
        """Runs of about `size` entries, of whole slices unless these are several times longer."""
        begin, end = self.starts[first], self.starts[last]
        while begin < end:
            stop = self.starts[bisect_left(self.starts, min(begin + size, end))]
            if stop > begin + 3 * size:
                stop = begin + 2 * size
            yield begin, stop
            begin = stop

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
        return positions.reshape(-1), slices, [0, *before.tolist()]

    @cached_property
    def _block_entries(self) -> torch.Tensor:
        """The entries of all blocks, any one in place of padding."""
        return self.order[self._blocks[0].clamp_min(0)]

    @cached_property
    def _block_scale(self) -> torch.Tensor:
        """Roots of the weights of the entries of all blocks; 0 for padding."""
        positions = self._blocks[0]
        if self.scale is None:
            return (positions >= 0).to(torch.float32)
        return (positions >= 0) * self.scale[positions.clamp_min(0)]

    @cached_property
    def _bounds(self) -> torch.Tensor:
        """Blocks before each slice, and the number of all of them, on the device."""
        return torch.searchsorted(self._blocks[1], torch.arange(self.size + 1, device=self.device))

    def prepare(self, values: torch.Tensor, dtype: torch.dtype) -> object:
        """Make, and keep, what all sums by blocks of these values with rows of this type share."""
        self.keep(values, dtype)
        return self._bounds, self._in_blocks(values, dtype)

    def keep(self, values: torch.Tensor, dtype: torch.dtype) -> None:
        """Keep what is made of these values for sums with rows of this type, in place of those before."""
        self._kept = TableValues(values, dtype)

    def _of(self, values: torch.Tensor, dtype: torch.dtype) -> TableValues:
        """What is kept of these values, or where to put it.

        That of others is not kept: within a recorded sweep it would lie where the next one computes.
        """
        kept = self._kept
        is_same = kept is not None and kept.values is values and kept.dtype == dtype
        return kept if kept is not None and is_same else TableValues(values, dtype)

    def _weighted(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Values by their weights, sorted by slice."""
        held = self._of(values, dtype)
        if held.weighted is None:
            mine = values[self.order]
            held.weighted = (mine if self.scale is None else mine * self.scale.square()).to(dtype)
        return held.weighted

    def _in_blocks(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Values by the roots of their weights, a column per block; zeros for padding."""
        held = self._of(values, dtype)
        if held.in_blocks is None:
            y = values[self._block_entries].to(dtype) * self._block_scale.to(dtype)
            held.in_blocks = y.reshape(-1, self._block, 1)
        return held.in_blocks

    def sums_by_block(self, source: RowSource, values: torch.Tensor, first: int, last: int) -> Equations:
        """Batched products of blocks of equal length, then a sum over the blocks of a slice."""
        gram, rhs = self._add_blocks(source, values, first, last, grams=True)
        return gram, rhs

    def _add_blocks(
        self, source: RowSource, values: torch.Tensor, first: int, last: int, *, grams: bool
    ) -> tuple[torch.Tensor, ...]:
        """Gram matrices, if these are asked for, and right-hand sides of some slices."""
        _, slices, before = self._blocks
        width, size = source.width, self._block
        step = max(1, CHUNK_BYTES[self.device.type] // (8 * (size * source.row_entries + width * width)))
        y = self._in_blocks(values, source.dtype)
        totals: tuple[torch.Tensor, ...] = ()
        for a in range(before[first], before[last], step):
            b = min(a + step, before[last])
            block = slice(a * size, b * size)
            rows = source.rows(self._block_entries[block])
            rows = (rows * self._block_scale[block].to(rows.dtype)[:, None]).reshape(b - a, size, width)
            dual = rows.mH
            sides = (dual @ y[a:b])[:, :, 0]
            products = (dual @ rows, sides) if grams else (sides,)
            if self.device.type == "cuda" and b - a == len(slices):  # one run of blocks for each slice
                return tuple(sum_runs(self._bounds, p) for p in products)
            if not totals:
                totals = tuple(p.new_zeros(last - first, *p.shape[1:]) for p in products)
            add_runs(slices[a:b] - first, *zip(totals, products))
        if not totals:
            totals = self._zeros(source, last - first)[0 if grams else 1 :]
        return totals


@dataclass(eq=False)
class TableValues:
    """Values of entries in the order of a table, made once for many sums.

    Attributes
    ----------
    values
        In the order of all entries.
    dtype
        Number type of the rows that they are multiplied with.
    weighted, in_blocks
        See `SliceTable`; None where nobody has asked for them.
    """

    values: torch.Tensor
    dtype: torch.dtype
    weighted: torch.Tensor | None = None
    in_blocks: torch.Tensor | None = None


def rows_bytes(structure: Structure, count: int, item: int, device: str) -> int:
    """Bytes of environment rows of `count` entries that are held at a time: gathered, multiplied, weighted.

    Chunks count as many numbers of `item` bytes as there are of 8.
    """
    widest = max(structure.bond_product(k) for k in range(structure.num_nodes))
    return 4 * item * min(CHUNK_BYTES[device] // 8, 2 * count * widest)


def _weigh(
    source: RowSource, values: torch.Tensor | None, where: torch.Tensor, scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Environment rows and values of some entries, by the roots of their weights."""
    rows = source.rows(where)
    y = rows[:, 0] if values is None else values[where].to(rows.dtype)
    if scale is None:
        return rows, y
    scale = scale.to(rows.dtype)
    return rows * scale[:, None], y * scale


def _reader(source: RowSource) -> Callable[[Any], Any]:
    """A function that reads rows of entries into memory of the thread's own, valid until its next call."""
    table = source.table()
    if table is None or table[1] is None:
        return lambda where: source.rows(torch.from_numpy(where)).contiguous().numpy()
    rows, ids, width = table[0].numpy(), table[1].numpy(), source.width
    local = threading.local()

    def read(where: Any) -> Any:
        count = len(where)
        held = getattr(local, "held", None)
        if held is None or len(held) < count:
            local.held = held = np.empty((count, width), rows.dtype)
        mine = ids[where]
        pieces = held[:count].reshape(*mine.shape, rows.shape[1])
        return np.take(rows, mine, axis=0, out=pieces, mode="clip").reshape(count, width)

    return read
