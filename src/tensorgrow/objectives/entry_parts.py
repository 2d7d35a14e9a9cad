"""Some of the listed entries of a tensor, where they stay, and what is computed from them given the cores.

A *task* is called with a part and returns small arrays; results of all parts are added up. Tasks and their
results travel between processes, so they hold NumPy arrays. A part keeps what the next task is likely to need
again: contractions with cores that have not changed, and residuals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from ..contraction import RowTree
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .observed import ObservedLeastSquares
from .observed_pairs import ObservedPairProblem

__all__ = [
    "Cores",
    "EntryPart",
    "Fit",
    "ManyNorms",
    "NodeNorm",
    "NodeSums",
    "Norms",
    "PairGains",
    "PairGradient",
    "PairSides",
    "PairSums",
    "Parts",
    "Sums",
    "Task",
    "Wish",
]

Array = Any
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class EntryPart:
    """Entries of one partition.

    Parameters
    ----------
    objective
        Least squares on them.
    """

    def __init__(self, objective: ObservedLeastSquares) -> None:
        self._objective = objective
        self._everything: ObservedLeastSquares | None = None
        self._tree: RowTree | None = None
        self._rest: tuple[Fit, Cores, torch.Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_objective": self._objective, "_everything": None, "_tree": None, "_rest": None}

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self._objective.dims

    def positions(self) -> tuple[Array, Array]:
        """Positions of the fitted and of the held-out entries."""
        index = self._objective.index
        columns = torch.stack(index.entries.columns, 1)
        return columns[index.fitted].cpu().numpy(), columns[index.held_out].cpu().numpy()

    def objective(self, fit: Fit) -> ObservedLeastSquares:
        """Least squares as a run asks for them."""
        found = self._objective
        if fit.everything:
            self._everything = found = self._everything or found.with_everything()
        found = found.with_ridge(fit.ridge)
        for cores in fit.minus:
            found = found.residual(cores.network)
        return found

    def arrays(self, cores: Cores, dtype: torch.dtype) -> list[torch.Tensor]:
        """Cores where the entries are."""
        device = self._objective.values.device
        return [_tensor(a).to(device, dtype) for a in cores.arrays]

    def tree(self, fit: Fit, cores: Cores) -> RowTree:
        """Contractions at the entries; those with unchanged cores are the ones made before."""
        objective = self._objective.with_ridge(fit.ridge)
        wanted = self.arrays(cores, objective.row_dtype)
        tree = self._tree
        if tree is not None and tree.structure == cores.structure and tree.cores[0].dtype == wanted[0].dtype:
            for node, (old, new) in enumerate(zip(tree.cores, wanted)):
                if not torch.equal(old, new):
                    tree.set_core(node, new)
            return tree
        self._tree = RowTree(objective.index.entries, cores.structure, wanted)
        return self._tree

    def residual(self, fit: Fit, cores: Cores) -> torch.Tensor:
        """What the network leaves of the values."""
        if self._rest is None or self._rest[0] != fit or not self._rest[1].same(cores):
            objective = self.objective(fit)
            arrays = self.arrays(cores, objective.values.dtype)
            self._rest = fit, cores, objective.values - objective.predict(cores.structure, arrays)
        return self._rest[2]

    def pair(self, fit: Fit, cores: Cores, edge: Edge) -> ObservedPairProblem:
        """New slices of an edge on the residual."""
        tree = self.tree(fit, cores)
        return ObservedPairProblem(self.objective(fit), tree, edge, self.residual(fit, cores))


@dataclass(frozen=True, eq=False)
class Cores:
    """A network that travels to the parts."""

    structure: Structure
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, structure: Structure, arrays: Sequence[torch.Tensor]) -> Cores:
        """From tensors."""
        return cls(structure, tuple(a.detach().cpu().numpy() for a in arrays))

    @property
    def network(self) -> TensorNetwork:
        """The network itself."""
        return TensorNetwork(self.structure, [_tensor(a) for a in self.arrays])

    def same(self, other: Cores) -> bool:
        """Whether the other one has the same numbers."""
        return self.structure == other.structure and all(map(np.array_equal, self.arrays, other.arrays))


@dataclass(frozen=True)
class Fit:
    """What is fitted.

    Attributes
    ----------
    ridge
        Relative to the mean diagonal of the Gram matrices; it decides on the precision of the rows.
    everything
        Whether held-out entries are fitted too.
    minus
        Networks that are subtracted from the values.
    """

    ridge: float
    everything: bool = False
    minus: tuple[Cores, ...] = ()


class Task(Protocol[T_co]):
    """What is computed from a part; it must be possible to send it to another process."""

    def __call__(self, part: EntryPart) -> T_co:
        """Small arrays."""


class Parts(Protocol):
    """All parts, wherever they are."""

    @property
    def at_once(self) -> int:
        """Parts that one process works on at the same time."""

    @property
    def rounds(self) -> int:
        """How often tasks were sent to all parts."""

    def map(self, task: Task[T]) -> Iterator[T]:
        """Results of a task for all parts, in their order."""


def _tensor(array: Array) -> torch.Tensor:
    """A tensor of its own: what came from another process may not be written to."""
    return torch.from_numpy(np.array(array))


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
    given = _tensor(wish.given).to(problem.residual.device)
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
            a, b = (_tensor(x).to(problem.residual.device) for x in (left, right))
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
