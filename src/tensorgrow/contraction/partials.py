"""Partial contractions along a dimension tree, kept until a core that they depend on changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import torch

from ..structure import Structure
from .dimension_tree import Tree

T = TypeVar("T")


class Vertex:
    """A set of nodes in a binary dimension tree."""

    def __init__(self, tree: Tree, parent: Vertex | None = None) -> None:
        self.parent = parent
        self.node = tree if isinstance(tree, int) else None
        self.children = [] if isinstance(tree, int) else [Vertex(t, self) for t in tree]
        own = [tree] if isinstance(tree, int) else []
        self.nodes: frozenset[int] = frozenset(own).union(*(child.nodes for child in self.children))

    @property
    def sibling(self) -> Vertex:
        assert self.parent is not None
        a, b = self.parent.children
        return b if a is self else a

    def walk(self) -> Iterator[Vertex]:
        """Yield the vertex and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def ancestors(self) -> Iterator[Vertex]:
        """Yield the vertex and all above it."""
        vertex: Vertex | None = self
        while vertex is not None:
            yield vertex
            vertex = vertex.parent


class PartialTree(ABC, Generic[T]):
    """Contractions of the nodes inside, and outside, every vertex of a tree, each computed when needed.

    Subclasses say what a contraction is: what a single node stands for, and how two disjoint sets are joined.
    """

    def __init__(self, tree: Tree, structure: Structure, cores: Sequence[torch.Tensor]) -> None:
        self.structure = structure
        self.cores = list(cores)
        self.root = Vertex(tree)
        self._leaf = {v.node: v for v in self.root.walk() if v.node is not None}
        self._inside: dict[Vertex, T] = {}
        self._outside: dict[Vertex, T] = {}

    @abstractmethod
    def _of_node(self, node: int) -> T:
        """What one node stands for."""

    @abstractmethod
    def _join(self, a: T, b: T) -> T:
        """Two disjoint sets of nodes together."""

    @property
    def order(self) -> tuple[int, ...]:
        """Nodes in an order of visits that shares most."""
        return tuple(v.node for v in self.root.walk() if v.node is not None)

    @property
    def held(self) -> list[T]:
        """All that is kept."""
        return [*self._inside.values(), *self._outside.values()]

    def set_core(self, node: int, core: torch.Tensor) -> None:
        """Replace a core and forget what depended on it."""
        self.cores[node] = core
        self._inside = {v: t for v, t in self._inside.items() if node not in v.nodes}
        self._outside = {v: t for v, t in self._outside.items() if node in v.nodes}

    def around(self, node: int, other: int | None = None, changed: T | None = None) -> tuple[T, ...]:
        """Everything but one node, in one or two parts; `changed` stands for node `other` where given."""
        vertex = self._leaf[node]
        if changed is None:
            return self._parts(vertex.parent, self._inner(vertex.sibling))
        assert other is not None
        vertex = self._leaf[other]
        while node not in vertex.parent.nodes:  # type: ignore[union-attr]
            changed = self._join_in_order(vertex, changed)
            vertex = vertex.parent  # type: ignore[assignment]
        # From the smallest set that holds both, down to the node.
        top = vertex.parent
        path = []
        for v in self._leaf[node].ancestors():
            if v is top:
                break
            path.append(v)
        outer, inner = (self._outer(top) if top is not self.root else None), changed  # type: ignore[arg-type]
        for v in path[-2::-1]:
            outer = inner if outer is None else self._join(outer, inner)
            inner = self._inner(v.sibling)
        return (inner,) if outer is None else (outer, inner)

    def _parts(self, above: Vertex | None, beside: T) -> tuple[T, ...]:
        assert above is not None
        return (beside,) if above is self.root else (self._outer(above), beside)

    def _inner(self, vertex: Vertex) -> T:
        """All nodes of a vertex contracted."""
        if vertex not in self._inside:
            if vertex.node is not None:
                found = self._of_node(vertex.node)
            else:
                found = self._join(*(self._inner(child) for child in vertex.children))
            self._inside[vertex] = found
        return self._inside[vertex]

    def _outer(self, vertex: Vertex) -> T:
        """All nodes outside a vertex contracted; the root has none."""
        if vertex not in self._outside:
            parts = self._parts(vertex.parent, self._inner(vertex.sibling))
            self._outside[vertex] = parts[0] if len(parts) == 1 else self._join(*parts)
        return self._outside[vertex]

    def _join_in_order(self, vertex: Vertex, own: T) -> T:
        """Join with the sibling in the order of the tree, so that index tables are shared."""
        other = self._inner(vertex.sibling)
        assert vertex.parent is not None
        return self._join(own, other) if vertex.parent.children[0] is vertex else self._join(other, own)
