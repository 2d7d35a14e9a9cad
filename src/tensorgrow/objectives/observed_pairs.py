"""New slices of an edge where only some entries are known."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..contraction import RowSource, RowTree
from ..structure import Edge
from .base import SliceFit

if TYPE_CHECKING:
    from .observed import ObservedLeastSquares

__all__ = ["ObservedPairProblem"]

Array = Any

# Scoring needs only rough slices; a larger ridge against rounding keeps them tame.
SLICE_RIDGE = 1e-12


class ObservedPairProblem:
    """New slices of one edge from the residual at the entries."""

    def __init__(
        self, objective: ObservedLeastSquares, tree: RowTree, edge: Edge, residual: torch.Tensor
    ) -> None:
        self.edge = edge
        self._objective = objective
        self._tree = tree
        self._residual = residual

    def _shape(self, side: int) -> tuple[int, ...]:
        """Axes of a slice: those of its core without the edge."""
        node, other = self.edge if side == 0 else self.edge[::-1]
        structure = self._tree.structure
        bonds = (structure.rank(node, k) for k in structure.neighbours[node] if k != other)
        return structure.leg_dim(node), *bonds

    def _source(self, side: int, given: torch.Tensor) -> RowSource:
        node, other = self.edge if side == 0 else self.edge[::-1]
        piece = given.reshape(self._shape(1 - side)).to(self._tree.cores[0].dtype)
        return self._tree.pair_environment(node, other, piece)

    def _edges(self, side: int) -> tuple[Edge, ...]:
        return tuple(e for e in self._tree.edges(self.edge[side]) if e != self.edge)

    @cached_property
    def gradient(self) -> Array:
        """Column by column: the right-hand side of the left slice for every unit right slice."""
        table = self._objective.index.table(self.edge[0])
        columns = []
        for k in range(math.prod(self._shape(1))):
            unit = self._residual.new_zeros(math.prod(self._shape(1)))
            unit[k] = 1.0
            source = self._source(0, unit)
            found = table.right_hand_side(source, self._residual)
            columns.append(self._in_core_order(0, source, found).reshape(-1))
        return torch.stack(columns, 1)

    def _in_core_order(self, side: int, source: RowSource, flat: torch.Tensor) -> torch.Tensor:
        shape, edges = self._shape(side), self._edges(side)
        sizes = dict(zip(edges, shape[1:]))
        moved = flat.reshape(shape[0], *(sizes[e] for e in source.edges))
        return moved.permute(0, *(1 + source.edges.index(e) for e in edges))

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Slices by alternating least squares; from a fixed random slice sharpened by power iterations."""
        objective = self._objective
        if right is None:
            right = self._start()
        left, explained = right, 0.0
        for _ in range(sweeps):
            right = right / _largest(right)
            left, _ = self._improve(0, right)
            left = left / _largest(left)
            right, explained = self._improve(1, left)
        if objective.num_held_out:
            explained = self._explained(left, right, objective.index.held_out)
        return SliceFit(left.reshape(-1), right.reshape(-1), explained)

    def _start(self) -> torch.Tensor:
        seeded = torch.Generator().manual_seed(self.edge[0] * 1009 + self.edge[1])
        noise = torch.randn(self._shape(1), generator=seeded, dtype=torch.float64)
        right = noise.to(device=self._residual.device, dtype=self._residual.dtype)
        for side in (0, 1):
            source = self._source(side, right / _largest(right))
            table = self._objective.index.table(self.edge[side])
            found = table.right_hand_side(source, self._residual)
            right = self._in_core_order(side, source, found).to(self._residual.dtype)
        return right

    def _improve(self, side: int, given: torch.Tensor) -> tuple[torch.Tensor, float]:
        zero = self._residual.new_zeros(self._shape(side))
        source = self._source(side, given)
        return self._objective.solve(
            self.edge[side], source, self._edges(side), zero, self._residual, SLICE_RIDGE
        )

    def _explained(self, left: torch.Tensor, right: torch.Tensor, chosen: torch.Tensor) -> float:
        """By how much the slices lower the squared residual of some entries."""
        source = self._source(1, left)
        node = self.edge[1]
        flat = right.reshape(self._shape(1))
        edges = self._edges(1)
        moved = flat.permute(0, *(1 + edges.index(e) for e in source.edges)).reshape(flat.shape[0], -1)
        columns = self._objective.index.entries.columns
        rows = source.rows(chosen)
        mine = moved if node >= len(columns) else moved.index_select(0, columns[node][chosen])
        added = (rows * mine.to(rows.dtype)).sum(1).to(self._residual.dtype)
        before = self._residual[chosen]
        after = before - added
        norm = self._objective.norm_at
        full = torch.zeros_like(self._residual)
        full[chosen] = after
        return norm(self._residual, chosen) ** 2 - norm(full, chosen) ** 2


def _largest(array: torch.Tensor) -> float:
    return max(float(array.abs().max()), 1e-30)
