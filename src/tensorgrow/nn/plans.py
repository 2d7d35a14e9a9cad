"""How a layer is applied: through its cores, or by rebuilding the dense weight, whichever is cheaper.

Both ways are lists of matrix products worked out once per structure. A plan is plain tuples of integers with
-1 for the number of rows, so that one plan serves every batch size and `torch.compile` sees constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch

from ..contraction.paths import find_path
from ..structure import Structure
from .layout import Layout

__all__ = [
    "Plan",
    "Schedule",
    "dense_plan",
    "peak_entries",
    "pick",
    "run",
    "schedule",
    "seconds",
    "through_plan",
]

BATCH = 0
# Numbers of rows that contraction orders are searched for.
SAMPLES = (1, 16, 256, 4096)
MOST_ROWS = 1 << 17
NO_LIMIT = 1 << 62
# Going through the cores must promise to be this much cheaper than rebuilding: estimates are rough, and a
# layer must not be slower than rebuilding.
MARGIN = 0.7


class Machine(NamedTuple):
    """What one operation costs; only ratios matter. Rates per second, of one device type."""

    flops: float
    bytes: float
    strided_bytes: float  # copies into another order of axes
    overhead: float  # seconds per operation


MACHINES = {
    "cpu": Machine(4e10, 8e9, 2.5e9, 5e-6),
    "cuda": Machine(3e13, 2.5e12, 1.2e12, 8e-6),
}


class Step(NamedTuple):
    """One matrix product of two operands; the result is appended to the operands."""

    left: int
    right: int
    left_order: tuple[int, ...] | None
    left_shape: tuple[int, int]
    right_order: tuple[int, ...] | None
    right_shape: tuple[int, int]
    shape: tuple[int, ...]


class Work(NamedTuple):
    """What an operation does as a function of the rows: a constant, and a part per row."""

    flops: tuple[float, float]
    entries: tuple[float, float]
    copied: tuple[float, float]

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        """Estimated time."""
        flops, entries, copied = (fixed + each * rows for fixed, each in self)
        moving = itemsize * entries / machine.bytes
        return (
            max(flops / machine.flops, moving)
            + 2 * itemsize * copied / machine.strided_bytes
            + machine.overhead * (2 if copied else 1)
        )


class Plan(NamedTuple):
    """A contraction: the shapes operands get first, products, and the axes of the result."""

    inputs: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    split: tuple[int, ...] | None
    order: tuple[int, ...] | None
    shape: tuple[int, ...]
    work: tuple[Work, ...]


Schedule = tuple[tuple[int, Plan | None], ...]
"""Up to this many rows, use this plan; None: rebuild the weight."""


def pick(plan: Schedule, rows: int) -> Plan | None:
    """The plan for a number of rows. Comparisons only, so that a compiler can guard on ranges of rows."""
    for limit, found in plan:
        if rows <= limit:
            return found
    return None


def run(plan: Plan, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Contract."""
    pool: list[torch.Tensor | None] = [t.reshape(s) for t, s in zip(operands, plan.inputs)]
    for step in plan.steps:
        a, b = pool[step.left], pool[step.right]
        assert a is not None and b is not None
        pool[step.left] = pool[step.right] = None  # every operand is used once
        if step.left_order is not None:
            a = a.permute(step.left_order)
        if step.right_order is not None:
            b = b.permute(step.right_order)
        pool.append((a.reshape(step.left_shape) @ b.reshape(step.right_shape)).reshape(step.shape))
    out = pool[-1]
    assert out is not None
    if plan.split is not None:
        out = out.reshape(plan.split)
    if plan.order is not None:
        out = out.permute(plan.order)
    return out.reshape(plan.shape)


@lru_cache(maxsize=4_000)
def dense_plan(layout: Layout, structure: Structure) -> Plan:
    """The weight ``(out_features, in_features)`` from the cores."""
    legs = _Legs(layout, structure)
    operands = [legs.core(k, split=False) for k in range(structure.num_nodes)]
    have, steps, work = _contract(operands, legs.whole, legs.sizes, 1)
    nodes = [legs.whole[k] for k in range(structure.order)]
    # Digits of fused legs are told apart only at the end: fewer axes to carry along.
    split = tuple(d for leg in have for d in legs.digits_of[leg])
    position: dict[tuple[int, int], int] = {}
    for leg in have:
        for n in range(len(legs.digits_of[leg])):
            position[leg, n] = len(position)
    flat = [position[leg, n] for leg in nodes for n in range(len(legs.digits_of[leg]))]
    order = tuple(flat[k] for k in layout.matrix_order)
    size = float(layout.in_features * layout.out_features)
    if order != tuple(range(len(order))):
        work = [*work, Work((0.0, 0.0), (0.0, 0.0), (size, 0.0))]
    return Plan(
        tuple(tuple(legs.sizes[x] for x in o) for o in operands),
        tuple(steps),
        split,
        None if order == tuple(range(len(order))) else order,
        (layout.out_features, layout.in_features),
        tuple(work),
    )


@lru_cache(maxsize=4_000)
def through_plan(layout: Layout, structure: Structure, rows: int) -> Plan:
    """Input of shape ``(rows, in_features)`` through the cores; the order is the best for so many rows."""
    legs = _Legs(layout, structure)
    operands = [(BATCH, *legs.inputs), *(legs.core(k, split=True) for k in range(structure.num_nodes))]
    want = (BATCH, *legs.outputs)
    have, steps, work = _contract(operands, want, legs.sizes, rows)
    order = tuple(have.index(leg) for leg in want)
    in_place = order == tuple(range(len(order)))
    if not in_place:
        work = [*work, Work((0.0, 0.0), (0.0, 0.0), (0.0, float(layout.out_features)))]
    return Plan(
        tuple(tuple(-1 if x == BATCH else legs.sizes[x] for x in o) for o in operands),
        tuple(steps),
        None,
        None if in_place else order,
        (-1, layout.out_features),
        tuple(work),
    )


@lru_cache(maxsize=4_000)
def schedule(layout: Layout, structure: Structure, device: str, itemsize: int) -> Schedule:
    """What to do for every number of rows."""
    plans = list(dict.fromkeys(through_plan(layout, structure, rows) for rows in SAMPLES))
    build = seconds(dense_plan(layout, structure), 1, device, itemsize)
    dense = _linear(layout)
    machine = MACHINES.get(device, MACHINES["cuda"])

    def best(rows: int) -> Plan | None:
        rebuilt = build + dense.seconds(rows, itemsize, machine)
        found = min(plans, key=lambda p: seconds(p, rows, device, itemsize))
        return found if seconds(found, rows, device, itemsize) < MARGIN * rebuilt else None

    grid = sorted({round(2 ** (n / 2)) for n in range(2 * MOST_ROWS.bit_length() - 1)})
    out: list[tuple[int, Plan | None]] = []
    for low, high in pairwise(grid):
        now, after = best(low), best(high)
        if now == after:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if best(middle) == now else (low, middle)
        out.append((low, now))
    return (*out, (NO_LIMIT, best(grid[-1])))


def seconds(plan: Plan, rows: int, device: str, itemsize: int) -> float:
    """Estimated time of a plan."""
    machine = MACHINES.get(device, MACHINES["cuda"])
    return sum(w.seconds(rows, itemsize, machine) for w in plan.work)


def peak_entries(layout: Layout, structure: Structure, plan: Plan | None, rows: int) -> int:
    """Most numbers that lie in memory beside cores and input while the layer is applied; counted."""
    chosen = dense_plan(layout, structure) if plan is None else plan
    pool = [0] * len(chosen.inputs)
    live = peak = 0
    for step, work in zip(chosen.steps, chosen.work):
        made = rows * abs(math.prod(step.shape)) if -1 in step.shape else math.prod(step.shape)
        live += made
        copied = work.copied[0] + work.copied[1] * rows
        peak = max(peak, live + round(copied))
        live -= pool[step.left] + pool[step.right]
        pool.append(made)
    if plan is None:
        return max(peak, 2 * layout.in_features * layout.out_features) + rows * layout.out_features
    return max(peak, live + rows * layout.out_features)


def _linear(layout: Layout) -> Work:
    """``x W^T`` with a dense weight."""
    i, o = float(layout.in_features), float(layout.out_features)
    return Work((0.0, 2 * i * o), (i * o, i + o), (0.0, 0.0))


class _Legs:
    """Numbers and sizes of legs: the rows, digits (or fused pairs of them), edges."""

    def __init__(self, layout: Layout, structure: Structure) -> None:
        n_in, n_out = len(layout.in_dims), len(layout.out_dims)
        self.structure = structure
        self.paired = layout.paired
        self.inputs = tuple(range(1, 1 + n_in))
        self.outputs = tuple(range(1 + n_in, 1 + n_in + n_out))
        first = 1 + n_in + n_out
        self.sizes = {BATCH: 1, **dict(zip(self.inputs, layout.in_dims))}
        self.sizes |= dict(zip(self.outputs, layout.out_dims))
        if layout.paired:
            self.whole = tuple(range(first, first + n_in))
            self.digits_of: dict[int, tuple[int, ...]] = {
                leg: (o, i) for leg, o, i in zip(self.whole, layout.out_dims, layout.in_dims)
            }
            first += n_in
        else:
            self.whole = (*self.outputs, *self.inputs)
            self.digits_of = {leg: (d,) for leg, d in zip(self.whole, layout.dims)}
        self.sizes |= {leg: math.prod(d) for leg, d in self.digits_of.items()}
        self.edge = {e: first + k for k, e in enumerate(structure.edges)}
        self.sizes |= {self.edge[e]: r for e, r in structure.ranks.items()}

    def core(self, node: int, *, split: bool) -> tuple[int, ...]:
        """Legs of a core; internal nodes have edges only."""
        bonds = [self.edge[(node, j) if node < j else (j, node)] for j in self.structure.neighbours[node]]
        if node >= self.structure.order:
            return tuple(bonds)
        if split and self.paired:
            return (self.outputs[node], self.inputs[node], *bonds)
        return (self.whole[node], *bonds)


def _contract(
    operands: Sequence[tuple[int, ...]], keep: Sequence[int], sizes: dict[int, int], rows: int
) -> tuple[tuple[int, ...], list[Step], list[Work]]:
    """Legs of the result, the products and what they cost."""
    pool = list(operands)
    steps, work = [], []
    for a, b in find_path(operands, tuple(keep), lambda leg: rows if leg == BATCH else sizes[leg]):
        if BATCH in pool[b]:  # rows stay the first axis of the left factor
            a, b = b, a
        step, done, legs = _product(a, b, pool[a], pool[b], sizes)
        steps.append(step)
        work.append(done)
        pool.append(legs)
    return pool[-1], steps, work


def _product(
    a: int, b: int, la: tuple[int, ...], lb: tuple[int, ...], sizes: dict[int, int]
) -> tuple[Step, Work, tuple[int, ...]]:
    # The order of the summed legs is that of the larger operand, which is then more often not copied.
    size_a = math.prod(sizes[x] for x in la) * (1 << 20 if BATCH in la else 1)
    larger = la if size_a >= math.prod(sizes[x] for x in lb) else lb
    shared = [x for x in larger if x in la and x in lb]
    free_a, free_b = [x for x in la if x not in lb], [x for x in lb if x not in la]
    m, n, k = (math.prod(sizes[x] for x in part) for part in (free_a, free_b, shared))
    order_a = _order(la, (*free_a, *shared))
    order_b = _order(lb, (*shared, *free_b))
    has_rows = BATCH in la
    legs = (*free_a, *free_b)
    step = Step(
        a,
        b,
        order_a,
        (-1 if has_rows else m, k),
        order_b,
        (k, n),
        tuple(-1 if x == BATCH else sizes[x] for x in legs),
    )
    copies_a = 0.0 if order_a is None or _is_view(order_a, len(free_a)) else float(m * k)
    copies_b = 0.0 if order_b is None or _is_view(order_b, len(shared)) else float(k * n)
    flops, moved = 2.0 * m * n * k, float(m * k + m * n)
    if has_rows:
        return step, Work((0.0, flops), (float(k * n), moved), (copies_b, copies_a)), legs
    return step, Work((flops, 0.0), (k * n + moved, 0.0), (copies_a + copies_b, 0.0)), legs


def _order(have: tuple[int, ...], want: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if have == want else tuple(have.index(x) for x in want)


def _is_view(order: tuple[int, ...], left: int) -> bool:
    """Whether both groups are runs of axes, so that the permuted tensor is a matrix without a copy."""
    return all(b == a + 1 for group in (order[:left], order[left:]) for a, b in pairwise(group))
