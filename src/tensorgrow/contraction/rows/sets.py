"""Which combinations of indices occur among listed entries: the rows of row tensors, and index tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..dimension_tree import Tree
from .memory import allocate

# All combinations of a set are computed, as one matrix product, while there are at most this many per entry:
# rows gathered entry by entry cost several times more each.
DENSE_FACTOR = 4.0
# From this many distinct combinations per entry on, every entry gets a row of its own.
ALL_DIFFERENT = 0.8
# Index tables kept for joins of row sets: so many, and more where there are many legs (a sweep makes about
# three for each) while they hold at most so many numbers in all.
KEPT_JOINS = 64
JOINS_PER_LEG = 4
KEPT_NUMBERS = 1 << 25


def is_dense(combinations: int, count: int) -> bool:
    """Whether a joined set of `count` entries has a row for each of all combinations."""
    return combinations <= DENSE_FACTOR * count


def most_rows(combinations: int, count: int) -> int:
    """Rows that a joined set of `count` entries has at most."""
    return combinations if is_dense(combinations, count) else min(combinations, count)


@dataclass(frozen=True, eq=False)
class RowSet:
    """Distinct combinations of the indices of some nodes."""

    key: Tree  # the nested nodes it was joined from
    ids: torch.Tensor | None  # row of every entry; None when there is one row for all
    count: int  # number of rows
    # For joined sets whose rows are not all combinations: the rows of both parts behind each row.
    left: torch.Tensor | None = None
    right: torch.Tensor | None = None

    def of(self, entries: torch.Tensor | slice) -> torch.Tensor | None:
        return None if self.ids is None else self.ids[entries]


class Scratch:
    """Memory that large results are written to again and again; CUDA tensors come from a cache anyway."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """A tensor with any numbers in it, overwritten by the next one of that name."""
        if like.device.type != "cpu":
            return like.new_empty(shape)
        count = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.dtype != like.dtype or len(held) < count:
            self._held[name] = held = allocate((count,), like)
        return held[:count].reshape(shape)


class Entries:
    """Positions of listed entries, and their row sets.

    Parameters
    ----------
    indices
        Integers of shape ``(n, order)``, on the device to compute on.
    dims
        Shape of the tensor.
    rows
        Entries that sets are joined for: all of them, where these are only some. Parts of one list must agree
        on the order of contractions.
    """

    def __init__(self, indices: torch.Tensor, dims: Sequence[int], rows: int | None = None) -> None:
        self.columns = [indices[:, k].contiguous() for k in range(len(dims))]
        self.dims = tuple(dims)
        self.count = indices.shape[0]
        self.rows = self.count if rows is None else rows
        self.device = indices.device
        self.scratch = Scratch()
        self._joins: dict[Tree, RowSet] = {}
        affordable = KEPT_NUMBERS // max(3 * self.count, 1)
        self._most_joins = max(KEPT_JOINS, min(JOINS_PER_LEG * len(dims), affordable))

    def leaf(self, node: int) -> RowSet:
        """Rows of one node: its slices; one row for an internal node."""
        if node >= len(self.dims):
            return RowSet(node, None, 1)
        return RowSet(node, self.columns[node], self.dims[node])

    def join(self, a: RowSet, b: RowSet) -> RowSet:
        """Rows of two disjoint sets together, kept for next time."""
        key = (a.key, b.key)
        joined = self._joins.pop(key, None) or self._join(a, b, key)
        self._joins[key] = joined  # now the last one used
        if len(self._joins) > self._most_joins:
            del self._joins[next(iter(self._joins))]
        return joined

    def _join(self, a: RowSet, b: RowSet, key: Tree) -> RowSet:
        if a.ids is None or b.ids is None:
            one = b if a.ids is None else a
            return RowSet(key, one.ids, a.count * b.count)
        codes = a.ids * b.count + b.ids
        if is_dense(a.count * b.count, self.count):
            return RowSet(key, codes, a.count * b.count)
        distinct, ids = torch.unique(codes, return_inverse=True)
        if len(distinct) >= ALL_DIFFERENT * self.count:
            everyone = torch.arange(self.count, device=self.device)
            return RowSet(key, everyone, self.count, a.ids, b.ids)
        left = torch.div(distinct, b.count, rounding_mode="floor")
        return RowSet(key, ids, len(distinct), left, distinct - left * b.count)
