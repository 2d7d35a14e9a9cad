"""Listed entries under a loss other than the squared one, by least squares with changing weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from ..contraction import RowSource, RowTree
from ..losses import EntryLoss
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem
from .entries import VALUE_ENTRIES, ObservedLeastSquares

__all__ = ["ReweightedLeastSquares"]

Array = Any

# Steps that do not lower the loss are halved down to this share.
SHORTEST = 1e-2


class ReweightedLeastSquares(ObservedLeastSquares):
    """A loss on entries as least squares: before every sweep the loss is replaced by its parabola.

    That is Fisher scoring, as for generalised linear models, with cores in the place of coefficients. What
    the search sees as squared loss is the deviance: twice the sum of what each value loses more than under
    its best prediction. It is zero for a perfect fit, as a squared residual is.

    Parameters
    ----------
    loss
        Of predictions and values; the others are those of `ObservedLeastSquares`.
    """

    def __init__(self, *args: Any, loss: EntryLoss, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.entry_loss = loss

    def with_ridge(self, ridge: float) -> ReweightedLeastSquares:
        """The same entries with another ridge."""
        other = object.__new__(ReweightedLeastSquares)
        other.dims, other.values, other.ridge, other.index = self.dims, self.values, ridge, self.index
        other.entry_loss = self.entry_loss
        return other

    # -- loss ------------------------------------------------------------------------------------------

    @cached_property
    def _least(self) -> torch.Tensor:
        """What each value loses under its best prediction."""
        return self.entry_loss.least(self.values)

    def loss_at(self, found: torch.Tensor, chosen: torch.Tensor) -> float:
        """Root of the deviance at some of the entries, where the network is `found`."""
        gap = self.entry_loss.each(found, self.values[chosen]) - self._least[chosen]
        if self.index.scale is not None:
            gap = gap * self.index.scale[chosen] ** 2
        return math.sqrt(max(2.0 * float(gap.double().sum()), 0.0))

    # -- least squares ---------------------------------------------------------------------------------

    def linearised(self, structure: Structure, arrays: Sequence[Array]) -> ObservedLeastSquares:
        """Weighted least squares that agrees with the loss to second order at a network."""
        return self._parabola(self.predict(structure, arrays))

    def _parabola(self, found: torch.Tensor) -> ObservedLeastSquares:
        weight, step = self.entry_loss.working(found, self.values)
        scale = weight.sqrt() if self.index.scale is None else weight.sqrt() * self.index.scale
        # In units in which the weights are of order one: ridges are relative, but rounding is not.
        scale = scale / scale[self.index.fitted].square().mean().sqrt().clamp_min(1e-150)
        near = object.__new__(ObservedLeastSquares)
        near.dims, near.ridge, near.index = self.dims, self.ridge, self.index.rescaled(scale)
        near.values = found + step
        return near

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once, each on the parabola at the network as it is; returns the deviance.

        Entries are linear in one core, so that a step which does not lower the loss can be shortened without
        another contraction.
        """
        tree = RowTree(self.index.entries, structure, [a.to(self.row_dtype) for a in arrays])
        fitted, reached = self.index.fitted, 0.0
        for node in tree.order:
            source, edges = tree.environment(node), tree.edges(node)
            found = self._through(node, source, edges, arrays[node])
            near = self._parabola(found)
            core, _ = near.solve(node, source, edges, arrays[node], near.values, ridge)
            change = self._through(node, source, edges, core) - found
            found, change = found[fitted], change[fitted]
            start, share = self.loss_at(found, fitted), 1.0
            reached = self.loss_at(found + change, fitted)
            while reached > start and share > SHORTEST:
                share *= 0.5
                reached = self.loss_at(found + share * change, fitted)
            if reached > start:
                reached = start
                continue
            arrays[node] = arrays[node] + share * (core - arrays[node])
            tree.set_core(node, arrays[node].to(self.row_dtype))
        return reached**2

    def _through(
        self, node: int, source: RowSource, edges: Sequence[Edge], core: torch.Tensor
    ) -> torch.Tensor:
        """The network at all entries, from the environment of a node and its core."""
        moved = core.permute(0, *(1 + edges.index(e) for e in source.edges)).reshape(core.shape[0], -1)
        moved = moved.to(source.dtype)
        columns = self.index.entries.columns
        every = torch.arange(len(self.values), device=self.values.device)
        parts = []
        for chosen in torch.split(every, max(1, VALUE_ENTRIES[every.device.type] // source.row_entries)):
            mine = moved if node >= len(columns) else moved.index_select(0, columns[node][chosen])
            parts.append((source.rows(chosen) * mine).sum(1))
        return torch.cat(parts).to(self.values.dtype)

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """Those of the parabola at the network."""
        return self.linearised(network.structure, self.to_arrays(network)).normal_equations(network, node)

    def residual(self, network: TensorNetwork) -> ObservedLeastSquares:
        """What the parabola at the network leaves to explain."""
        return self.linearised(network.structure, self.to_arrays(network)).residual(network)

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """That of the parabola at the network."""
        return self.linearised(network.structure, self.to_arrays(network)).pair_gradient(network, edge)

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems on the parabola at the network; what they explain is in units of the deviance."""
        near = self.linearised(structure, arrays)
        unit = self._unit(structure, arrays, near)
        return [_Rescaled(p, unit) for p in near.pair_problems(structure, arrays, edges)]

    def _unit(self, structure: Structure, arrays: Sequence[Array], near: ObservedLeastSquares) -> float:
        """Deviance per squared weighted residual of the parabola, on the data the search goes by."""
        mine, theirs = self.losses(structure, arrays), near.losses(structure, arrays)
        mine_now = mine[0] if mine[1] is None else mine[1]
        theirs_now = theirs[0] if theirs[1] is None else theirs[1]
        return (mine_now / max(theirs_now, 1e-150)) ** 2


class _Rescaled:
    """A slice problem whose gain is reported in other units."""

    def __init__(self, problem: PairProblem, unit: float) -> None:
        self._problem = problem
        self._unit = unit

    @property
    def edge(self) -> Edge:
        """The edge."""
        return self._problem.edge

    @property
    def gradient(self) -> Array:
        """That of the problem itself."""
        return self._problem.gradient

    def fit(self, right: Array | None, sweeps: int) -> Any:
        """Slices of the problem itself."""
        found = self._problem.fit(right, sweeps)
        return found._replace(explained=self._unit * found.explained)
