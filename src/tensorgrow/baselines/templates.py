"""The variables of TNLS and TnALE: a rank for every edge of a template, and which mode sits where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from ..errors import OptionError
from ..structure import Edge, Structure

TemplateName = Literal["ring", "chain", "lattice", "tree", "complete"] | Iterable[Edge]
"""A template by its name, or the pairs of vertices it joins."""


@dataclass(frozen=True)
class Point:
    """One choice: ranks by edge of the template, and the mode on each vertex."""

    ranks: tuple[int, ...]
    modes: tuple[int, ...]

    def with_rank(self, edge: int, rank: int) -> Point:
        return Point((*self.ranks[:edge], rank, *self.ranks[edge + 1 :]), self.modes)

    def swap(self, a: int, b: int) -> Point:
        modes = list(self.modes)
        modes[a], modes[b] = modes[b], modes[a]
        return Point(self.ranks, tuple(modes))


@dataclass(frozen=True)
class Template:
    """A graph over the vertices whose edges have ranks from 1 to `max_rank`."""

    dims: tuple[int, ...]
    edges: tuple[Edge, ...]
    max_rank: int

    @property
    def permutes(self) -> bool:
        """Whether it matters which mode sits where: in a complete graph it does not."""
        p = len(self.dims)
        return len(self.edges) < p * (p - 1) // 2

    def structure(self, point: Point) -> Structure:
        ranks = {}
        for (a, b), rank in zip(self.edges, point.ranks):
            i, j = point.modes[a], point.modes[b]
            ranks[(min(i, j), max(i, j))] = rank
        return Structure(self.dims, ranks)

    def random_point(self, rng: np.random.Generator) -> Point:
        """Ranks uniform in ``1..max_rank``, modes in random order."""
        return Point(
            tuple(int(r) for r in rng.integers(1, self.max_rank + 1, len(self.edges))),
            tuple(int(k) for k in rng.permutation(len(self.dims))),
        )

    def clip(self, rank: float) -> int:
        """The nearest rank that is allowed."""
        return int(min(max(round(rank), 1), self.max_rank))


def make_template(name: TemplateName, dims: tuple[int, ...], max_rank: int) -> Template:
    p = len(dims)
    if max_rank < 2:
        raise OptionError(f"max_rank={max_rank} leaves nothing to search; at least 2 is needed")
    chain = [(k, k + 1) for k in range(p - 1)]
    if not isinstance(name, str):
        edges = sorted({(min(e), max(e)) for e in name})
        if not edges or any(not 0 <= i < j < p for i, j in edges):
            raise OptionError(f"template={edges!r} is not a list of pairs of the vertices 0..{p - 1}")
    elif name == "chain":
        edges = chain
    elif name == "ring":
        edges = sorted({*chain, (0, p - 1)}) if p > 2 else chain
    elif name == "tree":
        edges = [((k - 1) // 2, k) for k in range(1, p)]
    elif name == "lattice":
        edges = _lattice(p)
    elif name == "complete":
        edges = list(combinations(range(p), 2))
    else:
        raise OptionError(
            f"template={name!r} is not known; choose 'ring', 'chain', 'lattice', 'tree', 'complete' or pairs"
        )
    return Template(dims, tuple(edges), max_rank)


def name_of(template: TemplateName) -> str:
    """What to call a template in ``Result.info``."""
    return template if isinstance(template, str) else "pairs"


def _lattice(p: int) -> list[Edge]:
    """Neighbours on the most nearly square grid with `p` vertices."""
    rows = max(r for r in range(1, math.isqrt(p) + 1) if p % r == 0)
    columns = p // rows
    across = [(k, k + 1) for k in range(p) if (k + 1) % columns]
    down = [(k, k + columns) for k in range(p - columns)]
    return sorted(across + down)
