"""Environments at listed entries: cost in proportion to the entries, not to the dense tensor.

A *row tensor* over a set of nodes holds one row per distinct combination of the set's indices that occurs
among the listed entries, and the open bonds of the set. Small sets have few combinations, so most of the work
is done once and shared by all entries that agree on some indices; only the last product of an environment has
about as many rows as there are entries. Sets are joined along the dimension tree of the structure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from ...structure import Structure
from ..dimension_tree import best_tree
from ..partials import PartialTree, Vertex
from .sets import Entries, RowSet, most_rows
from .tensors import RowSource, RowTensor, free_and_shared, join, take

# Pairs of rows per entry up to which all of them are multiplied, as matrices, and a number for each entry is
# taken: a row that is gathered costs 20 to 50 times as much as one that is multiplied.
PAIRS_PER_ENTRY = 16


class RowTree(PartialTree[RowTensor]):
    """Partial contractions of a network at the entries, kept until a core they depend on changes.

    With `keeps_layouts`, their numbers are also kept in the orders of axes that products ask for: where the
    same contractions meet many others, as when edges are scored, a GPU otherwise spends most launches on
    copies. They take about twice as much memory again.
    """

    def __init__(
        self,
        entries: Entries,
        structure: Structure,
        cores: Sequence[torch.Tensor],
        *,
        keeps_layouts: bool = False,
    ) -> None:
        super().__init__(best_tree(structure, rows=entries.rows), structure, cores)
        self.entries = entries
        self.keeps_layouts = keeps_layouts

    def values(self, budget: int) -> torch.Tensor:
        """The represented tensor at all entries, about `budget` numbers at a time."""
        if not self.root.children:
            return self.cores[0].index_select(0, self.entries.columns[0])
        a, b = (self._inner(child) for child in self.root.children)
        _, _, shared = free_and_shared(a, b)
        left, right = a.matrices([], shared)[:, 0], b.matrices(shared, [])[:, :, 0]
        n = self.entries.count
        pairs, ids = len(left) * len(right), (a.rows.ids, b.rows.ids)
        if pairs <= min(PAIRS_PER_ENTRY * n, 4 * budget) and ids[0] is not None and ids[1] is not None:
            return torch.take(left @ right.T, ids[0] * len(right) + ids[1])
        step = max(1, budget // (3 * left.shape[1]))
        parts = []
        for first in range(0, n, step):
            piece = slice(first, min(first + step, n))
            picked = (take(x, t.rows.of(piece), piece.stop - first) for x, t in ((left, a), (right, b)))
            parts.append(torch.mul(*picked).sum(1))
        return torch.cat(parts)

    def environment(self, node: int) -> RowSource:
        """Everything but one node."""
        if self.root.node is not None:
            one = self.cores[0].new_ones(1)
            return RowSource(self.entries, (RowTensor(RowSet(-1, None, 1), (), one),))
        return RowSource(self.entries, self.around(node))

    def pair_environment(self, node: int, other: int, piece: torch.Tensor) -> RowSource:
        """Everything but one node, without the edge to `other`, whose core is replaced by `piece`.

        `piece` has the axes of that core without the edge.
        """
        gone = (min(node, other), max(node, other))
        edges = tuple(e for e in self.structure.edges_of(other) if e != gone)
        changed = RowTensor(self.entries.leaf(other), edges, piece)
        return RowSource(self.entries, self.around(node, other, changed))

    def _of_node(self, node: int) -> RowTensor:
        return self._keeping(
            RowTensor(self.entries.leaf(node), self.structure.edges_of(node), self.cores[node])
        )

    def _join(self, a: RowTensor, b: RowTensor) -> RowTensor:
        return self._keeping(join(self.entries, a, b))

    def _keeping(self, found: RowTensor) -> RowTensor:
        return replace(found, layouts={}) if self.keeps_layouts else found


def join_sets(entries: Entries, structure: Structure) -> dict[int, tuple[RowSet, ...]]:
    """Make the row sets of a network without its cores; by node, those of the parts of its environment."""
    root = Vertex(best_tree(structure, rows=entries.rows))
    inside: dict[Vertex, RowSet] = {}
    for vertex in reversed(list(root.walk())):  # children first
        if vertex.node is not None:
            inside[vertex] = entries.leaf(vertex.node)
        elif vertex is not root:
            inside[vertex] = entries.join(*(inside[child] for child in vertex.children))
    outside: dict[Vertex, RowSet] = {}
    parts: dict[int, tuple[RowSet, ...]] = {}
    for vertex in root.walk():
        if vertex.parent is None:
            continue
        beside = inside[vertex.sibling]
        around = (beside,) if vertex.parent is root else (outside[vertex.parent], beside)
        outside[vertex] = around[0] if len(around) == 1 else entries.join(*around)
        if vertex.node is not None:
            parts[vertex.node] = around
    return parts


def entries_needed(structure: Structure, count: int, rows: int | None = None) -> int:
    """Numbers that the partial contractions at `count` entries take, estimated without computing any.

    `rows` is what `Entries` is told of. The largest one counts three times: it is made of rows of two others.
    """
    dims = structure.leg_dims
    total = largest = 0
    for vertex in Vertex(best_tree(structure, rows=rows or count)).walk():
        nodes, parent = vertex.nodes, vertex.parent
        if parent is None:  # the network at all entries is computed a part at a time
            continue
        cut = math.prod(rank for (i, j), rank in structure.ranks.items() if (i in nodes) != (j in nodes))
        inside, outside = (
            cut * most_rows(math.prod(d for k, d in enumerate(dims) if (k in nodes) is wanted), count)
            for wanted in (True, False)
        )
        total += inside
        if vertex.node is None and parent.parent is not None:  # below the root, it is the sibling's inside
            total += outside
        largest = max(largest, inside, outside)
    return total + 2 * largest
