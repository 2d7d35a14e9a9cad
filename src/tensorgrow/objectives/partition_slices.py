"""New slices of many edges at once where entries lie in parts: rounds are shared by all edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..structure import Edge
from .base import SliceFit
from .entry_slices import SLICE_RIDGE, first_slice, in_core_order, largest, slice_edges, slice_shape
from .entry_solve import solve_core
from .entry_sums import GRAM_BYTES, ranges_of
from .partition_parts import Cores
from .partition_sums import ReducedSums, Total, added
from .partition_tasks import PairGains, PairSides, PairSums, Sums, Wish

if TYPE_CHECKING:
    from .partitions import PartitionedLeastSquares

__all__ = ["PairBatch"]

Array = Any


class PairBatch:
    """Slice problems of several edges on the residual of one network."""

    def __init__(self, objective: PartitionedLeastSquares, cores: Cores, edges: Sequence[Edge]) -> None:
        self.objective = objective
        self.cores = cores
        self.problems = [PartitionedPairProblem(self, e) for e in edges]
        self._fits: dict[int, dict[Edge, SliceFit]] = {}

    def fit(self, edge: Edge, sweeps: int) -> SliceFit:
        """Slices from the usual start; found for all edges when first asked for."""
        if sweeps not in self._fits:
            edges = [p.edge for p in self.problems]
            starts = self._starts(edges)
            self._fits[sweeps] = dict(zip(edges, self.fit_from(edges, starts, sweeps)))
        return self._fits[sweeps][edge]

    def fit_from(self, edges: Sequence[Edge], rights: Sequence[Array], sweeps: int) -> list[SliceFit]:
        """Slices by alternating least squares from given right ones."""
        structure = self.cores.structure
        right = [torch.as_tensor(r).reshape(slice_shape(structure, e, 1)) for r, e in zip(rights, edges)]
        left, explained = right, [0.0] * len(edges)
        for _ in range(sweeps):
            left, _ = self._improved(edges, 0, [r / largest(r) for r in right])
            left = [x / largest(x) for x in left]
            right, explained = self._improved(edges, 1, left)
        if self.objective.num_held_out:
            slices = tuple((e, a.numpy(), b.numpy()) for e, a, b in zip(edges, left, right))
            gains = self.objective.parts.map(PairGains(self.objective.fit, self.cores, slices))
            explained = [math.fsum(g) for g in zip(*gains)]
        return [SliceFit(a.reshape(-1), b.reshape(-1), x) for a, b, x in zip(left, right, explained)]

    def _starts(self, edges: Sequence[Edge]) -> list[torch.Tensor]:
        """Fixed random slices, sharpened by power iterations."""
        structure, objective = self.cores.structure, self.objective
        found = [first_slice(structure, e, objective.dtype) for e in edges]
        for side in (0, 1):
            task = PairSides(objective.fit, self.cores, _wishes(edges, side, [x / largest(x) for x in found]))
            totals, columns = [Total() for _ in edges], [()] * len(edges)
            for sides in objective.parts.map(task):
                columns = [c for c, _ in sides]
                for total, (_, rhs) in zip(totals, sides):
                    total.add(rhs)
            found = [
                in_core_order(structure, e, side, c, torch.from_numpy(t.value)).contiguous()
                for e, c, t in zip(edges, columns, totals)
            ]
            found = [x.to(objective.dtype) for x in found]
        return found

    def _improved(
        self, edges: Sequence[Edge], side: int, given: Sequence[torch.Tensor]
    ) -> tuple[list[torch.Tensor], list[float]]:
        """Best slices on one side, and by how much they lower the squared residual of the fitted entries."""
        structure, objective = self.cores.structure, self.objective
        found, explained = [], []
        for chosen in self._together(edges, side):
            wishes = _wishes([edges[k] for k in chosen], side, [given[k] for k in chosen])
            for wish, sums in zip(wishes, self._sums(wishes)):
                zero = torch.zeros(slice_shape(structure, wish.edge, side), dtype=objective.dtype)
                bonds = slice_edges(structure, wish.edge, side)
                x, gain = solve_core(sums, bonds, zero, objective.ridge, SLICE_RIDGE)
                found.append(x)
                explained.append(gain)
        return found, explained

    def _together(self, edges: Sequence[Edge], side: int) -> Iterator[list[int]]:
        """Runs of edges whose Gram matrices fit in memory together."""
        chosen: list[int] = []
        held = 0
        for k, edge in enumerate(edges):
            size, *bonds = slice_shape(self.cores.structure, edge, side)
            bytes_here = 8 * size * math.prod(bonds) ** 2
            if chosen and held + bytes_here > GRAM_BYTES["cpu"]:
                yield chosen
                chosen, held = [], 0
            chosen.append(k)
            held += bytes_here
        yield chosen

    def _sums(self, wishes: Sequence[Wish]) -> list[ReducedSums]:
        """Normal equations of several edges from one round; in several where one edge needs more memory."""
        objective, structure = self.objective, self.cores.structure
        counts = [objective.counts(w.edge[w.side]) for w in wishes]
        widths = [math.prod(slice_shape(structure, w.edge, w.side)[1:]) for w in wishes]
        if len(wishes) == 1 and len(ranges_of(len(counts[0]), widths[0], "cpu")) > 1:

            def some(first: int, last: int) -> Any:
                task = PairSums(objective.fit, self.cores, tuple(wishes), (first, last))
                return added(found[0] for found in objective.parts.map(task))

            def squares() -> float:
                task = PairSides(objective.fit, self.cores, tuple(wishes), norms=True)
                return math.fsum(found[0] for found in objective.parts.map(task))

            return [ReducedSums(widths[0], counts[0], some, squares)]
        task = PairSums(objective.fit, self.cores, tuple(wishes))
        totals = [(Total(), Total()) for _ in wishes]
        columns: list[tuple[Edge, ...]] = []
        for found in objective.parts.map(task):
            columns = [sums[0] for sums in found]
            for (gram, rhs), (_, g, m) in zip(totals, found):
                gram.add(g)
                rhs.add(m)
        known = [(c, gram.value, rhs.value) for c, (gram, rhs) in zip(columns, totals)]
        return [ReducedSums(w, c, _known(k), lambda: 0.0) for w, c, k in zip(widths, counts, known)]


def _known(sums: Sums) -> Callable[[int, int], Sums]:
    return lambda first, last: sums


def _wishes(edges: Sequence[Edge], side: int, given: Sequence[torch.Tensor]) -> tuple[Wish, ...]:
    return tuple(Wish(e, side, g.numpy()) for e, g in zip(edges, given))


class PartitionedPairProblem:
    """New slices of one edge; most of the work is done for all edges of its batch."""

    def __init__(self, batch: PairBatch, edge: Edge) -> None:
        self.edge = edge
        self._batch = batch

    @property
    def gradient(self) -> Array:
        """Residual contracted with all cores but two: one round."""
        return self._batch.objective.residual_gradient(self._batch.cores, self.edge)

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Slices by alternating least squares, from a right one or from the usual start."""
        if right is None:
            return self._batch.fit(self.edge, sweeps)
        return self._batch.fit_from([self.edge], [right], sweeps)[0]
