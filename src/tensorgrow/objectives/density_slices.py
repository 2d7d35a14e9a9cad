"""A density around one node, or around the new slices of an edge: everything else contracted once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch

from ..contraction import Entries, RowTree, SumTree
from ..contraction.sum_tree import Label
from ..data.arrays import add_at
from ..structure import Edge
from .density_cores import Share


class Samples:
    """Distinct samples and their weights.

    Parameters
    ----------
    rows
        Integers ``(n, order)``; equal rows are merged.
    weights
        One per row, none negative.
    dims
        Numbers of values of the legs.
    """

    def __init__(self, rows: torch.Tensor, weights: torch.Tensor, dims: tuple[int, ...]) -> None:
        self.rows, group = torch.unique(rows, dim=0, return_inverse=True)
        self.weights = torch.zeros(len(self.rows), dtype=weights.dtype, device=weights.device)
        add_at(self.weights, group, weights)
        self.total = float(weights.sum())
        self.dims = dims
        self._sorted: dict[int, tuple[torch.Tensor, list[int]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def entries(self) -> Entries:
        """The samples as positions at which networks are contracted."""
        return Entries(self.rows, self.dims)

    @cached_property
    def shares(self) -> torch.Tensor:
        """Weights of sum one."""
        return self.weights.double() / self.total

    def by_value(self, node: int) -> tuple[torch.Tensor, list[int]]:
        """Numbers of the samples sorted by the value of a leg, and how many have each value."""
        if node not in self._sorted:
            internal = node >= len(self.dims)
            column = torch.zeros_like(self.rows[:, 0]) if internal else self.rows[:, node]
            counts = torch.bincount(column, minlength=1 if internal else self.dims[node])
            self._sorted[node] = torch.argsort(column, stable=True), counts.tolist()
        return self._sorted[node]


class DensityTree:
    """Contractions of a network at samples, and of the sum over all values, kept until a core changes.

    Parameters
    ----------
    cores
        In double precision; those of a non-negative density are not negative.
    sums
        Of the same cores, over all values.
    """

    def __init__(self, samples: Samples, cores: Sequence[torch.Tensor], sums: SumTree) -> None:
        self.samples, self.structure, self.sums = samples, sums.structure, sums
        self.rows = RowTree(samples.entries, sums.structure, cores)

    @property
    def cores(self) -> list[torch.Tensor]:
        return self.rows.cores

    def set_core(self, node: int, core: torch.Tensor) -> None:
        """Replace a core."""
        self.rows.set_core(node, core)
        self.sums.set_core(node, core)

    def improve(self, node: int) -> float:
        """Replace a core by a more likely one of norm one; returns the mean negative log-likelihood."""
        source, own = self.rows.environment(node), self.structure.edges_of(node)
        order, counts = self.samples.by_value(node)
        gram = self.sums.environment(node).arrange(self._labels(source.edges))
        share = Share(source.rows(order), self.samples.shares[order], counts, self._matrix(gram))
        axes = [0, *(1 + own.index(e) for e in source.edges)]
        core = self.cores[node].permute(axes)
        found = share.improve(core.reshape(len(core), -1))
        loss = share.loss(found)
        back = [0, *(1 + source.edges.index(e) for e in own)]
        found = found.reshape(core.shape).permute(back)
        self.set_core(node, (found / torch.linalg.vector_norm(found)).contiguous())
        return loss

    def values(self) -> torch.Tensor:
        """The network at the samples."""
        return self.rows.values(1 << 19)

    def slice_share(
        self, edge: Edge, piece: torch.Tensor, values: torch.Tensor, total: float
    ) -> tuple[Share, list[int]]:
        """The likelihood as a function of the new slice of node ``edge[0]``, where ``edge[1]`` gets `piece`.

        Parameters
        ----------
        piece
            New slice of ``edge[1]``: axes of its core without the edge.
        values, total
            The network at the samples, and the sum, without the new slices.

        Returns
        -------
        share
            For a slice whose columns are in the order of `source.edges`.
        axes
            The order of axes that puts the slice, with its leg first, into the order of the core.
        """
        node, other = edge
        gone = (min(edge), max(edge))
        source = self.rows.pair_environment(node, other, piece)
        mine, theirs = (tuple(e for e in self.structure.edges_of(k) if e != gone) for k in (node, other))
        order, counts = self.samples.by_value(node)
        sums, layers = self.sums, self.sums.layers
        gram = sums.environment(node, other, sums.pair([(piece, theirs)] * layers))
        linear = None
        if layers == 2:
            old = [(self.cores[other], self.structure.edges_of(other)), (piece, theirs)]
            mixed = sums.environment(node, other, sums.pair(old))
            own = self.structure.edges_of(node)
            crossed = mixed.arrange([*((e, 0) for e in own), *((e, 1) for e in source.edges)])
            core = self.cores[node]
            linear = core.reshape(len(core), -1) @ crossed.reshape(core[0].numel(), -1)
        share = Share(
            source.rows(order),
            self.samples.shares[order],
            counts,
            self._matrix(gram.arrange(self._labels(source.edges))),
            values[order],
            linear,
            total,
        )
        return share, [0, *(1 + source.edges.index(e) for e in mine)]

    def _labels(self, edges: Sequence[Edge]) -> list[Label]:
        return [(e, layer) for layer in range(self.sums.layers) for e in edges]

    def _matrix(self, gram: torch.Tensor) -> torch.Tensor:
        """A Gram matrix, or the vector that stands for it where there is one layer."""
        width = math.isqrt(gram.numel()) if self.sums.layers == 2 else gram.numel()
        return gram.reshape([width] * self.sums.layers)
