"""Which edges a search may use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from ..errors import OptionError
from ..structure import Edge, Structure

Edges = Literal["all", "chain", "ring"] | Iterable[Edge] | Structure


@dataclass(frozen=True)
class EdgePolicy:
    """The edges a search may use: all pairs (internal nodes included) or a fixed set."""

    pairs: frozenset[Edge] | None
    max_degree: int | None = None

    @classmethod
    def parse(cls, edges: Edges, order: int, max_degree: int | None = None) -> EdgePolicy:
        """From what the user gives: "all", "chain", "ring", pairs, or a structure whose graph to keep."""
        if isinstance(edges, str) and edges == "all":
            return cls(None, max_degree)
        if isinstance(edges, Structure):
            if edges.order != order:
                raise OptionError(f"edges is a graph over {edges.order} modes; the tensor has {order}")
            return cls(frozenset(edges.edges), max_degree)
        if isinstance(edges, str) and edges in ("chain", "ring"):
            pairs = [(k, k + 1) for k in range(order - 1)]
            if edges == "ring" and order > 2:
                pairs.append((0, order - 1))
        elif isinstance(edges, str) or not isinstance(edges, Iterable):
            raise OptionError(f"edges={edges!r} is not known; give 'all', 'chain', 'ring' or pairs of legs")
        else:
            pairs = [_pair(e, order) for e in edges]
            if not pairs and order > 1:
                raise OptionError("edges is empty: no rank could ever grow; give 'all' or some pairs")
        return cls(frozenset((min(e), max(e)) for e in pairs), max_degree)

    def allows(self, structure: Structure, edge: Edge) -> bool:
        """Whether `edge` may be raised at all in this structure."""
        if self.pairs is not None and edge not in self.pairs:
            return False
        if self.max_degree is None or structure.rank(*edge) > 1:
            return True
        return all(len(structure.neighbours[k]) < self.max_degree for k in edge)

    def allows_degrees(self, structure: Structure) -> bool:
        """Whether no node has more edges than allowed."""
        return self.max_degree is None or max(map(len, structure.neighbours)) <= self.max_degree

    def growable(self, structure: Structure, max_parameters: int | None = None) -> list[Edge]:
        """Edges that may grow: allowed, not saturated and within the parameter budget."""
        room = math.inf if max_parameters is None else max_parameters - structure.num_parameters
        return [
            (i, j)
            for i, j in combinations(range(structure.num_nodes), 2)
            if self.allows(structure, (i, j))
            and structure.rank(i, j) < structure.useful_rank(i, j)
            and structure.growth_cost(i, j) <= room
        ]


def _pair(edge: Sequence[int], order: int) -> Edge:
    try:
        i, j = (int(k) for k in edge)
    except (TypeError, ValueError):
        raise OptionError(f"edges must be pairs of legs, not {edge!r}") from None
    if i == j or not (0 <= i < order and 0 <= j < order):
        raise OptionError(f"edge ({i}, {j}) does not join two of the legs 0..{order - 1}")
    return (i, j)
