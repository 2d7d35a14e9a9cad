"""Environments at listed entries: cost in proportion to the entries, not to the dense tensor.

A *row tensor* over a set of nodes holds one row per distinct combination of the set's indices that occurs
among the listed entries, and the open bonds of the set. Small sets have few combinations, so most of the work
is done once and shared by all entries that agree on some indices; only the last product of an environment has
about as many rows as there are entries. Sets are joined along the dimension tree of the structure.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ..structure import Edge, Structure
from .memory import arranged, uninitialised
from .tree import Tree, best_tree, leaves

__all__ = ["Entries", "RowSource", "RowTree"]

# All combinations of a set are computed, as one matrix product, while they are at most so many times the
# entries: rows gathered entry by entry cost several times more each.
DENSE_FACTOR = 4.0
# Combinations almost as many as entries are not told apart.
ALL_DIFFERENT = 0.8
# Index tables kept for joins of row sets.
KEPT_JOINS = 64


@dataclass(frozen=True, eq=False)
class RowSet:
    """Distinct combinations of the indices of some nodes.

    Attributes
    ----------
    key
        The nested nodes it was joined from.
    ids
        Row of every entry; None when there is one row for all.
    count
        Number of rows.
    left, right
        For joined sets whose rows are not all combinations: the rows of both parts behind each row.
    """

    key: Tree
    ids: torch.Tensor | None
    count: int
    left: torch.Tensor | None = None
    right: torch.Tensor | None = None

    def of(self, entries: torch.Tensor | slice) -> torch.Tensor | None:
        """Rows of some entries."""
        return None if self.ids is None else self.ids[entries]


class Scratch:
    """Memory that large results are written to again and again; CUDA tensors come from a cache anyway."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """An uninitialised tensor, overwritten by the next one of that name."""
        if like.device.type != "cpu":
            return like.new_empty(shape)
        count = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.dtype != like.dtype or len(held) < count:
            self._held[name] = held = uninitialised((count,), like)
        return held[:count].reshape(shape)


class Entries:
    """Positions of listed entries, and the row sets made from them.

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
        self._joins: OrderedDict[Tree, RowSet] = OrderedDict()

    @property
    def most_rows(self) -> int:
        """Rows that a joined set has at most."""
        return int(DENSE_FACTOR * self.count)

    def leaf(self, node: int) -> RowSet:
        """Rows of one node: its slices; one row for an internal node."""
        if node >= len(self.dims):
            return RowSet(node, None, 1)
        return RowSet(node, self.columns[node], self.dims[node])

    def join(self, a: RowSet, b: RowSet) -> RowSet:
        """Rows of two disjoint sets together, kept for next time."""
        key = (a.key, b.key)
        found = self._joins.get(key)
        if found is None:
            found = self._join(a, b, key)
            self._joins[key] = found
            if len(self._joins) > KEPT_JOINS:
                self._joins.popitem(last=False)
        else:
            self._joins.move_to_end(key)
        return found

    def _join(self, a: RowSet, b: RowSet, key: Tree) -> RowSet:
        if a.ids is None or b.ids is None:
            one = b if a.ids is None else a
            return RowSet(key, one.ids, a.count * b.count)
        codes = a.ids * b.count + b.ids
        if a.count * b.count <= self.most_rows:
            return RowSet(key, codes, a.count * b.count)
        distinct, ids = torch.unique(codes, return_inverse=True)
        if len(distinct) >= ALL_DIFFERENT * self.count:
            everyone = torch.arange(self.count, device=self.device)
            return RowSet(key, everyone, self.count, a.ids, b.ids)
        left = torch.div(distinct, b.count, rounding_mode="floor")
        return RowSet(key, ids, len(distinct), left, distinct - left * b.count)


@dataclass(frozen=True, eq=False)
class RowTensor:
    """Values of a set of nodes: one row per combination, one axis per open edge."""

    rows: RowSet
    edges: tuple[Edge, ...]
    array: torch.Tensor

    def size(self, edges: Sequence[Edge]) -> int:
        """Product of the ranks of some of its edges."""
        return math.prod(self.array.shape[1 + self.edges.index(e)] for e in edges)

    def matrices(self, first: Sequence[Edge], second: Sequence[Edge]) -> torch.Tensor:
        """One matrix per row: edges `first` by edges `second`."""
        order = [0, *(1 + self.edges.index(e) for e in (*first, *second))]
        shape = (len(self.array), self.size(first), self.size(second))
        return arranged(self.array.permute(order), shape)


def _free_and_shared(a: RowTensor, b: RowTensor) -> tuple[list[Edge], list[Edge], list[Edge]]:
    shared = [e for e in a.edges if e in b.edges]
    return [e for e in a.edges if e not in shared], [e for e in b.edges if e not in shared], shared


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Row-wise matrix products ``(rows, p, c) x (rows, c, q)``."""
    if left.shape[2] == 1:
        return left * right
    if left.shape[1] == 1 and right.shape[2] == 1:
        return (left * right.transpose(1, 2)).sum(2, keepdim=True)
    return torch.bmm(left, right)


def _take(array: torch.Tensor, rows: torch.Tensor | None, count: int) -> torch.Tensor:
    if rows is None:
        return array.expand(count, *array.shape[1:])
    out = uninitialised((len(rows), *array.shape[1:]), array)
    return torch.index_select(array, 0, rows, out=out)


def _join(entries: Entries, a: RowTensor, b: RowTensor, *, reuse: bool = False) -> RowTensor:
    """Contract two row tensors over the edges they share.

    With `reuse` the result is overwritten by the next one that is made so.
    """
    rows = entries.join(a.rows, b.rows)
    free_a, free_b, shared = _free_and_shared(a, b)
    left, right = a.matrices(free_a, shared), b.matrices(shared, free_b)
    if rows.left is not None and rows.right is not None:
        array = _product(_take(left, rows.left, rows.count), _take(right, rows.right, rows.count))
    else:
        array = _all_combinations(left, right, entries.scratch, reuse)
    sizes = [t.array.shape[1 + t.edges.index(e)] for t, free in ((a, free_a), (b, free_b)) for e in free]
    return RowTensor(rows, (*free_a, *free_b), array.reshape(rows.count, *sizes))


def _all_combinations(left: torch.Tensor, right: torch.Tensor, scratch: Scratch, reuse: bool) -> torch.Tensor:
    """Every row of `left` with every row of `right`, rows of `left` slowest."""
    n, p, c = left.shape
    m, _, q = right.shape
    shape = (n, m, p, q)
    out = scratch.take("rows", shape, left) if reuse else uninitialised(shape, left)
    a, b = left.reshape(n * p, c), arranged(right.transpose(0, 1), (c, m * q))
    if p == 1:
        torch.mm(a, b, out=out.reshape(n, m * q))
    else:
        flat = scratch.take("product", (n * p, m * q), left)
        torch.mm(a, b, out=flat)
        out.copy_(flat.reshape(n, p, m, q).transpose(1, 2))
    return out


class RowSource:
    """Environment of one node at any of the entries, until the next one is made.

    Attributes
    ----------
    edges
        Bonds of the node in the order of the columns.
    """

    def __init__(self, entries: Entries, parts: tuple[RowTensor, ...]) -> None:
        if len(parts) == 2 and entries.join(parts[0].rows, parts[1].rows).left is None:
            parts = (_join(entries, *parts, reuse=True),)
        self.parts = parts
        if len(parts) == 1:
            self.edges = parts[0].edges
        else:
            free_a, free_b, self._shared = _free_and_shared(*parts)
            self._free = free_a, free_b
            self.edges = (*free_a, *free_b)

    @property
    def width(self) -> int:
        """Number of columns."""
        return math.prod(t.size([e for e in t.edges if e in self.edges]) for t in self.parts)

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the rows."""
        return self.parts[0].array.dtype

    @property
    def row_entries(self) -> int:
        """Numbers held per row while rows are made."""
        if len(self.parts) == 1:
            return self.width
        return self.width + sum(math.prod(t.array.shape[1:]) for t in self.parts)

    def table(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """All rows and the row of each entry (None: one row for all); None when rows are made when asked."""
        if len(self.parts) > 1:
            return None
        part = self.parts[0]
        return part.array.reshape(len(part.array), -1), part.rows.ids

    def rows(self, chosen: torch.Tensor) -> torch.Tensor:
        """Environment of the entries `chosen`, ``(len(chosen), width)``."""
        count = len(chosen)
        if len(self.parts) == 1:
            part = self.parts[0]
            flat = part.array.reshape(len(part.array), -1)
            return _take(flat, part.rows.of(chosen), count)
        a, b = self.parts
        left, right = a.matrices(self._free[0], self._shared), b.matrices(self._shared, self._free[1])
        made = _product(_take(left, a.rows.of(chosen), count), _take(right, b.rows.of(chosen), count))
        return made.reshape(count, -1)


class _Vertex:
    """A set of nodes in the dimension tree."""

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
        self._edges = [
            tuple((k, j) if k < j else (j, k) for j in structure.neighbours[k])
            for k in range(structure.num_nodes)
        ]
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

    def edges(self, node: int) -> tuple[Edge, ...]:
        """Edges of a node in the order of its core's axes."""
        return self._edges[node]

    def values(self, budget: int) -> torch.Tensor:
        """The represented tensor at all entries, about `budget` numbers at a time."""
        if not self.root.children:
            return self.cores[0].index_select(0, self.entries.columns[0])
        a, b = (self._inner(child) for child in self.root.children)
        _, _, shared = _free_and_shared(a, b)
        left, right = a.matrices([], shared)[:, 0], b.matrices(shared, [])[:, :, 0]
        n = self.entries.count
        step = max(1, budget // (3 * left.shape[1]))
        found = []
        for first in range(0, n, step):
            piece = slice(first, min(first + step, n))
            picked = (_take(x, t.rows.of(piece), piece.stop - first) for x, t in ((left, a), (right, b)))
            found.append(torch.mul(*picked).sum(1))
        return torch.cat(found)

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
        edges = tuple(e for e in self._edges[other] if e != gone)
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
            outer = inner if outer is None else _join(self.entries, outer, inner)
            inner = self._inner(v.sibling)
        return self._source(outer, inner)

    def entries_needed(self) -> int:
        """Numbers that all partial contractions hold together, estimated without computing any."""
        dims = [self.structure.leg_dim(k) for k in range(self.structure.num_nodes)]
        total, most = 0, self.entries.most_rows
        for vertex in self.root.walk():
            nodes = vertex.nodes
            inside, outside = (
                min(math.prod(d for k, d in enumerate(dims) if (k in nodes) is wanted), most)
                for wanted in (True, False)
            )
            cut = math.prod(
                rank for (i, j), rank in self.structure.ranks.items() if (i in nodes) != (j in nodes)
            )
            total += (inside + outside) * cut
        return total

    def _source(self, outer: RowTensor | None, inner: RowTensor) -> RowSource:
        return RowSource(self.entries, (inner,) if outer is None else (outer, inner))

    def _inner(self, vertex: _Vertex) -> RowTensor:
        """The nodes of a vertex contracted."""
        found = self._inside.get(vertex)
        if found is None:
            if vertex.node is not None:
                node = vertex.node
                found = RowTensor(self.entries.leaf(node), self._edges[node], self.cores[node])
            else:
                found = _join(self.entries, *(self._inner(child) for child in vertex.children))
            self._inside[vertex] = found
        return found

    def _outer(self, vertex: _Vertex) -> RowTensor | None:
        """All nodes outside a vertex contracted; None for the root, outside which there is nothing."""
        if vertex in self._outside:
            return self._outside[vertex]
        assert vertex.parent is not None
        above, beside = self._outer(vertex.parent), self._inner(vertex.sibling)
        found = beside if above is None else _join(self.entries, above, beside)
        self._outside[vertex] = found
        return found


def _ancestors(vertex: _Vertex | None) -> list[_Vertex]:
    """A vertex and all above it."""
    found = []
    while vertex is not None:
        found.append(vertex)
        vertex = vertex.parent
    return found


def _join_in_order(entries: Entries, vertex: _Vertex, own: RowTensor, other: RowTensor) -> RowTensor:
    """Join with the sibling in the order of the tree, so that index tables are shared."""
    assert vertex.parent is not None
    first = vertex.parent.children[0] is vertex
    return _join(entries, own, other) if first else _join(entries, other, own)
