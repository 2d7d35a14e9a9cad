"""New slices of an edge where only some entries are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch

from ..algebra.linalg import Number
from ..contraction import Array, RowSource, RowTree
from ..structure import Edge, Structure
from .entry_batches import EntryPairBatch
from .entry_cores import SliceSums, solve_core
from .slices import (
    SLICE_RIDGE,
    PairProblem,
    SliceFit,
    alternate,
    draw_slice,
    fit_unwatched,
    random_slice,
    rescale,
    sharpen,
    slice_edges,
    slice_shape,
)

if TYPE_CHECKING:
    from .base import HeldOut
    from .entries import ObservedLeastSquares


class EntryPairProblem(PairProblem):
    """New slices of one edge from the residual at the entries; `batch` fits it with others, where it can."""

    def __init__(
        self,
        objective: ObservedLeastSquares,
        tree: RowTree,
        edge: Edge,
        residual: torch.Tensor,
        batch: EntryPairBatch | None = None,
    ) -> None:
        self.edge = edge
        self._batch = batch
        self._objective = objective
        self._tree = tree
        self.residual = residual
        self._last: tuple[int, torch.Tensor, RowSource] | None = None

    def _shape(self, side: int) -> tuple[int, ...]:
        return slice_shape(self._tree.structure, self.edge, side)

    def source(self, side: int, other: torch.Tensor) -> RowSource:
        """Environment of the slice on one side, when the other end holds the slice `other`."""
        if self._last is not None and self._last[0] == side and self._last[1] is other:
            return self._last[2]
        node, neighbour = self.edge if side == 0 else self.edge[::-1]
        piece = other.reshape(self._shape(1 - side)).to(self._tree.cores[0].dtype)
        source = self._tree.pair_environment(node, neighbour, piece)
        self._last = side, other, source
        return source

    @cached_property
    def gradient(self) -> Array:
        units = torch.eye(math.prod(self._shape(1)), dtype=self.residual.dtype, device=self.residual.device)
        return torch.stack([self._right_hand_side(0, unit).reshape(-1) for unit in units], 1)

    def _right_hand_side(self, side: int, other: torch.Tensor) -> torch.Tensor:
        source = self.source(side, other)
        flat = self._objective.index.table(self.edge[side]).right_hand_side(source, self.residual)
        return in_core_order(self._tree.structure, self.edge, side, source.edges, flat)

    def draw(self, generator: torch.Generator) -> Array:
        return draw_slice(self._tree.structure, self.edge, generator).to(self.residual)

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        if right is None and self._batch is not None:
            found = self._batch.fit(self.edge, sweeps)
            if found is not None:
                return found
        start: torch.Tensor = self._start() if right is None else right
        return fit_unwatched(partial(self._fit, start, sweeps), start)

    def _fit(self, start: torch.Tensor, sweeps: int, careful: bool) -> SliceFit:
        left, best, explained = alternate(partial(self._improve, careful=careful), start, sweeps)
        if self._objective.num_held_out:
            explained = self.gain(left, best, self._objective.index.held_out)
        return SliceFit(left.reshape(-1), best.reshape(-1), float(explained))

    def _start(self) -> torch.Tensor:
        right = random_slice(self._tree.structure, self.edge, self.residual.dtype).to(self.residual.device)

        def apply(side: int, other: torch.Tensor) -> torch.Tensor:
            return self._right_hand_side(side, other).to(self.residual.dtype)

        return sharpen(apply, right, rescale)

    def _improve(self, side: int, other: torch.Tensor, careful: bool) -> tuple[torch.Tensor, Number]:
        table = self._objective.index.table(self.edge[side])
        equations = table.equations(self.source(side, other), self.residual, self._objective.ridge)
        objective, explain = self._objective, side == 1 and not self._objective.num_held_out
        return solve_slice(
            equations, self._tree.structure, self.edge, side, objective, careful=careful, explain=explain
        )

    def gain(self, left: torch.Tensor, right: torch.Tensor, entries: torch.Tensor) -> float:
        """By how much the slices lower the squared residual of some entries."""
        edges = slice_edges(self._tree.structure, self.edge, 1)
        piece = right.reshape(self._shape(1))
        added = self._objective.apply(self.edge[1], self.source(1, left), edges, piece, entries)
        before = self.residual[entries]
        after = before - added.to(before.dtype)
        return self._objective.norm_at(before, entries) ** 2 - self._objective.norm_at(after, entries) ** 2


def solve_slice(
    equations: SliceSums,
    structure: Structure,
    edge: Edge,
    side: int,
    objective: HeldOut,
    *,
    careful: bool = True,
    explain: bool = True,
) -> tuple[torch.Tensor, Number]:
    """Best slice on one side of an edge, and by how much it lowers the squared residual.

    It may be negative even where its core may not: whoever adds it changes the core with it (`moves.part`).
    What must be added to cores that stay as they are hardly lowers the residual, and would say little of
    what the edge can do.
    """
    shape, penalty = slice_shape(structure, edge, side), objective.penalties.of(edge[side])
    penalty = None if penalty is None else replace(penalty, nonnegative=False)
    zero = torch.zeros(shape, dtype=objective.dtype, device=equations.empty.device)
    return solve_core(
        equations,
        slice_edges(structure, edge, side),
        zero,
        objective.ridge,
        SLICE_RIDGE,
        penalty,
        careful=careful or penalty is not None,
        explain=explain,
    )


def in_core_order(
    structure: Structure, edge: Edge, side: int, columns: Sequence[Edge], flat: torch.Tensor
) -> torch.Tensor:
    """A slice from numbers in the order of an environment's columns."""
    shape, edges = slice_shape(structure, edge, side), slice_edges(structure, edge, side)
    sizes = dict(zip(edges, shape[1:]))
    moved = flat.reshape(shape[0], *(sizes[e] for e in columns))
    return moved.permute(0, *(1 + columns.index(e) for e in edges))
