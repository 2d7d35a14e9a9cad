"""New slices of many edges at once on a GPU, where only some entries are known.

A fit of slices is a few hundred kernels of microseconds, and takes as long as their launches. So all edges
are fitted in the same rounds: each has its own sums over the entries, but what follows, from Gram matrices to
scaled slices, is done for a stack of them, padded to a common width; and the host waits once for all gains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from ..algebra.linalg import LEAST_RIDGE, solve_or_nan, wide_dtype
from ..contraction import RowSource, RowTree
from ..data.arrays import sum_runs
from ..structure import Edge, Structure
from .entry_cores import runs_within
from .entry_grid import WIDE
from .slices import SLICE_RIDGE, SliceFit, alternate, random_slice, sharpen, slice_edges, slice_shape

if TYPE_CHECKING:
    from .entries import ObservedLeastSquares

# Bytes of the Gram matrices of a stack, and of rows at held-out entries that wait for their slices: work on
# that many outlasts its launches, and more at once gains nothing.
STACK_BYTES = 1 << 28
# Copies of a stack: matrices, what they were before their ridge, Cholesky factors, and those transposed.
COPIES = 4


@dataclass(frozen=True, eq=False)
class Stack:
    """Edges whose slices on one side are padded to the same width, one after the other.

    Attributes
    ----------
    members
        Positions of the edges in their batch.
    runs
        First and last slice of each, and its width without padding.
    width
        Columns, with padding.
    bounds, owners
        First slice of each edge, and the number of all; the edge, counted from 0, of each slice.
    unknowns
        Entries of the slices of each edge.
    """

    members: tuple[int, ...]
    runs: tuple[tuple[int, int, int], ...]
    width: int
    bounds: torch.Tensor
    owners: torch.Tensor
    unknowns: torch.Tensor

    @property
    def count(self) -> int:
        """Slices of all edges."""
        return self.runs[-1][1]


@dataclass(frozen=True, eq=False)
class Side:
    """The stacks of all edges of a batch on one side, and where in them each edge is."""

    stacks: tuple[Stack, ...]
    places: tuple[tuple[int, int], ...]  # stack, and position in it


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices of all edges on one side.

    Attributes
    ----------
    arrays
        Of each stack: ``(slices, columns)``, zeros for padding.
    columns
        Bonds of each edge's slice in the order of its columns.
    """

    side: Side
    arrays: tuple[torch.Tensor, ...]
    columns: tuple[tuple[Edge, ...], ...]

    def to(self, dtype: torch.dtype) -> Slices:
        return replace(self, arrays=tuple(a.to(dtype) for a in self.arrays))

    def flat(self, k: int) -> torch.Tensor:
        """Of one edge, without padding, in the order of its columns."""
        stack, place = self.side.places[k]
        first, last, width = self.side.stacks[stack].runs[place]
        return self.arrays[stack][first:last, :width]

    def in_order(self, k: int, sizes: dict[Edge, int], edges: Sequence[Edge]) -> torch.Tensor:
        """Of one edge, with an axis for each of some bonds of these sizes."""
        columns = self.columns[k]
        x = self.flat(k)
        return x.reshape(len(x), *(sizes[e] for e in columns)).permute(
            0, *(1 + columns.index(e) for e in edges)
        )


def rescale_stacks(slices: Slices) -> Slices:
    """Divide the slices of every edge by their largest absolute value; zero stays zero."""
    arrays = []
    for stack, x in zip(slices.side.stacks, slices.arrays):
        each = torch.linalg.vector_norm(x, math.inf, dim=1)
        most = torch.segment_reduce(each, "max", offsets=stack.bounds, axis=0, unsafe=True)
        arrays.append(x / most.clamp_min(1e-30)[stack.owners][:, None])
    return replace(slices, arrays=tuple(arrays))


def may_batch(objective: ObservedLeastSquares, structure: Structure, edge: Edge) -> bool:
    """Whether an edge is fitted with others: no prior, and no more arithmetic than launches."""
    if any(objective.penalties.of(k) is not None for k in edge):
        return False
    shapes = [slice_shape(structure, edge, side) for side in (0, 1)]
    return all(
        math.prod(bonds) < WIDE and 8 * size * math.prod(bonds) ** 2 <= STACK_BYTES for size, *bonds in shapes
    )


def batch_bytes(structure: Structure, edges: Sequence[Edge], held_out: int, item: int) -> int:
    """Bytes that a batch of edges takes at most beside what one edge does, with numbers of `item` bytes."""
    shapes = [[slice_shape(structure, edge, side) for edge in edges] for side in (0, 1)]
    widths = [[padded(math.prod(bonds)) for _, *bonds in of_side] for of_side in shapes]
    grams = max(
        sum(size * w * w for (size, *_), w in zip(*both) if w <= padded(WIDE)) for both in zip(shapes, widths)
    )
    rows = held_out * sum(w for w in widths[1] if w <= padded(WIDE))
    return COPIES * min(STACK_BYTES, max(8, item) * grams) + min(STACK_BYTES, item * rows)


def padded(width: int) -> int:
    """A power of two that holds a width: few stacks, of matrices that are at most twice as wide."""
    return 1 << (width - 1).bit_length()


class EntryPairBatch:
    """Slice problems of several edges on one residual, fitted together when the first is asked for.

    Without a look at any factorisation: where one failed, slices and gain of its edge are NaN.
    """

    def __init__(
        self, objective: ObservedLeastSquares, tree: RowTree, edges: Sequence[Edge], residual: torch.Tensor
    ) -> None:
        self._objective, self._tree, self._residual = objective, tree, residual
        self._edges = tuple(e for e in edges if may_batch(objective, tree.structure, e))
        self._fits: dict[int, dict[Edge, SliceFit]] = {}

    def fit(self, edge: Edge, sweeps: int) -> SliceFit | None:
        """Slices from the usual start; None where the edge is better fitted by itself, or that failed."""
        if edge not in self._edges:
            return None
        if sweeps not in self._fits:
            fits = [f for run in self._runs() for f in self._fit(run, sweeps)]
            self._fits[sweeps] = dict(zip(self._edges, fits))
        found = self._fits[sweeps][edge]
        return found if math.isfinite(found.explained) else None

    def _runs(self) -> Iterator[tuple[Edge, ...]]:
        """Edges whose rows at held-out entries are held together."""
        structure, item = self._tree.structure, self._tree.cores[0].dtype.itemsize
        row = item * self._objective.num_held_out
        sizes = (row * math.prod(slice_shape(structure, edge, 1)[1:]) for edge in self._edges)
        for run in runs_within(sizes, STACK_BYTES):
            yield tuple(self._edges[k] for k in run)

    def _fit(self, edges: tuple[Edge, ...], sweeps: int) -> list[SliceFit]:
        sides = self._side(edges, 0), self._side(edges, 1)
        rounds = Rounds(self._objective, self._tree, edges, self._residual, sides)
        start = sharpen(rounds.right_hand_sides, rounds.starts(), rescale_stacks)
        improve = partial(rounds.improve, last=2 * sweeps)
        left, right, gains = alternate(
            improve, start, sweeps, before_left=rescale_stacks, before_right=rescale_stacks
        )
        if self._objective.num_held_out:
            gains = rounds.gains(right)
        pairs = zip(rounds.cores(0, left), rounds.cores(1, right), gains.tolist())
        return [SliceFit(a.reshape(-1), b.reshape(-1), gain) for a, b, gain in pairs]

    def _side(self, edges: Sequence[Edge], side: int) -> Side:
        """Stacks of edges of about the same width, that of their number type the widest."""
        shapes = [slice_shape(self._tree.structure, e, side) for e in edges]
        sizes, widths = [s[0] for s in shapes], [math.prod(s[1:]) for s in shapes]
        item, groups = wide_dtype(self._objective.dtype).itemsize, list[list[int]]()
        used: dict[int, int] = {}  # slices of the last group of each width
        last: dict[int, list[int]] = {}
        for k, (size, width) in enumerate(zip(sizes, widths)):
            p = padded(width)
            if p not in last or item * (used[p] + size) * p * p > STACK_BYTES:
                last[p], used[p] = [], 0
                groups.append(last[p])
            last[p].append(k)
            used[p] += size
        stacks = tuple(
            _stack(g, [sizes[k] for k in g], [widths[k] for k in g], self._residual.device) for g in groups
        )
        where = {k: (s, place) for s, g in enumerate(groups) for place, k in enumerate(g)}
        return Side(stacks, tuple(where[k] for k in range(len(edges))))


def _stack(members: list[int], sizes: list[int], widths: list[int], device: torch.device) -> Stack:
    starts = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    owners = [k for k, size in enumerate(sizes) for _ in range(size)]
    unknowns = [s * w for s, w in zip(sizes, widths)]
    numbers = torch.tensor([*starts, *owners, *unknowns]).to(device)  # in one transfer
    bounds, owner, unknown = torch.split(numbers, [len(starts), len(owners), len(unknowns)])
    runs = tuple(zip(starts, starts[1:], widths))
    # What the widest needs: only as much padding as the others are narrower.
    return Stack(tuple(members), runs, max(widths), bounds, owner, unknown)


class Rounds:
    """Rounds of a fit of all edges."""

    def __init__(
        self,
        objective: ObservedLeastSquares,
        tree: RowTree,
        edges: tuple[Edge, ...],
        residual: torch.Tensor,
        sides: tuple[Side, Side],
    ) -> None:
        self.objective, self.tree, self.residual = objective, tree, residual
        self.edges, self.sides = edges, sides
        self._calls = 0
        self._rows: dict[int, torch.Tensor] = {}  # at held-out entries, for the last slices

    def starts(self) -> Slices:
        """The usual random right slices, a transfer for each stack."""
        structure, side, dtype = self.tree.structure, self.sides[1], self.residual.dtype
        arrays = []
        for stack in side.stacks:
            x = torch.zeros(stack.count, stack.width, dtype=dtype)
            for k, (first, last, width) in zip(stack.members, stack.runs):
                noise = random_slice(structure, self.edges[k], dtype)
                x[first:last, :width] = noise.reshape(last - first, width)
            arrays.append(x.to(self.residual.device))
        return Slices(side, tuple(arrays), tuple(slice_edges(structure, e, 1) for e in self.edges))

    def right_hand_sides(self, side: int, others: Slices) -> Slices:
        """Right-hand sides of the slices on one side."""
        dtype = self.residual.dtype
        arrays, columns = [], dict[int, tuple[Edge, ...]]()
        pieces = others.to(self.tree.cores[0].dtype)
        for stack in self.sides[side].stacks:
            x = torch.zeros(stack.count, stack.width, dtype=dtype, device=self.residual.device)
            for k, (first, last, width) in zip(stack.members, stack.runs):
                source = self._source(k, side, pieces)
                table = self.objective.index.table(self.edges[k][side])
                x[first:last, :width] = table.right_hand_side(source, self.residual)
                columns[k] = source.edges
            arrays.append(x)
        return Slices(self.sides[side], tuple(arrays), _in_turn(columns))

    def improve(self, side: int, others: Slices, last: int) -> tuple[Slices, torch.Tensor]:
        """Best slices on one side, and by how much they lower the squared residual of the fitted entries.

        Of the call number `last`, what held-out entries see of the slices is kept for `gains`; by how much
        is only computed where there are none, and otherwise 0.
        """
        self._calls += 1
        objective, explain = self.objective, side == 1 and not self.objective.num_held_out
        keep = self._calls == last and objective.num_held_out > 0
        arrays, columns = [], dict[int, tuple[Edge, ...]]()
        gains = torch.zeros(len(self.edges), dtype=torch.float64, device=self.residual.device)
        pieces = others.to(self.tree.cores[0].dtype)
        for stack in self.sides[side].stacks:
            shape, dtype = (stack.count, stack.width), wide_dtype(objective.dtype)
            grams = torch.zeros(*shape, stack.width, dtype=dtype, device=self.residual.device)
            rhs = torch.zeros(shape, dtype=dtype, device=self.residual.device)
            for k, (a, b, width) in zip(stack.members, stack.runs):
                source = self._source(k, side, pieces)
                table = objective.index.table(self.edges[k][side])
                grams[a:b, :width, :width], rhs[a:b, :width] = table.sums(source, self.residual, 0, b - a)
                columns[k] = source.edges
                if keep:  # a GPU forms rows in memory of their own
                    self._rows[k] = source.rows(objective.index.held_out)
            x, explained = solve_stack(stack, grams, rhs, objective.ridge, explain=explain)
            for k, (a, b, _) in zip(stack.members, stack.runs):
                table = objective.index.table(self.edges[k][side])
                if len(table.empty):
                    x[a:b][table.empty] = x[a:b][table.filled].mean(0)
            if explained is not None:
                gains[list(stack.members)] = explained
            arrays.append(x.to(objective.dtype))
        return Slices(self.sides[side], tuple(arrays), _in_turn(columns)), gains

    def gains(self, right: Slices) -> torch.Tensor:
        """By how much the last slices lower the squared residual of the held-out entries."""
        objective, columns = self.objective, self.objective.index.entries.columns
        entries, scale = objective.index.held_out, objective.index.scale
        before, pieces = self.residual[entries], right.to(self.tree.cores[0].dtype)
        mine: dict[int, torch.Tensor] = {}
        added = []
        for k, (_, node) in enumerate(self.edges):
            x = pieces.flat(k)
            if node < len(columns):
                if node not in mine:
                    mine[node] = columns[node][entries]
                x = x.index_select(0, mine[node])
            added.append((self._rows.pop(k) * x).sum(1))
        after = before - torch.stack(added).to(before.dtype)
        if scale is not None:
            before, after = before * scale[entries], after * scale[entries]
        wide = wide_dtype(before.dtype)
        first: torch.Tensor = torch.linalg.vector_norm(before, dtype=wide).square().real
        rest: torch.Tensor = torch.linalg.vector_norm(after, dtype=wide, dim=1).square().real
        return first - rest

    def cores(self, side: int, slices: Slices) -> Iterator[torch.Tensor]:
        """Slices of every edge, in the order of the axes of their cores."""
        return (self._piece(k, side, slices) for k in range(len(self.edges)))

    def _piece(self, k: int, side: int, slices: Slices) -> torch.Tensor:
        structure, edge = self.tree.structure, self.edges[k]
        edges, shape = slice_edges(structure, edge, side), slice_shape(structure, edge, side)
        return slices.in_order(k, dict(zip(edges, shape[1:])), edges)

    def _source(self, k: int, side: int, others: Slices) -> RowSource:
        """Environment of the slice on one side, where the other end holds one of `others`."""
        node, neighbour = self.edges[k] if side == 0 else self.edges[k][::-1]
        return self.tree.pair_environment(node, neighbour, self._piece(k, 1 - side, others))


def solve_stack(
    stack: Stack, grams: torch.Tensor, rhs: torch.Tensor, ridge: float, *, explain: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Best slices of the edges of a stack, and by how much those of each lower the squared residual.

    As `solve_core` without a prior, the ridge relative to the mean diagonal of an edge's matrices. Padding,
    zero throughout, only gets a ridge, so that its unknowns are zero. The matrices are overwritten.
    """
    plain = grams.clone() if explain else None
    diagonal = grams.diagonal(dim1=1, dim2=2)
    means = sum_runs(stack.bounds, diagonal.real.sum(1)) / stack.unknowns
    weights = (means * max(ridge, LEAST_RIDGE) + 1e-300)[stack.owners]
    torch.add(weights[:, None].to(grams.dtype), diagonal, alpha=1.0 + SLICE_RIDGE, out=diagonal)
    x = solve_or_nan(grams, rhs[:, :, None])[:, :, 0]
    if plain is None:
        return x, None
    fit = (x.conj() * (plain @ x[:, :, None])[:, :, 0]).sum(1).real
    return x, sum_runs(stack.bounds, 2.0 * (x.conj() * rhs).sum(1).real - fit)


def _in_turn(columns: dict[int, tuple[Edge, ...]]) -> tuple[tuple[Edge, ...], ...]:
    return tuple(columns[k] for k in range(len(columns)))
