"""The core that solves the normal equations of all its slices, wherever their sums come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..algebra.linalg import solve_slices
from ..contraction import RowSource
from ..structure import Edge
from .entry_sums import SliceTable, ranges_of

__all__ = ["LocalSums", "SliceSums", "solve_core", "wide"]

# The least ridge: it decides what the entries leave open.
LEAST_RIDGE = 1e-14
# Bytes of Gram matrices that are solved together.
SOLVE_BYTES = {"cpu": 1 << 24, "cuda": 1 << 30}


class SliceSums(Protocol):
    """Normal equations of one core, a Gram matrix per slice, some slices at a time."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Bonds of the core in the order of the columns."""

    @property
    def width(self) -> int:
        """Number of columns."""

    @property
    def size(self) -> int:
        """Number of slices."""

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Runs of slices whose Gram matrices fit in memory together."""

    @property
    def filled(self) -> torch.Tensor:
        """Slices that have entries."""

    @property
    def empty(self) -> torch.Tensor:
        """Slices that have none."""

    def squared_norm(self) -> float:
        """Sum of the diagonals of all Gram matrices."""

    def sums(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Gram matrices and right-hand sides of slices `first` to `last`."""


@dataclass(frozen=True)
class LocalSums:
    """Sums over entries in memory."""

    table: SliceTable
    source: RowSource
    values: torch.Tensor

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Bonds of the core in the order of the columns."""
        return self.source.edges

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.source.width

    @property
    def size(self) -> int:
        """Number of slices."""
        return self.table.size

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Runs of slices whose Gram matrices fit in memory together."""
        return ranges_of(self.size, self.width, self.table.device.type)

    @property
    def filled(self) -> torch.Tensor:
        """Slices that have entries."""
        return self.table.filled

    @property
    def empty(self) -> torch.Tensor:
        """Slices that have none."""
        return self.table.empty

    def squared_norm(self) -> float:
        """Sum of the diagonals of all Gram matrices."""
        return self.table.squared_norm(self.source)

    def sums(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Gram matrices and right-hand sides of slices `first` to `last`."""
        return self.table.sums(self.source, self.values, first, last)


def solve_core(
    given: SliceSums, edges: Sequence[Edge], core: torch.Tensor, ridge: float, numerical: float
) -> tuple[torch.Tensor, float]:
    """Best core for its normal equations, and by how much it lowers the squared residual.

    Parameters
    ----------
    edges
        Bonds in the order of the axes of the core.
    core
        The core that is replaced; only its form matters.
    ridge
        Relative to the mean diagonal of the Gram matrices.
    numerical
        Against rounding, relative to each diagonal entry.
    """
    order = [edges.index(e) for e in given.edges]
    moved = core.permute(0, *(1 + k for k in order))
    width, ranges = given.width, given.ranges
    mean = given.squared_norm() / (given.size * width) if len(ranges) > 1 else None
    found, explained = [], torch.zeros((), dtype=torch.float64, device=core.device)
    for first, last in ranges:
        grams, sides = given.sums(first, last)
        if mean is None:
            mean = float(grams.diagonal(dim1=1, dim2=2).real.double().mean())
        weight = max(ridge, LEAST_RIDGE) * mean + 1e-300
        # A few slices at a time: copies of all their matrices would cost more than the solves.
        step = max(1, SOLVE_BYTES[grams.device.type] // (8 * width * width))
        for a in range(0, last - first, step):
            gram, rhs = (t[a : a + step].to(wide(t.dtype)) for t in (grams, sides))
            penalised = gram.clone()
            penalised.diagonal(dim1=1, dim2=2).add_(weight)
            x = solve_slices(penalised, rhs, numerical)
            fit = (x.conj() * (gram @ x[:, :, None])[:, :, 0]).sum().real
            explained = explained + (2.0 * (x.conj() * rhs).sum().real - fit)
            found.append(x)
    back = [1 + order.index(k) for k in range(len(order))]
    x = torch.cat(found)
    if len(given.empty):
        x[given.empty] = x[given.filled].mean(0)
    return x.to(core.dtype).reshape(moved.shape).permute(0, *back).contiguous(), float(explained)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Double precision, real or complex."""
    return torch.complex128 if dtype.is_complex else torch.float64
