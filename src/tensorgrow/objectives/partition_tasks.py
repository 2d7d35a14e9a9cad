"""Tasks on parts of the listed entries of a tensor: what is sent to a part, what comes back, and their sums.

A *task* is called with a part and returns small arrays; results of all parts are added up. Tasks and their
results travel between processes, so they hold NumPy arrays. A part keeps what the next task is likely to need
again: contractions with cores that have not changed, and residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from ..contraction import Array, RowSource, RowTree
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .entries import ObservedLeastSquares
from .entry_cores import SliceSums
from .entry_slices import EntryPairProblem
from .entry_sums import SliceTable

T = TypeVar("T")

Sums = tuple[tuple[Edge, ...], Array, Array]
"""Bonds in the order of the columns, Gram matrices and right-hand sides."""

NO_SUMS: Sums = ((), None, None)

Computation = Callable[[SliceTable, RowSource, torch.Tensor], T]
"""Of entries by slice, their environment rows and values; pickled with its task."""

# -- parts and what travels to them ------------------------------------------------------------------------


class EntryPart:
    """Entries of one partition, and what the last tasks left behind."""

    def __init__(self, objective: ObservedLeastSquares) -> None:
        self._objective = objective
        self._everything: ObservedLeastSquares | None = None
        self._tree: RowTree | None = None
        self._rest: tuple[Fit, Cores, torch.Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_objective": self._objective, "_everything": None, "_tree": None, "_rest": None}

    @property
    def dims(self) -> tuple[int, ...]:
        return self._objective.dims

    def positions(self) -> tuple[Array, Array]:
        """Positions of the fitted and of the held-out entries."""
        index = self._objective.index
        columns = torch.stack(index.entries.columns, 1)
        return columns[index.fitted].cpu().numpy(), columns[index.held_out].cpu().numpy()

    def numbers(self) -> tuple[Array, ...]:
        """Values of all entries, and the roots of their weights where they have some."""
        scale = self._objective.index.scale
        listed = (self._objective.values,) if scale is None else (self._objective.values, scale)
        return tuple(numbers.cpu().numpy() for numbers in listed)

    def all_positions(self) -> Array:
        """Positions of all entries, in the order of `numbers`."""
        return torch.stack(self._objective.index.entries.columns, 1).cpu().numpy()

    def objective(self, fit: Fit) -> ObservedLeastSquares:
        """Least squares on these entries, as `fit` says."""
        objective = self._objective
        if fit.everything:
            self._everything = objective = self._everything or objective.with_everything()
        objective = objective.with_ridge(fit.ridge)
        for cores in fit.minus:
            objective = objective.residual(cores.network)
        return objective

    def arrays(self, cores: Cores, dtype: torch.dtype) -> list[torch.Tensor]:
        """Cores where the entries are."""
        device = self._objective.values.device
        return [as_tensor(a).to(device, dtype) for a in cores.arrays]

    def tree(self, fit: Fit, cores: Cores) -> RowTree:
        """Contractions at the entries; those with unchanged cores come from the last call."""
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

    def pair(self, fit: Fit, cores: Cores, edge: Edge) -> EntryPairProblem:
        """New slices of an edge on the residual."""
        tree = self.tree(fit, cores)
        return EntryPairProblem(self.objective(fit), tree, edge, self.residual(fit, cores))


@dataclass(frozen=True, eq=False)
class Cores:
    """A network that travels to the parts."""

    structure: Structure
    arrays: tuple[Array, ...]

    @classmethod
    def of(cls, structure: Structure, arrays: Sequence[torch.Tensor]) -> Cores:
        return cls(structure, tuple(a.detach().cpu().numpy() for a in arrays))

    @property
    def network(self) -> TensorNetwork:
        return TensorNetwork(self.structure, [as_tensor(a) for a in self.arrays])

    def same(self, other: Cores) -> bool:
        """Whether the other one has the same numbers."""
        return self.structure == other.structure and all(map(np.array_equal, self.arrays, other.arrays))


@dataclass(frozen=True)
class Fit:
    """What is fitted."""

    ridge: float  # relative to the mean diagonal of the Gram matrices; decides on the precision of the rows
    everything: bool = False  # whether held-out entries are fitted too
    minus: tuple[Cores, ...] = ()  # networks that are subtracted from the values


class Parts(Protocol):
    """All parts, wherever they are."""

    @property
    def at_once(self) -> int:
        """Parts that one process works on at the same time."""

    @property
    def in_memory(self) -> int:
        """Parts that this process holds at the same time."""

    def map(self, task: Callable[[EntryPart], T]) -> Iterator[T]:
        """Results of a task for all parts, in their order; the task is pickled."""


def as_tensor(array: Array) -> torch.Tensor:
    """A copy: arrays from another process are read-only."""
    return torch.from_numpy(np.array(array))


# -- losses --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Norms:
    """Squared norms of what several networks leave of fitted and held-out values; None stands for zero."""

    fit: Fit
    networks: tuple[Cores | None, ...]

    def __call__(self, part: EntryPart) -> list[tuple[float, float]]:
        objective = part.objective(self.fit)
        squares = []
        for cores in self.networks:
            if cores is None:
                fitted, held_out = objective.norm, objective.validation_norm
            else:
                arrays = part.arrays(cores, objective.dtype)
                fitted, held_out = objective.losses(cores.structure, arrays)
            squares.append((fitted**2, (held_out or 0.0) ** 2))
        return squares


# -- cores ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeTask(Generic[T]):
    """A number or sums for one core, computed from its environment."""

    fit: Fit
    cores: Cores
    node: int
    compute: Computation[T]

    def __call__(self, part: EntryPart) -> T:
        objective = part.objective(self.fit)
        source = part.tree(self.fit, self.cores).environment(self.node)
        return self.compute(objective.index.table(self.node), source, objective.values)


# -- edges ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewSlice:
    """A slice to fit on one side of an edge, while the other side holds the slice `other`."""

    edge: Edge
    side: int
    other: Array


@dataclass(frozen=True)
class PairTask(Generic[T]):
    """As `NodeTask`, for new slices of several edges, computed from the residual."""

    fit: Fit
    cores: Cores
    slices: tuple[NewSlice, ...]
    compute: Computation[T]

    def __call__(self, part: EntryPart) -> list[T]:
        index, results = part.objective(self.fit).index, []
        for new in self.slices:
            problem = part.pair(self.fit, self.cores, new.edge)
            source = problem.source(new.side, as_tensor(new.other).to(problem.residual.device))
            results.append(self.compute(index.table(new.edge[new.side]), source, problem.residual))
        return results


def sum_slices(
    table: SliceTable, source: RowSource, values: torch.Tensor, first: int = 0, last: int | None = None
) -> Sums:
    """Normal equations of a range of slices."""
    gram, rhs = table.sums(source, values, first, table.size if last is None else last)
    return source.edges, gram.cpu().numpy(), rhs.cpu().numpy()


def sum_sides(table: SliceTable, source: RowSource, values: torch.Tensor) -> tuple[tuple[Edge, ...], Array]:
    """Right-hand sides of all slices, with the bonds in the order of the columns."""
    return source.edges, table.right_hand_side(source, values).cpu().numpy()


def sum_squares(table: SliceTable, source: RowSource, values: torch.Tensor) -> float:
    """Sum of the diagonals of all Gram matrices."""
    return table.squared_norm(source)


@dataclass(frozen=True)
class PairGains:
    """By how much new slices lower the squared residual on held-out entries, for several edges."""

    fit: Fit
    cores: Cores
    slices: tuple[tuple[Edge, Array, Array], ...]

    def __call__(self, part: EntryPart) -> list[float]:
        held_out = part.objective(self.fit).index.held_out
        gains = []
        for edge, left, right in self.slices:
            problem = part.pair(self.fit, self.cores, edge)
            a, b = (as_tensor(x).to(problem.residual.device) for x in (left, right))
            gains.append(problem.gain(a, b, held_out) if len(held_out) else 0.0)
        return gains


@dataclass(frozen=True)
class PairGradient:
    """Residual contracted with all cores but two."""

    fit: Fit
    cores: Cores
    edge: Edge

    def __call__(self, part: EntryPart) -> Array:
        return part.pair(self.fit, self.cores, self.edge).gradient.cpu().numpy()


# -- sums over parts ---------------------------------------------------------------------------------------


def add_up(
    width: int, counts: Array, sums: Callable[[int, int], Sums], squared_norm: Callable[[], float]
) -> SliceSums:
    """Equations of all parts, from functions that add up over them and the fitted entries of every slice."""

    def convert(first: int, last: int) -> tuple[tuple[Edge, ...], torch.Tensor, torch.Tensor]:
        edges, gram, rhs = sums(first, last)
        return edges, torch.from_numpy(gram), torch.from_numpy(rhs)

    filled, empty = (torch.from_numpy(np.flatnonzero(x)) for x in (counts > 0, counts == 0))
    return SliceSums(width, len(counts), filled, empty, convert, squared_norm)


def add_sums(total: Sums, sums: Sums) -> Sums:
    """Add the sums of one part in double precision; the bonds are the same for all."""
    return sums[0], add_array(total[1], sums[1]), add_array(total[2], sums[2])


def add_array(total: Array | None, array: Array) -> Array:
    """Add to a sum in double precision, in place; None stands for zero."""
    if total is None:
        return np.array(array, dtype=np.result_type(array.dtype, np.float64), order="C")
    total += array
    return total
