"""Cross approximation along a tree: a network from the values of a function at chosen points.

Every edge of the tree parts the axes in two. A few *rows*, points of the axes on one side, and as many
*columns* on the other span what the function does across that cut. Then the values at all combinations of the
rows below a node with its own leg and the columns above it are its core, up to the inverse of a small matrix
on every edge. A network with as many parameters as points is exact where the function has such ranks,
whatever its values are. For a train this is TT-cross; here the tree is one that the function asks for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ..algebra.pivots import find_pivots
from ..data.evaluations import Evaluations
from ..network import TensorNetwork
from .state import packable
from .trees import TreeNode, assemble


@packable
@dataclass(frozen=True)
class Skeleton:
    """A tree with rows and columns on every edge.

    Attributes
    ----------
    nodes
        By the legs below them, as bit masks: their own leg, and the subtrees below.
    rows, columns
        By the legs below an edge: points of the whole grid, of which only one side of the edge counts.
    """

    nodes: dict[int, tuple[int | None, tuple[int, ...]]]
    rows: dict[int, torch.Tensor] = field(default_factory=dict)
    columns: dict[int, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Mapping[int, TreeNode]) -> Skeleton:
        """A tree without any pivot."""
        return cls({mask: tuple(node) for mask, node in nodes.items()})

    @property
    def top(self) -> int:
        """All legs."""
        return max(self.nodes)

    @property
    def ranks(self) -> dict[int, int]:
        """The rank of every edge."""
        return {mask: len(rows) for mask, rows in self.rows.items()}

    def spanned(self, points: torch.Tensor, values: torch.Tensor, tolerance: float) -> Skeleton:
        """Rows and columns from a part of the grid on which all values are known.

        Parameters
        ----------
        points, values
            Of shapes ``(*sizes, order)`` and ``sizes``.
        """
        rows, columns, order = {}, {}, values.dim()
        for mask in self.nodes:
            if mask == self.top:
                continue
            below = _legs(mask, order)
            axes = [*below, *(k for k in range(order) if k not in below)]
            count = math.prod(values.shape[k] for k in below)
            matrix = values.permute(axes).reshape(count, -1)
            table = points.permute(*axes, order).reshape(*matrix.shape, order)
            i, j = find_pivots(matrix, tolerance)
            rows[mask], columns[mask] = table[i, 0], table[0, j]
        return Skeleton(self.nodes, rows, columns)

    def cost(self, shape: tuple[int, ...]) -> int:
        """Points of all cores."""
        ranks = {**self.ranks, self.top: 1}
        return sum(
            ranks[mask] * (1 if leg is None else shape[leg]) * math.prod(ranks[c] for c in children)
            for mask, (leg, children) in self.nodes.items()
        )

    def grow(self, points: torch.Tensor, evaluations: Evaluations, tolerance: float) -> Skeleton:
        """Add points as rows and columns to every edge that they tell something new of.

        Parameters
        ----------
        tolerance
            What is not new: an entry that the pivots of an edge explain up to this.
        """
        rows, columns = {}, {}
        for mask in self.nodes:
            if mask == self.top:
                continue
            above, below = (
                torch.cat([old[mask], points]) if mask in old else points for old in (self.rows, self.columns)
            )
            matrix = evaluations.at(_cross(above, below, mask))
            first = len(self.rows.get(mask, ()))
            i, j = find_pivots(matrix, tolerance, first=first)
            rows[mask], columns[mask] = above[i], below[j]
        return Skeleton(self.nodes, rows, columns)

    def network(self, evaluations: Evaluations) -> TensorNetwork:
        """The cross approximation."""
        order = len(evaluations.shape)
        internal = [mask for mask, (leg, _) in self.nodes.items() if leg is None]
        number = {mask: leg for mask, (leg, _) in self.nodes.items() if leg is not None}
        number |= {mask: order + k for k, mask in enumerate(internal)}
        parents = {child: mask for mask, (_, children) in self.nodes.items() for child in children}
        pieces = {}
        for mask, (_, children) in self.nodes.items():
            core = evaluations.at(self._combinations(mask, evaluations.shape))
            near = [number[c] for c in children]
            if mask != self.top:
                square = evaluations.at(_cross(self.rows[mask], self.columns[mask], mask))
                core = torch.linalg.solve(square.T, core.movedim(1, 0).reshape(len(square), -1)).reshape(
                    len(square), core.shape[0], *core.shape[2:]
                )
                core, near = core.movedim(0, 1), [number[parents[mask]], *near]
            else:
                core = core.squeeze(1)
            pieces[number[mask]] = core, near
        return assemble(evaluations.shape, pieces)

    def _combinations(self, mask: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Points of a core: all of its leg, times the columns above, times the rows of every subtree."""
        leg, children = self.nodes[mask]
        order = len(shape)
        points = self.columns[mask] if mask != self.top else torch.zeros((1, order), dtype=torch.int64)
        points = points.expand(1 if leg is None else shape[leg], *points.shape).clone()
        if leg is not None:
            points[..., leg] = torch.arange(shape[leg])[:, None]
        for child in children:
            rows, legs = self.rows[child], _legs(child, order)
            points = points[..., None, :].repeat(*(1,) * (points.dim() - 1), len(rows), 1)
            points[..., legs] = rows[:, legs]
        return points


def _cross(rows: torch.Tensor, columns: torch.Tensor, mask: int) -> torch.Tensor:
    """Points that have the legs in a mask from one of the rows, and the others from one of the columns."""
    legs = _legs(mask, rows.shape[1])
    points = columns.expand(len(rows), *columns.shape).clone()
    points[..., legs] = rows[:, None, legs]
    return points


def _legs(mask: int, order: int) -> list[int]:
    return [k for k in range(order) if mask >> k & 1]
