"""Sums over all entries of a network, or of its square, with the environments of its nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ..structure import Edge, Structure
from .cache import cached
from .dimension_tree import best_tree
from .partials import PartialTree

Label = tuple[Edge, int]
"""An edge, and the layer it belongs to: 0 for the network, 1 for its conjugate."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Some nodes with their legs summed over: one axis per open edge and layer."""

    labels: tuple[Label, ...]
    array: torch.Tensor

    def join(self, other: Sums) -> Sums:
        """Contract over the labels that both have."""
        shared = [x for x in self.labels if x in other.labels]
        axes = [self.labels.index(x) for x in shared], [other.labels.index(x) for x in shared]
        free = (*(x for x in self.labels if x not in shared), *(x for x in other.labels if x not in shared))
        return Sums(free, torch.tensordot(self.array, other.array, dims=axes))

    def arrange(self, labels: Sequence[Label]) -> torch.Tensor:
        """The array with its axes in this order."""
        return self.array.permute([self.labels.index(x) for x in labels])


class SumTree(PartialTree[Sums]):
    """Environments of nodes in the sum over all entries (`layers` = 1), or over their squares (2)."""

    def __init__(self, structure: Structure, cores: Sequence[torch.Tensor], layers: int) -> None:
        super().__init__(best_tree(structure, rows=1, layers=layers), structure, cores)
        self.layers = layers

    def total(self) -> torch.Tensor:
        """The sum itself."""
        value = self._inner(self.root).array.reshape(())
        return value.real if value.is_complex() else value

    def environment(self, node: int, other: int | None = None, changed: Sums | None = None) -> Sums:
        """Everything but one node; `changed` stands for node `other` where given."""
        if self.root.node is not None:
            return Sums((), self.cores[0].new_ones(()))
        parts = self.around(node, other, changed)
        return parts[0] if len(parts) == 1 else parts[0].join(parts[1])

    def pair(self, pieces: Sequence[tuple[torch.Tensor, tuple[Edge, ...]]]) -> Sums:
        """One node with its leg summed over, from the tensor of each layer and the edges of its axes."""
        labels = tuple((e, layer) for layer, (_, edges) in enumerate(pieces) for e in edges)
        flat = [piece.reshape(len(piece), -1) for piece, _ in pieces]
        array = flat[0].sum(0) if len(flat) == 1 else flat[0].T @ flat[1].conj()
        return Sums(labels, array.reshape([n for piece, _ in pieces for n in piece.shape[1:]]))

    def entries(self, edge: Edge | None = None) -> float:
        """Numbers that all sums take together, at most; with one more rank on an edge where one is given.

        Inside and outside of every vertex, and the largest three times more: products copy what they join.
        """
        sizes = []
        for nodes, width in self._cuts:
            crosses = edge is not None and (edge[0] in nodes) != (edge[1] in nodes)
            more = 1.0 + 1.0 / self.structure.rank(*edge) if edge is not None and crosses else 1.0
            sizes.append((more * width) ** self.layers)
        return 2.0 * sum(sizes) + 3.0 * max(sizes)

    @cached_property
    def _cuts(self) -> list[tuple[frozenset[int], float]]:
        """Every set of nodes of the tree, with the product of the ranks that leave it."""
        cuts = []
        for vertex in self.root.walk():
            ranks = [
                r for (i, j), r in self.structure.ranks.items() if (i in vertex.nodes) != (j in vertex.nodes)
            ]
            cuts.append((vertex.nodes, float(math.prod(ranks))))
        return cuts

    def _of_node(self, node: int) -> Sums:
        return self.pair([(self.cores[node], self.structure.edges_of(node))] * self.layers)

    def _join(self, a: Sums, b: Sums) -> Sums:
        return a.join(b)


@cached
def sum_entries(structure: Structure, layers: int) -> float:
    """Numbers that the sums of a `SumTree` take together, at most."""
    return SumTree(structure, (), layers).entries()
