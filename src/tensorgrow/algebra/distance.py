"""Norms of combinations of networks by orthogonal factorisations: no squares, so that nothing cancels.

Inner products know ``||T - M||^2`` to rounding of ``||T||^2``: the error itself to about 1e-8 in double
precision. Here the networks stand side by side as columns of one matrix, whose rows are the legs. Leg after
leg is taken in and the rows are replaced by a triangle with the same inner products, so that errors are known
to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..contraction.cache import cached
from ..structure import Edge, Structure
from .moves import Move

Edges = frozenset[Edge]


@dataclass(frozen=True)
class FactorPlan:
    """In which order legs are taken in.

    Attributes
    ----------
    order
        The legs.
    absorbed
        For every leg and every structure the nodes that are taken in with it: that of the leg, and internal
        ones.
    peak_entries
        Of the largest matrix.
    flops
        Estimated arithmetic.
    """

    order: tuple[int, ...]
    absorbed: tuple[tuple[tuple[int, ...], ...], ...]
    peak_entries: int
    flops: float


@cached
def factor_plan(structures: tuple[Structure, ...]) -> FactorPlan:
    """The cheapest of a few orders: along each of the graphs, and always what leaves the fewest columns."""
    plans = [_plan(structures, None), *(_plan(structures, _along(s)) for s in structures)]
    return min(plans, key=lambda plan: plan.flops)


def _along(structure: Structure) -> list[int]:
    """Legs on a walk through the graph that begins at an end and finishes every branch before the next."""
    order: dict[int, None] = {}
    waiting = sorted(range(structure.num_nodes), key=lambda k: -len(structure.neighbours[k]))
    while waiting:
        k = waiting.pop()
        if k not in order:
            order[k] = None
            waiting += [j for j in structure.neighbours[k] if j not in order]
    return [k for k in order if k < structure.order]


def _plan(structures: tuple[Structure, ...], given: list[int] | None) -> FactorPlan:
    order: list[int] = []
    absorbed = []
    cuts: list[Edges] = [frozenset()] * len(structures)
    inside: list[frozenset[int]] = [frozenset()] * len(structures)
    rows, peak, flops = 1, 1, 0.0
    left = set(range(structures[0].order))
    while left:
        options = [
            (k, [_take_in(s, c, n, k, len(left) == 1) for s, c, n in zip(structures, cuts, inside)])
            for k in (sorted(left) if given is None else given[len(order) : len(order) + 1])
        ]
        leg, taken = min(options, key=lambda o: sum(_columns(s, t[0]) for s, t in zip(structures, o[1])))
        cuts = [t[0] for t in taken]
        inside = [n | set(t[1]) for n, t in zip(inside, taken)]
        absorbed.append(tuple(t[1] for t in taken))
        columns = sum(_columns(s, c) for s, c in zip(structures, cuts))
        rows *= structures[0].dims[leg]
        peak, flops = max(peak, rows * columns), flops + 4.0 * rows * columns * min(rows, columns)
        rows = min(rows, columns)
        left.remove(leg)
        order.append(leg)
    return FactorPlan(tuple(order), tuple(absorbed), peak, flops)


def _take_in(
    structure: Structure, cut: Edges, inside: frozenset[int], leg: int, is_last: bool
) -> tuple[Edges, tuple[int, ...]]:
    """Edges that are open after a leg, and the nodes taken in with it.

    Internal nodes come in as soon as that leaves no more columns, and with the last leg at the latest.
    """
    taken = [leg]
    cut = cut ^ set(structure.edges_of(leg))
    waiting = [k for k in structure.internal_nodes if k not in inside]
    while waiting:
        widths = {k: _columns(structure, cut ^ set(structure.edges_of(k))) for k in waiting}
        best = min(waiting, key=lambda k: widths[k])
        meets = is_last or not cut.isdisjoint(structure.edges_of(best))
        if not is_last and not (meets and widths[best] <= _columns(structure, cut)):
            break
        cut = cut ^ set(structure.edges_of(best))
        taken.append(best)
        waiting.remove(best)
    return cut, tuple(taken)


def _columns(structure: Structure, cut: Edges) -> int:
    return math.prod(structure.ranks[e] for e in cut)


def as_train(structure: Structure, cores: Sequence[torch.Tensor]) -> Move:
    """The same tensor as a train, its legs in the order of `factor_plan`; exact.

    Whoever calls it asks that plan first how much memory it takes.
    """
    plan = factor_plan((structure,))
    tensor, edges = cores[0].new_ones(1), tuple[Edge, ...]()
    pieces: list[torch.Tensor] = []
    ranks: dict[Edge, int] = {}
    for place, (leg, (nodes,)) in enumerate(zip(plan.order, plan.absorbed)):
        rows = tensor.shape[0]
        for node in nodes:
            tensor, edges = _multiply(tensor, edges, cores[node], structure.edges_of(node))
        matrix = tensor.reshape(tensor.shape[0], -1)
        basis = matrix
        if place < len(plan.order) - 1:
            basis, matrix = torch.linalg.qr(matrix)
            other = plan.order[place + 1]
            ranks[min(leg, other), max(leg, other)] = basis.shape[1]
            tensor = matrix.reshape(matrix.shape[0], *tensor.shape[1:])
        pieces.append(basis.reshape(rows, structure.dims[leg], -1).movedim(1, 0))
    train = Structure(structure.dims, ranks)
    out = list(cores[: structure.order])
    for place, (leg, piece) in enumerate(zip(plan.order, pieces)):
        ends = [plan.order[n] for n in (place - 1, place + 1) if 0 <= n < len(plan.order)]
        swaps = len(ends) == 2 and ends[0] > ends[1]
        out[leg] = (piece.mT if swaps else piece).reshape(train.core_shape(leg)).contiguous()
    return train, out


def joint_factor(networks: Sequence[tuple[Structure, Sequence[torch.Tensor]]]) -> torch.Tensor:
    """A small matrix with one column per network and the same inner products as the tensors they stand for.

    ``||factor @ c||`` is the norm of the combination of the tensors with the coefficients ``c``, to rounding
    of the largest of them. Whoever calls it asks `factor_plan` first how much memory that takes.
    """
    plan = factor_plan(tuple(s for s, _ in networks))
    like = networks[0][1][0]
    tensors = [like.new_ones(1) for _ in networks]  # rows by open edges
    edges: list[tuple[Edge, ...]] = [()] * len(networks)
    for absorbed in plan.absorbed:
        for n, ((structure, cores), nodes) in enumerate(zip(networks, absorbed)):
            for node in nodes:
                tensors[n], edges[n] = _multiply(tensors[n], edges[n], cores[node], structure.edges_of(node))
        shapes = [t.shape[1:] for t in tensors]
        matrix = torch.cat([t.reshape(t.shape[0], -1) for t in tensors], 1)
        if matrix.shape[0] > matrix.shape[1]:
            matrix = torch.linalg.qr(matrix, mode="r")[1]
        columns = torch.split(matrix, [math.prod(s) for s in shapes], 1)
        tensors = [c.reshape(len(matrix), *s) for c, s in zip(columns, shapes)]
    return torch.cat([t.reshape(len(t), 1) for t in tensors], 1)


def _multiply(
    tensor: torch.Tensor, edges: tuple[Edge, ...], core: torch.Tensor, bonds: tuple[Edge, ...]
) -> tuple[torch.Tensor, tuple[Edge, ...]]:
    """Contract a core into a part over the edges they share; its leg joins the rows."""
    shared = [e for e in edges if e in bonds]
    axes = [1 + edges.index(e) for e in shared], [1 + bonds.index(e) for e in shared]
    out = torch.tensordot(tensor, core, axes)
    rest, more = [e for e in edges if e not in shared], [e for e in bonds if e not in shared]
    out = out.movedim(1 + len(rest), 1)
    return out.reshape(out.shape[0] * out.shape[1], *out.shape[2:]), (*rest, *more)
