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
from .entries import ObservedLeastSquares
from .entry_slices import ObservedPairProblem

__all__ = ["Cores", "EntryPart", "Fit", "Parts", "Task", "as_tensor"]

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
        return [as_tensor(a).to(device, dtype) for a in cores.arrays]

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
        return TensorNetwork(self.structure, [as_tensor(a) for a in self.arrays])

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


def as_tensor(array: Array) -> torch.Tensor:
    """A tensor of its own: what came from another process may not be written to."""
    return torch.from_numpy(np.array(array))
