"""New slices of an edge where only some entries are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..contraction import RowSource, RowTree
from ..structure import Edge, Structure
from .base import SliceFit

if TYPE_CHECKING:
    from .entries import ObservedLeastSquares

__all__ = [
    "SLICE_RIDGE",
    "ObservedPairProblem",
    "first_slice",
    "in_core_order",
    "largest",
    "slice_edges",
    "slice_shape",
]

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
        self.residual = residual

    def _shape(self, side: int) -> tuple[int, ...]:
        return slice_shape(self._tree.structure, self.edge, side)

    def source(self, side: int, given: torch.Tensor) -> RowSource:
        """Environment of the slice on one side, for a given slice on the other."""
        node, other = self.edge if side == 0 else self.edge[::-1]
        piece = given.reshape(self._shape(1 - side)).to(self._tree.cores[0].dtype)
        return self._tree.pair_environment(node, other, piece)

    def _edges(self, side: int) -> tuple[Edge, ...]:
        return slice_edges(self._tree.structure, self.edge, side)

    @cached_property
    def gradient(self) -> Array:
        """Column by column: the right-hand side of the left slice for every unit right slice."""
        table, structure = self._objective.index.table(self.edge[0]), self._tree.structure
        columns = []
        for k in range(math.prod(self._shape(1))):
            unit = self.residual.new_zeros(math.prod(self._shape(1)))
            unit[k] = 1.0
            source = self.source(0, unit)
            found = table.right_hand_side(source, self.residual)
            columns.append(in_core_order(structure, self.edge, 0, source.edges, found).reshape(-1))
        return torch.stack(columns, 1)

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Slices by alternating least squares; from a fixed random slice sharpened by power iterations."""
        objective = self._objective
        if right is None:
            right = self._start()
        left, explained = right, 0.0
        for _ in range(sweeps):
            right = right / largest(right)
            left, _ = self._improve(0, right)
            left = left / largest(left)
            right, explained = self._improve(1, left)
        if objective.num_held_out:
            explained = self.explained(left, right, objective.index.held_out)
        return SliceFit(left.reshape(-1), right.reshape(-1), explained)

    def _start(self) -> torch.Tensor:
        structure = self._tree.structure
        right = first_slice(structure, self.edge, self.residual.dtype).to(self.residual.device)
        for side in (0, 1):
            source = self.source(side, right / largest(right))
            table = self._objective.index.table(self.edge[side])
            found = table.right_hand_side(source, self.residual)
            right = in_core_order(structure, self.edge, side, source.edges, found).to(self.residual.dtype)
        return right

    def _improve(self, side: int, given: torch.Tensor) -> tuple[torch.Tensor, float]:
        zero = self.residual.new_zeros(self._shape(side))
        source = self.source(side, given)
        return self._objective.solve(
            self.edge[side], source, self._edges(side), zero, self.residual, SLICE_RIDGE
        )

    def explained(self, left: torch.Tensor, right: torch.Tensor, chosen: torch.Tensor) -> float:
        """By how much the slices lower the squared residual of some entries."""
        source = self.source(1, left)
        node = self.edge[1]
        flat = right.reshape(self._shape(1))
        edges = self._edges(1)
        moved = flat.permute(0, *(1 + edges.index(e) for e in source.edges)).reshape(flat.shape[0], -1)
        columns = self._objective.index.entries.columns
        rows = source.rows(chosen)
        mine = moved if node >= len(columns) else moved.index_select(0, columns[node][chosen])
        added = (rows * mine.to(rows.dtype)).sum(1).to(self.residual.dtype)
        before = self.residual[chosen]
        after = before - added
        norm = self._objective.norm_at
        full = torch.zeros_like(self.residual)
        full[chosen] = after
        return norm(self.residual, chosen) ** 2 - norm(full, chosen) ** 2


def slice_shape(structure: Structure, edge: Edge, side: int) -> tuple[int, ...]:
    """Axes of a slice: those of its core without the edge."""
    node, other = edge if side == 0 else edge[::-1]
    bonds = (structure.rank(node, k) for k in structure.neighbours[node] if k != other)
    return structure.leg_dim(node), *bonds


def slice_edges(structure: Structure, edge: Edge, side: int) -> tuple[Edge, ...]:
    """Bonds of a slice in the order of its axes."""
    node = edge[side]
    found = ((min(node, k), max(node, k)) for k in structure.neighbours[node])
    return tuple(e for e in found if e != edge)


def in_core_order(
    structure: Structure, edge: Edge, side: int, columns: Sequence[Edge], flat: torch.Tensor
) -> torch.Tensor:
    """A slice from numbers in the order of an environment's columns."""
    shape, edges = slice_shape(structure, edge, side), slice_edges(structure, edge, side)
    sizes = dict(zip(edges, shape[1:]))
    moved = flat.reshape(shape[0], *(sizes[e] for e in columns))
    return moved.permute(0, *(1 + columns.index(e) for e in edges))


def first_slice(structure: Structure, edge: Edge, dtype: torch.dtype) -> torch.Tensor:
    """A random right slice, the same each time."""
    seeded = torch.Generator().manual_seed(edge[0] * 1009 + edge[1])
    noise = torch.randn(slice_shape(structure, edge, 1), generator=seeded, dtype=torch.float64)
    return noise.to(dtype)


def largest(array: torch.Tensor) -> float:
    """Largest absolute value, never zero."""
    return max(float(array.abs().max()), 1e-30)
