"""Listed entries under a loss other than the squared one, by least squares with changing weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import torch

from ..contraction import Array, RowSource, RowTree
from ..losses import EntryLoss
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .entries import VALUE_ENTRIES, ObservedLeastSquares
from .penalties import Penalties
from .slices import ChangedPairProblem, PairProblem, SliceFit


class ReweightedLeastSquares(ObservedLeastSquares):
    """A loss on entries as least squares: before every sweep the loss is replaced by its parabola.

    That is Fisher scoring, as for generalised linear models, with cores in the place of coefficients. What
    the search sees as squared loss is the deviance: twice the sum of what each value loses more than under
    its best prediction. It is zero for a perfect fit, as a squared residual is.

    Parameters
    ----------
    squares
        The entries, their weights and the ridge.
    loss
        Of predictions and values.
    """

    def __init__(self, squares: ObservedLeastSquares, loss: EntryLoss) -> None:
        self._set(squares.index, squares.values, squares.ridge)
        self.penalties = squares.penalties
        self.squares, self.entry_loss = squares, loss

    def with_ridge(self, ridge: float) -> ReweightedLeastSquares:
        return ReweightedLeastSquares(self.squares.with_ridge(ridge), self.entry_loss)

    def with_penalties(self, penalties: Penalties) -> ReweightedLeastSquares:
        return ReweightedLeastSquares(self.squares.with_penalties(penalties), self.entry_loss)

    def on(self, device: torch.device) -> ReweightedLeastSquares:
        return ReweightedLeastSquares(self.squares.on(device), self.entry_loss)

    def with_everything(self) -> ReweightedLeastSquares:
        return ReweightedLeastSquares(self.squares.with_everything(), self.entry_loss)

    # -- loss ------------------------------------------------------------------------------------------

    def validation_gain(
        self, structure: Structure, arrays: Sequence[Array]
    ) -> tuple[float, float, float] | None:
        return None  # the deviance of zero is not what to compare with: it stands for a rate of one, say

    @cached_property
    def _least(self) -> torch.Tensor:
        """What each value loses under its best prediction."""
        return self.entry_loss.least(self.values)

    def loss_at(self, predicted: torch.Tensor, where: torch.Tensor) -> float:
        gap = self.entry_loss.each(predicted, self.values[where]) - self._least[where]
        if self.index.scale is not None:
            gap = gap * self.index.scale[where] ** 2
        return math.sqrt(max(2.0 * float(gap.double().sum()), 0.0))

    # -- least squares ---------------------------------------------------------------------------------

    def linearise(self, structure: Structure, arrays: Sequence[Array]) -> ObservedLeastSquares:
        """Weighted least squares that agrees with the loss to second order at a network."""
        return self._parabola(self.predict(structure, arrays))[0]

    def _parabola(self, predicted: torch.Tensor) -> tuple[ObservedLeastSquares, float]:
        """Least squares that agree with the loss at predictions, and the deviance per squared residual."""
        weight, step = self.entry_loss.working(predicted, self.values)
        scale = weight.sqrt() if self.index.scale is None else weight.sqrt() * self.index.scale
        # In units in which the weights are of order one: ridges are relative, but rounding is not.
        unit = scale[self.index.fitted].square().mean().sqrt().clamp_min(1e-150)
        index = self.index.with_scale(scale / unit)
        return self.squares._variant(index=index, values=predicted + step), float(unit) ** 2

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once, each on the parabola at the present network; returns the deviance.

        Entries are linear in one core, so that a step which does not lower the loss can be shortened without
        another contraction.
        """
        tree = RowTree(self.index.entries, structure, [a.to(self.row_dtype) for a in arrays])
        fitted, reached = self.index.fitted, 0.0
        for node in tree.order:
            source, edges = tree.environment(node), structure.edges_of(node)
            now = self._at_all(node, source, edges, arrays[node])
            near, unit = self._parabola(now)
            core, _ = near.solve(node, source, edges, arrays[node], ridge, explain=False)
            change = self._at_all(node, source, edges, core) - now
            now, change = now[fitted], change[fitted]
            judge = _judge(near.penalty(node, source), unit, arrays[node], core)
            start, share = self.loss_at(now, fitted), 1.0
            before = judge(start, 0.0)
            reached = self.loss_at(now + change, fitted)
            while judge(reached, share) > before and share > 1e-2:  # halve a step that does not pay
                share *= 0.5
                reached = self.loss_at(now + share * change, fitted)
            if judge(reached, share) > before:
                reached = start
                continue
            arrays[node] = arrays[node] + share * (core - arrays[node])
            tree.set_core(node, arrays[node].to(self.row_dtype))
        return reached**2

    def recording(self, structure: Structure, ridge: float) -> None:
        """None: the host decides on the length of every step."""

    def _at_all(
        self, node: int, source: RowSource, edges: Sequence[Edge], core: torch.Tensor
    ) -> torch.Tensor:
        """The network at all entries, from the environment of a node and its core."""
        every = torch.arange(len(self.values), device=self.device)
        step = max(1, VALUE_ENTRIES[every.device.type] // source.row_entries)
        parts = [self.apply(node, source, edges, core, where) for where in torch.split(every, step)]
        return torch.cat(parts).to(self.dtype)

    def residual(self, network: TensorNetwork) -> ObservedLeastSquares:
        return self.linearise(network.structure, self.to_arrays(network)).residual(network)

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        near = self.linearise(structure, arrays)
        unit = self._unit(structure, arrays, near)

        def change(fit: SliceFit) -> SliceFit:
            return fit._replace(explained=unit * fit.explained)

        return [ChangedPairProblem(p, change) for p in near.pair_problems(structure, arrays, edges)]

    def _unit(self, structure: Structure, arrays: Sequence[Array], near: ObservedLeastSquares) -> float:
        """Deviance per squared weighted residual of the parabola, on held-out data where there is some."""
        mine, theirs = (
            fitted if held_out is None else held_out
            for fitted, held_out in (o.losses(structure, arrays) for o in (self, near))
        )
        return (mine / max(theirs, 1e-150)) ** 2


def _judge(
    penalty: Callable[[torch.Tensor], float] | None, unit: float, old: torch.Tensor, new: torch.Tensor
) -> Callable[[float, float], float]:
    """What decides on a share of a step, beside the loss there: that with what a prior adds.

    The loss of the data alone would forbid steps towards the prior.
    """

    def judge(loss: float, share: float) -> float:
        if penalty is None:
            return loss
        return math.hypot(loss, math.sqrt(max(unit * penalty(old + share * (new - old)), 0.0)))

    return judge
