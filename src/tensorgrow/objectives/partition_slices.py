"""New slices of many edges at once where entries lie in parts: rounds are shared by all edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from ..contraction import Array
from ..structure import Edge
from .entry_cores import GRAM_BYTES, SliceSums, ranges_of, runs_within
from .entry_slices import in_core_order, solve_slice
from .partition_tasks import (
    NO_SUMS,
    Cores,
    NewSlice,
    PairGains,
    PairTask,
    Sums,
    add_array,
    add_sums,
    add_up,
    sum_sides,
    sum_slices,
    sum_squares,
)
from .slices import PairProblem, SliceFit, alternate, draw_slice, random_slice, rescale, sharpen, slice_shape

if TYPE_CHECKING:
    from .partitions import PartitionedLeastSquares

Slices = list[torch.Tensor]


class PairBatch:
    """Slice problems of several edges on the residual of one network."""

    def __init__(self, objective: PartitionedLeastSquares, cores: Cores, edges: Sequence[Edge]) -> None:
        self.objective = objective
        self.cores = cores
        self.problems = [PartitionedPairProblem(self, e) for e in edges]
        self._fits: dict[int, dict[Edge, SliceFit]] = {}

    def fit(self, edge: Edge, sweeps: int) -> SliceFit:
        """Slices from the usual start; computed for all edges when the first needs them."""
        if sweeps not in self._fits:
            edges = [p.edge for p in self.problems]
            self._fits[sweeps] = dict(zip(edges, self.fit_from(edges, self._starts(edges), sweeps)))
        return self._fits[sweeps][edge]

    def fit_from(self, edges: Sequence[Edge], rights: Sequence[Array], sweeps: int) -> list[SliceFit]:
        """Slices by alternating least squares, all edges in the same rounds."""
        structure, objective = self.cores.structure, self.objective
        start = [torch.as_tensor(r).reshape(slice_shape(structure, e, 1)) for r, e in zip(rights, edges)]
        left, right, explained = alternate(
            partial(self._improve, edges), start, sweeps, before_left=_rescale_all, before_right=_rescale_all
        )
        if objective.num_held_out:
            slices = tuple((e, a.numpy(), b.numpy()) for e, a, b in zip(edges, left, right))
            gains = objective.parts.map(PairGains(objective.fit, self.cores, slices))
            explained = [math.fsum(g) for g in zip(*gains)]
        return [SliceFit(a.reshape(-1), b.reshape(-1), x) for a, b, x in zip(left, right, explained)]

    def _starts(self, edges: Sequence[Edge]) -> Slices:
        """Fixed random slices, sharpened by power iteration."""
        structure, objective = self.cores.structure, self.objective
        noise = [random_slice(structure, e, objective.dtype) for e in edges]
        return sharpen(partial(self._sides, edges), noise, _rescale_all)

    def _sides(self, edges: Sequence[Edge], side: int, others: Slices) -> Slices:
        """Right-hand sides of the slices on one side: one round."""
        structure, objective = self.cores.structure, self.objective
        task = PairTask(objective.fit, self.cores, _new_slices(edges, side, others), sum_sides)
        totals: list[Array] = [None] * len(edges)
        columns: list[tuple[Edge, ...]] = [()] * len(edges)
        for sides in objective.parts.map(task):
            columns = [c for c, _ in sides]
            totals = [add_array(total, rhs) for total, (_, rhs) in zip(totals, sides)]
        return [
            in_core_order(structure, e, side, c, torch.from_numpy(t)).contiguous().to(objective.dtype)
            for e, c, t in zip(edges, columns, totals)
        ]

    def _improve(self, edges: Sequence[Edge], side: int, others: Slices) -> tuple[Slices, list[float]]:
        """Best slices on one side, and by how much they lower the squared residual of the fitted entries."""
        structure, objective = self.cores.structure, self.objective
        slices, explained = [], []
        for group in self._groups(edges, side):
            new = _new_slices([edges[k] for k in group], side, [others[k] for k in group])
            for k, equations in zip(group, self._equations(new)):
                x, gain = solve_slice(equations, structure, edges[k], side, objective)
                slices.append(x)
                explained.append(float(gain))
        return slices, explained

    def _groups(self, edges: Sequence[Edge], side: int) -> Iterator[list[int]]:
        """Runs of edges whose Gram matrices fit in memory together."""
        shapes = (slice_shape(self.cores.structure, edge, side) for edge in edges)
        return runs_within((8 * size * math.prod(bonds) ** 2 for size, *bonds in shapes), GRAM_BYTES["cpu"])

    def _equations(self, slices: tuple[NewSlice, ...]) -> list[SliceSums]:
        """Normal equations of several edges from one round; of one edge in several where memory is short."""
        parts, structure = self.objective.parts, self.cores.structure
        task = partial(PairTask, self.objective.fit, self.cores, slices)

        def sums(first: int = 0, last: int | None = None) -> list[Sums]:
            totals = [NO_SUMS] * len(slices)
            for results in parts.map(task(partial(sum_slices, first=first, last=last))):
                totals = [add_sums(total, result) for total, result in zip(totals, results)]
            return totals

        counts = [self.objective.counts(new.edge[new.side]) for new in slices]
        widths = [math.prod(slice_shape(structure, new.edge, new.side)[1:]) for new in slices]
        if len(slices) == 1 and len(ranges_of(len(counts[0]), widths[0], "cpu")) > 1:
            return [
                add_up(
                    widths[0],
                    counts[0],
                    lambda first, last: sums(first, last)[0],
                    lambda: math.fsum(norm for (norm,) in parts.map(task(sum_squares))),
                )
            ]
        return [add_up(w, c, _constant(t), lambda: 0.0) for w, c, t in zip(widths, counts, sums())]


def _constant(sums: Sums) -> Callable[[int, int], Sums]:
    return lambda first, last: sums


def _new_slices(edges: Sequence[Edge], side: int, others: Slices) -> tuple[NewSlice, ...]:
    return tuple(NewSlice(e, side, x.numpy()) for e, x in zip(edges, others))


def _rescale_all(slices: Slices) -> Slices:
    return [rescale(x) for x in slices]


class PartitionedPairProblem(PairProblem):
    """New slices of one edge; most of the work is done for all edges of its batch."""

    def __init__(self, batch: PairBatch, edge: Edge) -> None:
        self.edge = edge
        self._batch = batch

    @property
    def gradient(self) -> Array:
        return self._batch.objective.residual_gradient(self._batch.cores, self.edge)

    def draw(self, generator: torch.Generator) -> Array:
        batch = self._batch
        return draw_slice(batch.cores.structure, self.edge, generator).to(batch.objective.dtype)

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        if right is None:
            return self._batch.fit(self.edge, sweeps)
        return self._batch.fit_from([self.edge], [right], sweeps)[0]
