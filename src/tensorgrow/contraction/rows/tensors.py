"""Row tensors, their contraction, and environments formed from them on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ...structure import Edge
from .memory import allocate, reshape
from .sets import Entries, RowSet, Scratch


@dataclass(frozen=True, eq=False)
class RowTensor:
    """Values of a set of nodes: one row per combination, one axis per open edge.

    Attributes
    ----------
    layouts
        Where the numbers are kept in the orders of axes that were asked for; None where nothing is kept.
    row_axes
        Axes of the array that are its rows: two, the rows of both parts, where it is as a product left it.
    """

    rows: RowSet
    edges: tuple[Edge, ...]
    array: torch.Tensor
    layouts: dict[object, torch.Tensor] | None = None
    row_axes: int = 1

    def size(self, edges: Sequence[Edge]) -> int:
        shape, axes = self.array.shape, self._axes
        return math.prod([shape[axes[e]] for e in edges])

    @cached_property
    def _axes(self) -> dict[Edge, int]:
        """Axis of every edge; asked for so often that searching for it takes as long as a small product."""
        return {e: k for k, e in enumerate(self.edges, self.row_axes)}

    def matrices(self, first: Sequence[Edge], second: Sequence[Edge]) -> torch.Tensor:
        """One matrix per row: edges `first` by edges `second`."""
        axes = self._axes
        order = (*range(self.row_axes), *[axes[e] for e in first], *[axes[e] for e in second])
        shape = (self.rows.count, self.size(first), self.size(second))
        return self._kept(order, shape, lambda: reshape(self.array.permute(order), shape))

    def rows_inside(self, first: Sequence[Edge], second: Sequence[Edge]) -> torch.Tensor:
        """One matrix for all rows: edges `first` by rows and edges `second`."""
        axes = self._axes
        order = (*[axes[e] for e in first], *range(self.row_axes), *[axes[e] for e in second])
        shape = (self.size(first), self.rows.count * self.size(second))
        return self._kept(order, shape, lambda: reshape(self.array.permute(order), shape))

    def _kept(
        self, order: tuple[int, ...], shape: tuple[int, ...], make: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        if self.layouts is None:
            return make()
        key = order, shape
        if key not in self.layouts:
            self.layouts[key] = make()
        return self.layouts[key]


def free_and_shared(a: RowTensor, b: RowTensor) -> tuple[list[Edge], list[Edge], list[Edge]]:
    """Edges of only the first, of only the second, and of both."""
    shared = [e for e in a.edges if e in b.edges]
    return [e for e in a.edges if e not in shared], [e for e in b.edges if e not in shared], shared


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Row-wise matrix products ``(rows, p, c) x (rows, c, q)``."""
    if left.shape[2] == 1:
        return left * right
    if left.shape[1] == 1 and right.shape[2] == 1:
        return (left * right.transpose(1, 2)).sum(2, keepdim=True)
    return torch.bmm(left, right)


def take(array: torch.Tensor, rows: torch.Tensor | None, count: int) -> torch.Tensor:
    """Some rows of an array; with None, its only row `count` times."""
    if rows is None:
        return array.expand(count, *array.shape[1:])
    out = allocate((len(rows), *array.shape[1:]), array)
    return torch.index_select(array, 0, rows, out=out)


def join(entries: Entries, a: RowTensor, b: RowTensor, *, reuse: bool = False) -> RowTensor:
    """Contract two row tensors over the edges they share.

    With `reuse` the next result with `reuse` overwrites this one.
    """
    rows = entries.join(a.rows, b.rows)
    free_a, free_b, shared = free_and_shared(a, b)
    left = a.matrices(free_a, shared)
    sizes = [t.size([e]) for t, free in ((a, free_a), (b, free_b)) for e in free]
    if rows.left is not None and rows.right is not None:
        right = b.matrices(shared, free_b)
        array = _product(take(left, rows.left, rows.count), take(right, rows.right, rows.count))
    elif a.layouts is None and b.layouts is None:
        array = _all_combinations(left, b.rows_inside(shared, free_b), b.rows.count, entries.scratch, reuse)
    else:  # whoever needs the numbers in some order makes the one copy
        (n, p, _), m = left.shape, b.rows.count
        product = left.reshape(n * p, -1) @ b.rows_inside(shared, free_b)
        array = product.reshape(n, p, m, -1).transpose(1, 2).reshape(n, m, *sizes)
        return RowTensor(rows, (*free_a, *free_b), array, row_axes=2)
    return RowTensor(rows, (*free_a, *free_b), array.reshape(rows.count, *sizes))


def _all_combinations(
    left: torch.Tensor, right: torch.Tensor, count: int, scratch: Scratch, reuse: bool
) -> torch.Tensor:
    """Every row of `left` with every one of `count` rows inside `right`, rows of `left` slowest."""
    (n, p, c), (_, mq) = left.shape, right.shape
    shape = (n, count, p, mq // count)
    out = scratch.take("rows", shape, left) if reuse else allocate(shape, left)
    if p == 1:
        torch.mm(left.reshape(n, c), right, out=out.reshape(n, mq))
    else:
        product = _products(left, right, scratch).reshape(n, p, count, mq // count)
        out.copy_(product.transpose(1, 2))
    return out


def _products(left: torch.Tensor, right: torch.Tensor, scratch: Scratch) -> torch.Tensor:
    """All combinations of rows as one matrix product leaves them: ``(n * p, m * q)``."""
    n, p, c = left.shape
    flat = scratch.take("product", (n * p, right.shape[1]), left)
    return torch.mm(left.reshape(n * p, c), right, out=flat)


class RowSource:
    """Environment of one node at any of the entries, valid until the next one is formed.

    Attributes
    ----------
    parts
        One row tensor, or two whose product over the edges they share is the environment.
    edges
        Bonds of the node in the order of the columns.
    """

    def __init__(self, entries: Entries, parts: tuple[RowTensor, ...]) -> None:
        self.entries = entries
        self.parts = parts
        self._table: tuple[torch.Tensor, torch.Tensor | None] | None = None
        self.free, self.shared = self._split()
        self.edges = tuple(e for free in self.free for e in free)

    def _split(self) -> tuple[tuple[list[Edge], ...], list[Edge]]:
        if len(self.parts) == 1:
            return (list(self.parts[0].edges),), []
        free_a, free_b, shared = free_and_shared(*self.parts)
        return (free_a, free_b), shared

    @property
    def width(self) -> int:
        return math.prod(t.size(free) for t, free in zip(self.parts, self.free))

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].array.dtype

    @property
    def row_entries(self) -> int:
        """Numbers held per row while rows are formed."""
        if self.is_table:
            return self.width
        return self.width + sum(t.size(t.edges) for t in self.parts)

    @property
    def is_table(self) -> bool:
        """Whether rows are gathered from a table of all combinations, rather than formed on demand."""
        return len(self.parts) == 1 or self.entries.join(*(t.rows for t in self.parts)).left is None

    @property
    def pieces(self) -> int:
        """In how many pieces the table has each row; 0 where there is no table, or each row is whole.

        A matrix product leaves pieces. To bring them together moves all rows, which only pays where entries
        take each of them more than once. (Two parts of 512 rows of 3 columns each, 79,000 entries: 1.6 ms,
        and 2 ms to take the pieces; or 4.8 and 0.8 ms.)
        """
        if len(self.parts) == 1 or not self.is_table or self.entries.device.type != "cpu":
            return 0
        first, second = (part.rows for part in self.parts)
        several = first.ids is not None and second.ids is not None
        many = first.count * second.count >= self.entries.count
        return self.parts[0].size(self.free[0]) if several and many else 0

    def table(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """All rows and the row of each entry (None: one row for all); None if rows are formed on demand.

        Where rows are in `pieces`, those and the pieces of each entry. Computed when it is first asked for.
        """
        if not self.is_table:
            return None
        if self._table is None:
            self._table = self._in_pieces() if self.pieces > 1 else self._joined()
        return self._table

    def _joined(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        whole = self.parts[0] if len(self.parts) == 1 else join(self.entries, *self.parts, reuse=True)
        return whole.matrices((), whole.edges)[:, 0], whole.rows.ids

    def _in_pieces(self) -> tuple[torch.Tensor, torch.Tensor]:
        (a, b), (free_a, free_b) = self.parts, self.free
        left, right = a.matrices(free_a, self.shared), b.rows_inside(self.shared, free_b)
        flat, count = _products(left, right, self.entries.scratch), b.rows.count
        assert a.rows.ids is not None and b.rows.ids is not None
        first = a.rows.ids * (left.shape[1] * count) + b.rows.ids
        pieces = torch.arange(left.shape[1], device=first.device)
        return flat.reshape(-1, right.shape[1] // count), first[:, None] + count * pieces

    def part(self, k: int) -> RowSource:
        """One of two parts alone; its columns are the bonds to the other part, then its own of the node."""
        part, edges = self.parts[k], (*self.shared, *self.free[k])
        sizes = [part.size([e]) for e in edges]
        array = part.matrices(self.shared, self.free[k]).reshape(part.rows.count, *sizes)
        return RowSource(self.entries, (RowTensor(part.rows, edges, array),))

    @property
    def square_entries(self) -> int:
        """Numbers of `squares`: the bonds between the parts count twice."""
        return sum(t.array.numel() * t.size(self.shared) for t in self.parts)

    def squares(self) -> RowSource:
        """The squared absolute values of this environment, of two parts, in double precision.

        The square of a sum over the bonds between them is a sum over pairs of these bonds.
        """
        pairs = []
        for part, free in zip(self.parts, self.free):
            wide = part.matrices(self.shared, free)
            wide = wide.to(torch.complex128 if wide.is_complex() else torch.float64)
            both = wide[:, :, None] * wide[:, None].conj()
            pairs.append(both.reshape(len(both), -1, both.shape[-1]))
        if self.dtype.is_complex:  # half of the pairs are conjugates of the others
            first, second = (torch.view_as_real(p) for p in pairs)
            pairs = [torch.cat([first[..., 0], -first[..., 1]], 1), torch.cat(list(second.unbind(-1)), 1)]
        bond = (-1, -1)
        tensors = []
        for part, free, both in zip(self.parts, self.free, pairs):
            sizes = [part.size([e]) for e in free]
            tensors.append(RowTensor(part.rows, (bond, *free), both.reshape(*both.shape[:2], *sizes)))
        return RowSource(self.entries, tuple(tensors))

    def rows(self, entries: torch.Tensor) -> torch.Tensor:
        """Environment of some entries, ``(len(entries), width)``."""
        count = len(entries)
        table = self.table()
        if table is not None:
            rows, ids = table
            return take(rows, None if ids is None else ids[entries].reshape(-1), count).reshape(count, -1)
        a, b = self.parts
        left, right = a.matrices(self.free[0], self.shared), b.matrices(self.shared, self.free[1])
        product = _product(take(left, a.rows.of(entries), count), take(right, b.rows.of(entries), count))
        return product.reshape(count, -1)
