"""What is computed from the entries of one part, given the cores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..structure import Edge
from .entry_slices import ObservedPairProblem
from .partition_parts import Cores, EntryPart, Fit, as_tensor

__all__ = [
    "ManyNorms",
    "NodeNorm",
    "NodeSums",
    "Norms",
    "PairGains",
    "PairGradient",
    "PairSides",
    "PairSums",
    "Sums",
    "Wish",
]

Array = Any

# -- losses --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Norms:
    """Squared norms of fitted and held-out values, or of what a network leaves of them."""

    fit: Fit
    cores: Cores | None = None

    def __call__(self, part: EntryPart) -> tuple[float, float]:
        """Both squares."""
        objective = part.objective(self.fit)
        if self.cores is None:
            fitted, held_out = objective.norm, objective.validation_norm
        else:
            arrays = part.arrays(self.cores, objective.values.dtype)
            fitted, held_out = objective.losses(self.cores.structure, arrays)
        return fitted**2, (held_out or 0.0) ** 2


@dataclass(frozen=True)
class ManyNorms:
    """Squared norms of what several networks leave of fitted and held-out values."""

    fit: Fit
    networks: tuple[Cores, ...]

    def __call__(self, part: EntryPart) -> list[tuple[float, float]]:
        """Both squares for each."""
        return [Norms(self.fit, cores)(part) for cores in self.networks]


# -- cores ---------------------------------------------------------------------------------------------

Sums = tuple[tuple[Edge, ...], Array, Array]
"""Bonds in the order of the columns, Gram matrices and right-hand sides."""


@dataclass(frozen=True)
class NodeSums:
    """Normal equations of some slices of one core."""

    fit: Fit
    cores: Cores
    node: int
    first: int
    last: int

    def __call__(self, part: EntryPart) -> Sums:
        """Sums over the fitted entries of the part."""
        objective = part.objective(self.fit)
        source = part.tree(self.fit, self.cores).environment(self.node)
        table = objective.index.table(self.node)
        gram, rhs = table.sums(source, objective.values, self.first, self.last)
        return source.edges, gram.cpu().numpy(), rhs.cpu().numpy()


@dataclass(frozen=True)
class NodeNorm:
    """Sum of the diagonals of a core's Gram matrices."""

    fit: Fit
    cores: Cores
    node: int

    def __call__(self, part: EntryPart) -> float:
        """Its share."""
        source = part.tree(self.fit, self.cores).environment(self.node)
        return part.objective(self.fit).index.table(self.node).squared_norm(source)


# -- edges ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """A slice on one side of an edge is looked for, given that on the other."""

    edge: Edge
    side: int
    given: Array


@dataclass(frozen=True)
class PairSums:
    """Normal equations of new slices, for several edges."""

    fit: Fit
    cores: Cores
    wishes: tuple[Wish, ...]
    range: tuple[int, int] | None = None

    def __call__(self, part: EntryPart) -> list[Sums]:
        """Sums for each edge, over all slices or some."""
        found = []
        for wish in self.wishes:
            problem, table, source = _environment(part, self.fit, self.cores, wish)
            first, last = self.range or (0, table.size)
            gram, rhs = table.sums(source, problem.residual, first, last)
            found.append((source.edges, gram.cpu().numpy(), rhs.cpu().numpy()))
        return found


@dataclass(frozen=True)
class PairSides:
    """Right-hand sides of new slices, for several edges; or squared norms of their environment rows."""

    fit: Fit
    cores: Cores
    wishes: tuple[Wish, ...]
    norms: bool = False

    def __call__(self, part: EntryPart) -> list[Any]:
        """Bonds in the order of the columns and right-hand sides, or numbers."""
        found: list[Any] = []
        for wish in self.wishes:
            problem, table, source = _environment(part, self.fit, self.cores, wish)
            if self.norms:
                found.append(table.squared_norm(source))
            else:
                rhs = table.right_hand_side(source, problem.residual)
                found.append((source.edges, rhs.cpu().numpy()))
        return found


def _environment(part: EntryPart, fit: Fit, cores: Cores, wish: Wish) -> tuple[ObservedPairProblem, Any, Any]:
    problem = part.pair(fit, cores, wish.edge)
    given = as_tensor(wish.given).to(problem.residual.device)
    table = part.objective(fit).index.table(wish.edge[wish.side])
    return problem, table, problem.source(wish.side, given)


@dataclass(frozen=True)
class PairGains:
    """By how much new slices lower the squared residual on held-out entries."""

    fit: Fit
    cores: Cores
    slices: tuple[tuple[Edge, Array, Array], ...]

    def __call__(self, part: EntryPart) -> list[float]:
        """One number per edge."""
        held_out = part.objective(self.fit).index.held_out
        found = []
        for edge, left, right in self.slices:
            problem = part.pair(self.fit, self.cores, edge)
            a, b = (as_tensor(x).to(problem.residual.device) for x in (left, right))
            found.append(problem.explained(a, b, held_out) if len(held_out) else 0.0)
        return found


@dataclass(frozen=True)
class PairGradient:
    """Values, or residuals, contracted with all cores but two."""

    fit: Fit
    cores: Cores
    edge: Edge
    of_residual: bool

    def __call__(self, part: EntryPart) -> Array:
        """A matrix, left slice by right slice."""
        objective = part.objective(self.fit)
        if self.of_residual:
            return part.pair(self.fit, self.cores, self.edge).gradient.cpu().numpy()
        return objective.pair_gradient(self.cores.network, self.edge).cpu().numpy()
