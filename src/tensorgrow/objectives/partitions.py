"""Listed entries in partitions: completion where entries stay with threads or the workers of a cluster.

Cores travel out to the parts; normal equations of slices, right-hand sides and squared norms travel back and
are added up in the order of the parts. A sweep makes one round per node, a loss one, and scoring any number
of edges as many as scoring one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import torch

from ..algebra.linalg import Number
from ..contraction import Array, best_tree, entries_needed, leaves
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import SharesPasses
from .entries import ListedLeastSquares, index_bytes
from .entry_cores import SliceSums, gram_bytes, solve_core
from .entry_sums import rows_bytes
from .partition_slices import PairBatch
from .partition_tasks import (
    NO_SUMS,
    Cores,
    Fit,
    NodeTask,
    Norms,
    PairGradient,
    Parts,
    Sums,
    add_array,
    add_sums,
    add_up,
    sum_slices,
    sum_squares,
)
from .slices import PairProblem


@dataclass(frozen=True)
class Census:
    """How many entries there are."""

    fitted: int
    held_out: int
    slices: tuple[Array, ...]  # fitted entries by mode and slice
    parts: tuple[int, ...]  # entries of each part


class PartitionedLeastSquares(ListedLeastSquares, SharesPasses):
    """``||values - network at the entries||`` as `ObservedLeastSquares`, for entries in parts.

    Parameters
    ----------
    parts
        Where the entries are.
    dims
        Shape of the tensor.
    dtype
        Of the values.
    census
        Entries of the parts.
    everything
        Whether held-out entries are fitted too; `census` must say so.
    """

    def __init__(
        self,
        parts: Parts,
        dims: Sequence[int],
        dtype: torch.dtype,
        census: Census,
        *,
        ridge: float = 1e-2,
        everything: bool = False,
    ) -> None:
        self.parts = parts
        self.dims = tuple(dims)
        self.dtype = dtype
        self.census = census
        self.ridge = ridge
        self._everything = everything
        self._minus: tuple[Cores, ...] = ()
        self._norms: dict[tuple[Cores, ...], tuple[float, float | None]] = {}  # the same for all ridges

    @property
    def fit(self) -> Fit:
        """What parts fit."""
        return Fit(self.ridge, self._everything, self._minus)

    @property
    def num_fitted(self) -> int:
        return self.census.fitted

    @property
    def num_held_out(self) -> int:
        return self.census.held_out

    def _losses(self, *networks: Cores | None) -> list[tuple[float, float | None]]:
        """Losses of several networks on fitted and held-out entries: one round."""
        squares = self.parts.map(Norms(self.fit, networks))
        both = ((math.sqrt(math.fsum(x)) for x in zip(*one)) for one in zip(*squares))
        return [(fitted, held_out if self.num_held_out else None) for fitted, held_out in both]

    @property
    def _both_norms(self) -> tuple[float, float | None]:
        if self._minus not in self._norms:
            self._norms[self._minus] = self._losses(None)[0]
        return self._norms[self._minus]

    @property
    def norm(self) -> float:
        return self._both_norms[0]

    @property
    def validation_norm(self) -> float | None:
        return self._both_norms[1]

    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        return self._losses(Cores.of(structure, arrays))[0]

    def losses_of(self, networks: Sequence[TensorNetwork]) -> list[tuple[float, float | None]]:
        if not networks:
            return []
        return self._losses(*(Cores.of(n.structure, self.to_arrays(n)) for n in networks))

    def residual(self, network: TensorNetwork) -> PartitionedLeastSquares:
        cores = Cores.of(network.structure, self.to_arrays(network))
        return self._variant(_minus=(*self._minus, cores))

    # -- node problems ---------------------------------------------------------------------------------

    def _solve_in_turn(self, structure: Structure, arrays: list[Array], ridge: float) -> Number:
        explained: Number = 0.0
        for node in leaves(best_tree(structure, rows=self.num_fitted + self.num_held_out)):
            equations = self._equations(structure, arrays, node)
            edges = structure.edges_of(node)
            arrays[node], explained = solve_core(
                equations, edges, arrays[node], self.ridge, ridge, self.penalties.of(node)
            )
        return explained

    def _equations(self, structure: Structure, arrays: Sequence[Array], node: int) -> SliceSums:
        task = partial(NodeTask, self.fit, Cores.of(structure, arrays), node)

        def sums(first: int, last: int) -> Sums:
            results = self.parts.map(task(partial(sum_slices, first=first, last=last)))
            return reduce(add_sums, results, NO_SUMS)

        width = structure.bond_product(node)
        return add_up(width, self.counts(node), sums, lambda: math.fsum(self.parts.map(task(sum_squares))))

    def counts(self, node: int) -> Array:
        """Fitted entries by slice of a node; internal nodes have one slice."""
        return self.census.slices[node] if node < len(self.dims) else np.array([self.num_fitted])

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        return list(PairBatch(self, Cores.of(structure, arrays), edges).problems)

    def residual_gradient(self, cores: Cores, edge: Edge) -> torch.Tensor:
        """What a network leaves, contracted with all its cores but two: one round."""
        return torch.from_numpy(reduce(add_array, self.parts.map(PairGradient(self.fit, cores, edge)), None))

    # -- cost ------------------------------------------------------------------------------------------

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        item, total = self.dtype.itemsize, self.num_fitted + self.num_held_out
        held = sorted(self.census.parts, reverse=True)[: self.parts.in_memory]
        needed = sum(index_bytes(structure, n) + item * entries_needed(structure, n, total) for n in held)
        working = sum(rows_bytes(structure, n, item, "cpu") for n in held[: self.parts.at_once])
        grams = (2 + self.parts.at_once) * gram_bytes(structure, item, "cpu")
        return needed + working + max(grams, self.penalties.solve_bytes(structure, item))
