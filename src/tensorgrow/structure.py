"""The graph of a tensor network and its ranks: plain integers, no tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from .errors import StructureError

Edge = tuple[int, int]

# What is read from a file has no more nodes than this: lists of them must not fill the memory.
MOST_NODES = 1 << 16


class Structure:
    """An immutable, hashable tensor-network structure.

    Node ``k < order`` carries the dangling leg of size ``dims[k]``, which may be 1. Nodes from ``order`` on
    are internal: they have no leg, and their cores an axis of size 1 in its place. Two nodes without an entry
    in `ranks` are joined by rank 1, which is the same as not being joined.

    Parameters
    ----------
    dims
        Sizes of the dangling legs, which is the shape of the represented tensor.
    ranks
        Rank of each edge ``(i, j)``. Ranks of 1 are dropped. Naming a node beyond ``len(dims)`` adds internal
        nodes.
    num_nodes
        Number of nodes, where internal nodes should exist that no edge names.

    Examples
    --------
    >>> s = Structure((7, 7, 7), {(0, 1): 2, (1, 2): 3})
    >>> s.num_parameters  # 7*2 + 7*2*3 + 7*3
    77
    >>> s.core_shape(1)
    (7, 2, 3)
    """

    __slots__ = ("__dict__", "_hash", "_items", "dims", "num_nodes")

    dims: tuple[int, ...]
    num_nodes: int

    def __init__(
        self, dims: Iterable[int], ranks: Mapping[Edge, int] | None = None, *, num_nodes: int | None = None
    ) -> None:
        self.dims = tuple(_positive("a dimension", d) for d in dims)
        if not self.dims:
            raise StructureError("a structure needs at least one dangling leg; dims is empty")
        items: dict[Edge, int] = {}
        for pair, rank in (ranks or {}).items():
            edge = _edge(pair)
            if edge in items:
                raise StructureError(f"edge {edge} is given twice; give each pair of nodes one rank")
            items[edge] = _positive(f"the rank of edge {edge}", rank)
        named = max((e[1] + 1 for e in items), default=0)
        self.num_nodes = max(len(self.dims), named) if num_nodes is None else num_nodes
        if self.num_nodes < max(len(self.dims), named):
            raise StructureError(
                f"num_nodes={num_nodes}, but there are {len(self.dims)} dangling legs and "
                f"the edges name nodes up to {named - 1}"
            )
        self._items = tuple(sorted((e, r) for e, r in items.items() if r > 1))
        self._hash = hash((self.dims, self.num_nodes, self._items))

    # -- formats with a name ---------------------------------------------------------------------------

    @classmethod
    def rank_one(cls, dims: Iterable[int]) -> Structure:
        """Return the structure of an outer product, one vector per leg: every rank is 1."""
        return cls(dims)

    @classmethod
    def tensor_train(cls, dims: Sequence[int], ranks: int | Sequence[int]) -> Structure:
        """Chain 0-1-...-(p-1); ``ranks[k]`` joins legs ``k`` and ``k + 1``."""
        p = len(dims)
        values = _spread("a tensor train", ranks, p - 1)
        return cls(dims, {(k, k + 1): values[k] for k in range(p - 1)})

    @classmethod
    def tensor_ring(cls, dims: Sequence[int], ranks: int | Sequence[int]) -> Structure:
        """Cycle; ``ranks[k]`` joins legs ``k`` and ``k + 1``, the last one joins leg ``p - 1`` and leg 0."""
        p = len(dims)
        if p < 3:
            raise StructureError(f"a tensor ring needs at least 3 legs, not {p}; use tensor_train")
        values = _spread("a tensor ring", ranks, p)
        return cls(dims, {(k, (k + 1) % p): values[k] for k in range(p)})

    @classmethod
    def tucker(cls, dims: Sequence[int], ranks: int | Sequence[int]) -> Structure:
        """Star around one internal node; ``ranks[k]`` joins leg ``k`` to it."""
        p = len(dims)
        values = _spread("Tucker", ranks, p)
        return cls(dims, {(k, p): values[k] for k in range(p)}, num_nodes=p + 1)

    @classmethod
    def hierarchical_tucker(cls, dims: Sequence[int], ranks: int | Sequence[int]) -> Structure:
        """Balanced binary tree whose leaves are the legs and whose other nodes, root included, are internal.

        ``ranks`` is one number, or one rank per tree edge: first the edge above each leg, then the edges
        above the internal nodes in the order of their numbers (the root is the last node and has none).
        """
        p = len(dims)
        if p < 2:
            raise StructureError(f"hierarchical Tucker needs at least 2 legs, not {p}")
        parents: dict[int, int] = {}
        level = list(range(p))
        node = p
        while len(level) > 1:
            above: list[int] = []
            for left in range(0, len(level), 2):
                pair = level[left : left + 2]
                if len(pair) == 2:
                    parents.update(dict.fromkeys(pair, node))
                    pair = [node]
                    node += 1
                above += pair
            level = above
        values = _spread("hierarchical Tucker", ranks, len(parents))
        return cls(dims, {(c, parents[c]): values[n] for n, c in enumerate(sorted(parents))}, num_nodes=node)

    @classmethod
    def complete(cls, dims: Sequence[int], rank: int) -> Structure:
        """Every pair of legs joined by the same rank."""
        p = len(dims)
        return cls(dims, {(i, j): rank for i in range(p) for j in range(i + 1, p)})

    # -- reading it ------------------------------------------------------------------------------------

    @cached_property
    def ranks(self) -> Mapping[Edge, int]:
        """Rank of every edge above 1, keys sorted, read-only."""
        return MappingProxyType(dict(self._items))

    @property
    def order(self) -> int:
        """Number of dangling legs: the order of the represented tensor."""
        return len(self.dims)

    @cached_property
    def internal_nodes(self) -> tuple[int, ...]:
        """Nodes without a dangling leg: those from `order` on. A mode of size 1 is not one of them."""
        return tuple(range(self.order, self.num_nodes))

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Edges of rank above 1, sorted."""
        return tuple(e for e, _ in self._items)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the nodes it shares a rank above 1 with, ascending."""
        out: list[list[int]] = [[] for _ in range(self.num_nodes)]
        for (i, j), _ in self._items:
            out[i].append(j)
            out[j].append(i)
        return tuple(tuple(sorted(x)) for x in out)

    def is_internal(self, node: int) -> bool:
        """Whether `node` has no dangling leg: its number is `order` or above."""
        return node >= self.order

    def leg_dim(self, node: int) -> int:
        """Size of the dangling leg of `node`; 1 for internal nodes."""
        return self.dims[node] if node < len(self.dims) else 1

    @cached_property
    def leg_dims(self) -> tuple[int, ...]:
        """Sizes of the dangling legs of all nodes, 1 for internal ones."""
        return (*self.dims, *(1,) * (self.num_nodes - self.order))

    def edges_of(self, node: int) -> tuple[Edge, ...]:
        """Edges of `node` in the order of its core's axes."""
        return tuple((node, k) if node < k else (k, node) for k in self.neighbours[node])

    def rank(self, i: int, j: int) -> int:
        """Rank of the edge between `i` and `j`, 1 when they are not joined."""
        return self.ranks.get((i, j) if i < j else (j, i), 1)

    def axis(self, node: int, neighbour: int) -> int:
        """Axis of `node`'s core that belongs to the edge to `neighbour`."""
        return 1 + self.neighbours[node].index(neighbour)

    @cached_property
    def core_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of every core: dangling leg first, then the edges by ascending neighbour."""
        return tuple(
            (self.leg_dim(k), *(self.rank(k, j) for j in self.neighbours[k])) for k in range(self.num_nodes)
        )

    def core_shape(self, node: int) -> tuple[int, ...]:
        """Shape of one core."""
        return self.core_shapes[node]

    @cached_property
    def num_parameters(self) -> int:
        """Total entries over all cores: `size` in the paper."""
        return sum(self._core_sizes)

    @property
    def num_entries(self) -> int:
        """Entries of the represented tensor."""
        return math.prod(self.dims)

    @property
    def compression_ratio(self) -> float:
        """Entries of the dense tensor per parameter."""
        try:
            return self.num_entries / self.num_parameters
        except OverflowError:  # of order above 1,023
            return math.inf

    def bond_product(self, node: int, without: int | None = None) -> int:
        """Product of the ranks at `node`, leaving out the edge to `without`."""
        product = self._bond_products[node]
        return product if without is None else product // self.rank(node, without)

    @cached_property
    def _bond_products(self) -> tuple[int, ...]:
        return tuple(math.prod(shape[1:]) for shape in self.core_shapes)

    def useful_rank(self, i: int, j: int) -> int:
        """Largest rank that edge ``(i, j)`` can use: what the weaker end can carry.

        The edge cuts two matricizations of ``leg_dim x other ranks`` rows each; a rank above the smaller of
        the two only adds a gauge freedom.
        """
        self.check_nodes(i, j)
        return min(self._slice_sizes(i, j))

    def growth_cost(self, i: int, j: int) -> int:
        """Parameters added when the rank of ``(i, j)`` rises by one."""
        return sum(self._slice_sizes(i, j))

    def _slice_sizes(self, i: int, j: int) -> tuple[int, int]:
        """Parameters that belong to one component of edge ``(i, j)`` in the core of either end."""
        rank = self.rank(i, j)
        return self._core_sizes[i] // rank, self._core_sizes[j] // rank

    @cached_property
    def _core_sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.core_shapes)

    # -- changing it (a new structure each time) -------------------------------------------------------

    def with_rank(self, i: int, j: int, rank: int) -> Structure:
        """Return the structure with another rank on one edge."""
        self.check_nodes(i, j)
        ranks = dict(self._items)
        ranks[_edge((i, j))] = rank
        return Structure(self.dims, ranks, num_nodes=self.num_nodes)

    def with_dims(self, dims: Iterable[int]) -> Structure:
        """Return the same graph and ranks over legs of other sizes."""
        changed = Structure(dims, dict(self._items), num_nodes=self.num_nodes)
        if changed.order != self.order:
            raise StructureError(f"{changed.dims} has {changed.order} legs; {self.order} are needed")
        return changed

    def relabel(self, mapping: Mapping[int, int], num_nodes: int) -> Structure:
        """Rename nodes; legs must keep their numbers."""
        ranks = {(mapping[i], mapping[j]): r for (i, j), r in self._items}
        return Structure(self.dims, ranks, num_nodes=num_nodes)

    # -- plain data ------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """JSON-friendly form; `from_dict` is its inverse."""
        return {
            "dims": list(self.dims),
            "num_nodes": self.num_nodes,
            "ranks": [[i, j, r] for (i, j), r in self._items],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Structure:
        """Rebuild a structure from what `to_dict` returned."""
        try:
            ranks = {(int(i), int(j)): int(r) for i, j, r in data["ranks"]}  # type: ignore[attr-defined]
            dims = [int(d) for d in data["dims"]]  # type: ignore[attr-defined]
            num_nodes = int(data["num_nodes"])  # type: ignore[call-overload]
        except (KeyError, TypeError, ValueError) as error:
            raise StructureError(f"not a structure: {error!r}") from error
        if num_nodes > MOST_NODES:
            raise StructureError(f"not a structure: {num_nodes} nodes are more than {MOST_NODES}")
        return cls(dims, ranks, num_nodes=num_nodes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Structure):
            return NotImplemented
        mine, theirs = ((s._hash, s.dims, s.num_nodes, s._items) for s in (self, other))
        return mine == theirs

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Structure.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        ranks = ", ".join(f"({i}, {j}): {r}" for (i, j), r in self._items)
        extra = f", num_nodes={self.num_nodes}" if self.num_nodes > len(self.dims) else ""
        return f"Structure({self.dims}, {{{ranks}}}{extra})"

    def check_nodes(self, *nodes: int) -> None:
        """Raise `StructureError` unless these are different nodes of the structure."""
        for k in nodes:
            if not 0 <= k < self.num_nodes:
                raise StructureError(f"node {k} does not exist; nodes are 0..{self.num_nodes - 1}")
        if len(set(nodes)) < len(nodes):
            raise StructureError(f"an edge joins two different nodes, not {nodes}")


def _edge(pair: Sequence[int]) -> Edge:
    if len(pair) != 2:
        raise StructureError(f"an edge is a pair of nodes, not {pair!r}")
    i, j = (int(pair[0]), int(pair[1]))
    if i == j or min(i, j) < 0:
        raise StructureError(f"edge {pair!r} must join two different nodes numbered from 0")
    return (i, j) if i < j else (j, i)


def _positive(what: str, value: int) -> int:
    number = int(value)
    if number != value or number < 1:
        raise StructureError(f"{what} must be a whole number of at least 1, not {value!r}")
    return number


def _spread(what: str, ranks: int | Sequence[int], count: int) -> tuple[int, ...]:
    values = tuple(ranks) if isinstance(ranks, Iterable) else (int(ranks),) * count
    if len(values) != count:
        raise StructureError(f"{what} here has {count} ranks, but {len(values)} were given: {values}")
    return values
