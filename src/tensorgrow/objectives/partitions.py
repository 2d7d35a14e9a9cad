"""Listed entries in partitions: completion where entries stay with threads or the workers of a cluster.

Cores travel out to the parts; normal equations of slices, right-hand sides and squared norms travel back and
are added up in the order of the parts. A sweep makes one round per node, a loss one, and scoring any number
of edges as many as scoring one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..contraction import best_tree, leaves
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem
from .entries import CANCELLATION_SINGLE, ROW_FLOPS, SINGLE, SINGLE_ABOVE
from .entry_solve import solve_core
from .entry_sums import CHUNK_BYTES, GRAM_BYTES
from .partition_parts import Cores, Fit, Parts
from .partition_slices import PairBatch
from .partition_sums import ReducedSums, added, total_of
from .partition_tasks import ManyNorms, NodeNorm, NodeSums, Norms, PairGradient

__all__ = ["Census", "PartitionedLeastSquares"]

Array = Any


@dataclass(frozen=True)
class Census:
    """How many entries there are.

    Attributes
    ----------
    fitted, held_out
        Entries of both kinds.
    slices
        Fitted entries by mode and slice.
    largest_part
        Entries of the part that has most.
    """

    fitted: int
    held_out: int
    slices: tuple[Array, ...]
    largest_part: int


class PartitionedLeastSquares:
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
        self.fit = Fit(ridge, everything)
        self._norms: dict[tuple[bool, tuple[Cores, ...]], tuple[float, float]] = {}

    def _with(self, fit: Fit) -> PartitionedLeastSquares:
        other = copy(self)
        other.fit = fit
        return other

    def with_ridge(self, ridge: float) -> PartitionedLeastSquares:
        """The same entries with another ridge."""
        return self._with(replace(self.fit, ridge=ridge))

    # -- properties ------------------------------------------------------------------------------------

    @property
    def ridge(self) -> float:
        """Weight of the penalty on every core."""
        return self.fit.ridge

    @property
    def num_fitted(self) -> int:
        """Entries that are fitted."""
        return self.census.fitted

    @property
    def num_held_out(self) -> int:
        """Entries that are not fitted."""
        return self.census.held_out

    @property
    def rows(self) -> int:
        """All entries."""
        return self.census.fitted + self.census.held_out

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return float(torch.finfo(self.dtype).eps)

    @property
    def row_dtype(self) -> torch.dtype:
        """Number type of environment rows, as for entries in memory."""
        return SINGLE.get(self.dtype, self.dtype) if self.ridge >= SINGLE_ABOVE else self.dtype

    def _squares(self, cores: Cores | None) -> tuple[float, float]:
        found = list(self.parts.map(Norms(self.fit, cores)))
        return math.fsum(f for f, _ in found), math.fsum(h for _, h in found)

    @property
    def _both_norms(self) -> tuple[float, float]:
        """Norms of fitted and held-out values, found once for all ridges."""
        key = self.fit.everything, self.fit.minus
        if key not in self._norms:
            fitted, held_out = self._squares(None)
            self._norms[key] = math.sqrt(fitted), math.sqrt(held_out)
        return self._norms[key]

    @property
    def norm(self) -> float:
        """Weighted norm of the fitted entries."""
        return self._both_norms[0]

    @property
    def validation_norm(self) -> float | None:
        """Weighted norm of the held-out entries; None when there are none."""
        return self._both_norms[1] if self.num_held_out else None

    # -- arrays ----------------------------------------------------------------------------------------

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores as tensors of this process."""
        return [c.to(device="cpu", dtype=self.dtype).resolve_conj().resolve_neg() for c in network.cores]

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """Wrap arrays as a network."""
        return TensorNetwork(structure, arrays)

    # -- loss ------------------------------------------------------------------------------------------

    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        """Norms of the residual on the fitted and on the held-out entries: one round."""
        fitted, held_out = self._squares(Cores.of(structure, arrays))
        return math.sqrt(fitted), math.sqrt(held_out) if self.num_held_out else None

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """Norm of the residual on the fitted entries."""
        return self.losses(structure, arrays)[0]

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """Norm of the residual on the held-out entries."""
        return self.losses(structure, arrays)[1] if self.num_held_out else None

    def losses_of(self, networks: Sequence[TensorNetwork]) -> list[tuple[float, float | None]]:
        """Losses of several networks: one round."""
        cores = tuple(Cores.of(n.structure, self.to_arrays(n)) for n in networks)
        if not cores:
            return []
        held_out = self.num_held_out > 0
        return [
            (math.sqrt(math.fsum(f)), math.sqrt(math.fsum(h)) if held_out else None)
            for f, h in (zip(*one) for one in zip(*self.parts.map(ManyNorms(self.fit, cores))))
        ]

    def residual(self, network: TensorNetwork) -> PartitionedLeastSquares:
        """Objective whose values are what the network does not explain; parts subtract it when asked."""
        cores = Cores.of(network.structure, self.to_arrays(network))
        return self._with(replace(self.fit, minus=(*self.fit.minus, cores)))

    # -- node problems ---------------------------------------------------------------------------------

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once, a round for each; returns the squared loss after the last."""
        squared = 0.0
        for node in leaves(best_tree(structure, rows=self.rows)):
            given = self._node(structure, arrays, node)
            edges = _edges(structure, node)
            arrays[node], explained = solve_core(given, edges, arrays[node], self.ridge, ridge)
            squared = self.norm**2 - explained
        if self.row_dtype != self.dtype and squared < CANCELLATION_SINGLE * self.norm**2:
            return self.loss(structure, arrays) ** 2  # rows in single precision cannot tell
        return squared

    def _node(self, structure: Structure, arrays: Sequence[Array], node: int) -> ReducedSums:
        cores, width = Cores.of(structure, arrays), structure.bond_product(node)
        return ReducedSums(
            width,
            self.counts(node),
            lambda first, last: added(self.parts.map(NodeSums(self.fit, cores, node, first, last))),
            lambda: math.fsum(self.parts.map(NodeNorm(self.fit, cores, node))),
        )

    def counts(self, node: int) -> Array:
        """Fitted entries by slice of a node; internal nodes have one slice."""
        return self.census.slices[node] if node < len(self.dims) else np.array([self.num_fitted])

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """One Gram matrix per slice, bonds in the order of the core, and the right-hand side; no ridge."""
        structure = network.structure
        cores = Cores.of(structure, self.to_arrays(network))
        fit = replace(self.fit, ridge=0.0)  # rows in full precision
        size = structure.leg_dim(node)
        columns, *sums = added(self.parts.map(NodeSums(fit, cores, node, 0, size)))
        gram, rhs = map(torch.from_numpy, sums)
        sizes, k = [structure.ranks[e] for e in columns], len(columns)
        back = [columns.index(e) for e in _edges(structure, node)]
        gram = gram.reshape(size, *sizes, *sizes)
        gram = gram.permute(0, *(1 + b for b in back), *(1 + k + b for b in back))
        rhs = rhs.reshape(size, *sizes).permute(0, *(1 + b for b in back))
        return NormalEquations(gram.contiguous(), rhs.contiguous())

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Values contracted with all cores but two: one round."""
        cores = Cores.of(network.structure, self.to_arrays(network))
        return total_of(self.parts.map(PairGradient(self.fit, cores, edge, of_residual=False)))

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems on the residual; all of them are fitted in the same rounds."""
        if not edges:
            return []
        return list(PairBatch(self, Cores.of(structure, arrays), edges).problems)

    def residual_gradient(self, cores: Cores, edge: Edge) -> Array:
        """What a network leaves, contracted with all its cores but two: one round."""
        return total_of(self.parts.map(PairGradient(self.fit, cores, edge, of_residual=True)))

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        """As for entries in memory."""
        widths = [structure.bond_product(k) for k in range(structure.num_nodes)]
        per_entry = sum(2.0 * m * m + ROW_FLOPS * (1.0 + m / 4.0) for m in widths)
        return (4.0 if self.dtype.is_complex else 1.0) * self.num_fitted * per_entry

    def memory_needed(self, structure: Structure) -> int:
        """Bytes of this process: sums of one round, on their way and added up, and those being solved."""
        item = 16 if self.dtype.is_complex else 8
        grams = max(structure.leg_dim(k) * structure.bond_product(k) ** 2 for k in range(structure.num_nodes))
        widest = max(structure.bond_product(k) for k in range(structure.num_nodes))
        one = min(item * grams, GRAM_BYTES["cpu"] + item * widest**2)
        return (2 + self.parts.at_once) * one + 2 * CHUNK_BYTES["cpu"] * self.parts.at_once


def _edges(structure: Structure, node: int) -> tuple[Edge, ...]:
    """Edges of a node in the order of its core's axes."""
    return tuple((min(node, k), max(node, k)) for k in structure.neighbours[node])
