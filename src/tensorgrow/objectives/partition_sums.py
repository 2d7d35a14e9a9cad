"""Sums over parts of the entries, as normal equations of one core."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..structure import Edge
from .entry_sums import ranges_of
from .partition_tasks import Sums

__all__ = ["ReducedSums", "added", "total_of"]

Array = Any


class ReducedSums:
    """Normal equations of one core from all parts, some slices at a time.

    Parameters
    ----------
    width
        Columns of the environment.
    counts
        Fitted entries of every slice.
    sums
        Bonds, Gram matrices and right-hand sides of a run of slices.
    squares
        Sum of the diagonals of all Gram matrices.
    """

    def __init__(
        self,
        width: int,
        counts: Array,
        sums: Callable[[int, int], Sums],
        squares: Callable[[], float],
    ) -> None:
        self.width = width
        self.size = len(counts)
        self.ranges = ranges_of(self.size, width, "cpu")
        self.filled, self.empty = (torch.from_numpy(np.flatnonzero(x)) for x in (counts > 0, counts == 0))
        self._sums, self._squares = sums, squares
        self._ahead: tuple[tuple[int, int], Sums] | None = None

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Bonds in the order of the columns: known from the first sums."""
        where = self.ranges[0]
        self._ahead = where, self._sums(*where)
        return self._ahead[1][0]

    def squared_norm(self) -> float:
        """Sum of the diagonals of all Gram matrices."""
        return self._squares()

    def sums(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Gram matrices and right-hand sides of slices `first` to `last`."""
        if self._ahead is not None and self._ahead[0] == (first, last):
            (_, gram, rhs), self._ahead = self._ahead[1], None
        else:
            _, gram, rhs = self._sums(first, last)
        return torch.from_numpy(gram), torch.from_numpy(rhs)


def added(found: Iterable[Sums]) -> Sums:
    """Sums of all parts together, in double precision."""
    columns: tuple[Edge, ...] = ()
    gram, rhs = Total(), Total()
    for columns, g, m in found:  # noqa: B007 - the same for all
        gram.add(g)
        rhs.add(m)
    return columns, gram.value, rhs.value


def total_of(found: Iterable[Array]) -> torch.Tensor:
    """Sum of arrays, in double precision."""
    total = Total()
    for array in found:
        total.add(array)
    return torch.from_numpy(total.value)


class Total:
    """A sum of arrays in double precision, in one place."""

    def __init__(self) -> None:
        self.value: Array = None

    def add(self, array: Array) -> None:
        """Add one more."""
        if self.value is None:
            wide = np.complex128 if array.dtype.kind == "c" else np.float64
            self.value = np.array(array, dtype=wide, order="C")
        else:
            self.value += array
