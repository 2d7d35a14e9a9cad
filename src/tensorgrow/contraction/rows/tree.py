"""Environments at listed entries: cost in proportion to the entries, not to the dense tensor.

A *row tensor* over a set of nodes holds one row per distinct combination of the set's indices that occurs
among the listed entries, and the open bonds of the set. Small sets have few combinations, so most of the work
is done once and shared by all entries that agree on some indices; only the last product of an environment has
about as many rows as there are entries. Sets are joined along the dimension tree of the structure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from ...structure import Structure
from ..dimension_tree import Tree, best_tree, leaves
from .sets import Entries, RowSet, most_rows
from .tensors import RowSource, RowTensor, free_and_shared, join, take


class _Vertex:
    def __init__(self, tree: Tree, parent: _Vertex | None) -> None:
        self.nodes = frozenset(leaves(tree))
        self.parent = parent
        self.node = tree if isinstance(tree, int) else None
        self.children = [] if isinstance(tree, int) else [_Vertex(t, self) for t in tree]

    @property
    def sibling(self) -> _Vertex:
        assert self.parent is not None
        a, b = self.parent.children
        return b if a is self else a

    def walk(self) -> Iterator[_Vertex]:
        yield self
        for child in self.children:
            yield from child.walk()


class RowTree:
    """Partial contractions of a network at the entries, kept until a core they depend on changes."""

    def __init__(self, entries: Entries, structure: Structure, cores: Sequence[torch.Tensor]) -> None:
        self.entries = entries
        self.structure = structure
        self.cores = list(cores)
        self.root = _Vertex(best_tree(structure, rows=entries.rows), None)
        self._leaf = {v.node: v for v in self.root.walk() if v.node is not None}
        self._inside: dict[_Vertex, RowTensor] = {}
        self._outside: dict[_Vertex, RowTensor | None] = {self.root: None}

    @property
    def order(self) -> tuple[int, ...]:
        """Nodes in an order of visits that shares most."""
        return tuple(v.node for v in self.root.walk() if v.node is not None)

    def set_core(self, node: int, core: torch.Tensor) -> None:
        """Replace a core and forget what depended on it."""
        self.cores[node] = core
        self._inside = {v: t for v, t in self._inside.items() if node not in v.nodes}
        self._outside = {v: t for v, t in self._outside.items() if t is None or node in v.nodes}

    # -- the network at entries ------------------------------------------------------------------------

    def values(self, budget: int) -> torch.Tensor:
        """The represented tensor at all entries, about `budget` numbers at a time."""
        if not self.root.children:
            return self.cores[0].index_select(0, self.entries.columns[0])
        a, b = (self._inner(child) for child in self.root.children)
        _, _, shared = free_and_shared(a, b)
        left, right = a.matrices([], shared)[:, 0], b.matrices(shared, [])[:, :, 0]
        n = self.entries.count
        step = max(1, budget // (3 * left.shape[1]))
        parts = []
        for first in range(0, n, step):
            piece = slice(first, min(first + step, n))
            picked = (take(x, t.rows.of(piece), piece.stop - first) for x, t in ((left, a), (right, b)))
            parts.append(torch.mul(*picked).sum(1))
        return torch.cat(parts)

    def environment(self, node: int) -> RowSource:
        """Everything but one node."""
        vertex = self._leaf[node]
        if vertex.parent is None:
            one = self.cores[0].new_ones(1)
            return RowSource(self.entries, (RowTensor(RowSet(-1, None, 1), (), one),))
        return self._source(self._outer(vertex.parent), self._inner(vertex.sibling))

    def pair_environment(self, node: int, other: int, piece: torch.Tensor) -> RowSource:
        """Everything but one node, without the edge to `other`, whose core is replaced by `piece`.

        `piece` has the axes of that core without the edge.
        """
        gone = (min(node, other), max(node, other))
        edges = tuple(e for e in self.structure.edges_of(other) if e != gone)
        changed = RowTensor(self.entries.leaf(other), edges, piece)
        vertex = self._leaf[other]
        while node not in vertex.parent.nodes:  # type: ignore[union-attr]
            changed = _join_in_order(self.entries, vertex, changed, self._inner(vertex.sibling))
            vertex = vertex.parent  # type: ignore[assignment]
        # From the smallest set that holds both, down to the node.
        top = vertex.parent
        assert top is not None
        path = [v for v in _ancestors(self._leaf[node]) if v is not top and top in _ancestors(v)][::-1]
        outer, inner = self._outer(top), changed
        for v in path[1:]:
            outer = inner if outer is None else join(self.entries, outer, inner)
            inner = self._inner(v.sibling)
        return self._source(outer, inner)

    @property
    def entries_held(self) -> int:
        """Numbers that the partial contractions hold so far."""
        return sum(t.array.numel() for t in (*self._inside.values(), *self._outside.values()) if t)

    def _source(self, outer: RowTensor | None, inner: RowTensor) -> RowSource:
        return RowSource(self.entries, (inner,) if outer is None else (outer, inner))

    def _inner(self, vertex: _Vertex) -> RowTensor:
        if vertex not in self._inside:
            if vertex.node is not None:
                node = vertex.node
                rows = RowTensor(self.entries.leaf(node), self.structure.edges_of(node), self.cores[node])
            else:
                rows = join(self.entries, *(self._inner(child) for child in vertex.children))
            self._inside[vertex] = rows
        return self._inside[vertex]

    def _outer(self, vertex: _Vertex) -> RowTensor | None:
        """All nodes outside a vertex contracted; None for the root, outside which there is nothing."""
        if vertex not in self._outside:
            assert vertex.parent is not None
            above, beside = self._outer(vertex.parent), self._inner(vertex.sibling)
            self._outside[vertex] = beside if above is None else join(self.entries, above, beside)
        return self._outside[vertex]


def join_sets(entries: Entries, structure: Structure) -> list[RowSet]:
    """Make the row sets of all environments of a network, without its cores."""
    root = _Vertex(best_tree(structure, rows=entries.rows), None)
    made: list[RowSet] = []

    def join(a: RowSet, b: RowSet) -> RowSet:
        made.append(entries.join(a, b))
        return made[-1]

    inside: dict[_Vertex, RowSet] = {}
    for vertex in reversed(list(root.walk())):  # children first
        if vertex.node is not None:
            inside[vertex] = entries.leaf(vertex.node)
        elif vertex is not root:
            inside[vertex] = join(*(inside[child] for child in vertex.children))
    outside: dict[_Vertex, RowSet] = {}
    for vertex in root.walk():
        if vertex.parent is not None:
            beside = inside[vertex.sibling]
            outside[vertex] = beside if vertex.parent is root else join(outside[vertex.parent], beside)
    return made


def entries_needed(structure: Structure, count: int, rows: int | None = None) -> int:
    """Numbers that the partial contractions at `count` entries take, estimated without computing any.

    `rows` is what `Entries` is told of. The largest one counts three times: it is made of rows of two others.
    """
    dims = structure.leg_dims
    total = largest = 0
    for vertex in _Vertex(best_tree(structure, rows=rows or count), None).walk():
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


def _ancestors(vertex: _Vertex | None) -> list[_Vertex]:
    """A vertex and all above it."""
    above = []
    while vertex is not None:
        above.append(vertex)
        vertex = vertex.parent
    return above


def _join_in_order(entries: Entries, vertex: _Vertex, own: RowTensor, other: RowTensor) -> RowTensor:
    """Join with the sibling in the order of the tree, so that index tables are shared."""
    assert vertex.parent is not None
    first = vertex.parent.children[0] is vertex
    return join(entries, own, other) if first else join(entries, other, own)
