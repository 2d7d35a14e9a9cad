"""Plans to contract a layer's cores with its input, or into the dense weight.

A plan is plain tuples of integers with -1 for the number of rows, so that one plan serves every batch size
and `torch.compile` sees constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ...contraction.cache import cached
from ...contraction.paths import find_path
from ...structure import Structure
from .costs import Machine, Work, machine_of
from .layout import Layout
from .products import Plan, Product

Legs = tuple[int, ...]
"""Numbers of the legs of an operand, in the order of its axes."""

# The number of the leg of the rows, whose size is not known.
BATCH = 0
# Beyond this many rows the best plan no longer changes.
MOST_ROWS = 1 << 17


@cached
def dense_plan(layout: Layout, structure: Structure) -> Plan:
    """The weight ``(out_features, in_features)`` from the cores."""
    legs = LegTable(layout, structure)
    want = (*legs.outputs, *legs.inputs)
    path = find_path(legs.cores, want, legs.sizes.__getitem__)
    return plan_along(legs.cores, path, legs.sizes, want, (layout.out_features, layout.in_features))


@cached
def through_plan(layout: Layout, structure: Structure, rows: int, device: str = "cpu") -> Plan:
    """Input of shape ``(rows, in_features)`` through the cores; the order is the best for that many rows."""
    legs = LegTable(layout, structure)
    operands = [(BATCH, *legs.inputs), *legs.cores]
    want = (BATCH, *legs.outputs)
    n = structure.num_nodes
    heads = (0, *range(n + 1, 2 * n))  # the input, then the result of every product but the last
    paths = [
        find_path(operands, want, lambda leg: rows if leg == BATCH else legs.sizes[leg]),
        # Node after node: more flops than the best order at times, but fewer copies.
        tuple(zip(heads, range(1, n + 1))),
        tuple(zip(heads, range(n, 0, -1))),
    ]
    shape = (-1, layout.out_features)
    plans = [plan_along(operands, path, legs.sizes, want, shape) for path in dict.fromkeys(paths)]
    return min(plans, key=lambda p: p.seconds(rows, 4, machine_of(device)))


def through_plans(layout: Layout, structure: Structure, device: str, itemsize: int) -> list[Plan]:
    """Plans through the cores to choose from: best orders for a few numbers of rows, whole and in parts."""
    # From one row to a large batch, evenly in logarithms.
    best = (through_plan(layout, structure, rows, device) for rows in (1, 16, 256, 4096))
    plans = list(dict.fromkeys(best))
    parts = [_in_parts(p, itemsize, machine_of(device)) for p in plans]
    return plans + [p for p in parts if p is not None]


def _in_parts(plan: Plan, itemsize: int, machine: Machine) -> Plan | None:
    """The plan with as many rows at once as stay in the cache; None where all do, or too few."""
    rows, least = MOST_ROWS, 16  # fewer are not worth a pass through the products of their own
    while rows >= least and any(
        w.count_entries(rows) * itemsize > machine.cache for w in plan.work if w.has_rows
    ):
        rows //= 2
    return plan._replace(part=rows) if least <= rows < MOST_ROWS else None


class LegTable:
    """Numbers and sizes of legs: the rows, input digits, output digits, edges; and the legs of every core."""

    def __init__(self, layout: Layout, structure: Structure) -> None:
        n_in, n_out = len(layout.in_dims), len(layout.out_dims)
        self.inputs = tuple(range(1, 1 + n_in))
        self.outputs = tuple(range(1 + n_in, 1 + n_in + n_out))
        edges = {e: 1 + n_in + n_out + k for k, e in enumerate(structure.edges)}
        self.sizes = {BATCH: 1, **dict(zip(self.inputs, layout.in_dims))}
        self.sizes |= dict(zip(self.outputs, layout.out_dims))
        self.sizes |= {edges[e]: r for e, r in structure.ranks.items()}
        digits: list[tuple[int, ...]] = [(x,) for x in (*self.outputs, *self.inputs)]
        if layout.paired:
            digits = list(zip(self.outputs, self.inputs))
        digits += [()] * (structure.num_nodes - structure.order)  # internal nodes have edges only
        self.digits: Sequence[Legs] = digits
        self.cores = [
            (*own, *(edges[min(node, j), max(node, j)] for j in structure.neighbours[node]))
            for node, own in enumerate(digits)
        ]

    def size(self, legs: Iterable[int]) -> int:
        """Entries of a tensor with these legs."""
        return math.prod(self.sizes[x] for x in legs)

    def large(self, legs: Iterable[int]) -> Legs:
        """Those of more than one entry, which alone need an axis."""
        return tuple(x for x in legs if self.sizes[x] > 1)


def plan_along(
    operands: Sequence[Legs],
    path: Sequence[tuple[int, int]],
    sizes: dict[int, int],
    want: Legs,
    shape: tuple[int, ...],
) -> Plan:
    """The products along a path, what they cost, and the permutation at the end."""
    pool = list(operands)
    products, work = [], []
    for n, (a, b) in enumerate(path):
        if _size(pool[b], sizes) > _size(pool[a], sizes):
            a, b = b, a  # the large one first
        number, is_last = len(pool), n == len(path) - 1
        # What the result will meet next, where that exists already.
        others = [x for pair in path[n + 1 :] if number in pair for x in pair if x < number]
        partner = pool[others[0]] if others else None
        product, done, out = _multiply(a, b, pool[a], pool[b], sizes, partner, want if is_last else None)
        products.append(product)
        work.append(done)
        pool.append(out)
    order = order_of(pool[-1], want)
    if order is not None:
        work.append(_copy(pool[-1], order, 1, sizes))
    return Plan(tuple(_shape(o, sizes) for o in operands), tuple(products), order, shape, tuple(work))


def part_plan(table: LegTable, nodes: Sequence[int], want: Legs, shape: tuple[int, ...]) -> Plan:
    """What some of the cores are together, as a tensor of this shape; digits of size one need no leg."""
    operands = [table.large(table.cores[node]) for node in nodes]
    path = find_path(operands, want, table.sizes.__getitem__)
    return plan_along(operands, path, table.sizes, want, shape)


def _shape(legs: Legs, sizes: dict[int, int]) -> tuple[int, ...]:
    return tuple(-1 if x == BATCH else sizes[x] for x in legs)


def _size(legs: Legs, sizes: dict[int, int]) -> int:
    """Entries; the rows count as very many, so that what holds them is always the large operand."""
    return math.prod(sizes[x] for x in legs) * (1 << 40 if BATCH in legs else 1)


def _multiply(
    a: int, b: int, la: Legs, lb: Legs, sizes: dict[int, int], partner: Legs | None, want: Legs | None
) -> tuple[Product, Work, Legs]:
    """Product of a large operand and a small one, in place where the legs to sum over are neighbours."""
    shared = [x for x in la if x in lb]
    free_a, free_b = [x for x in la if x not in lb], [x for x in lb if x not in la]
    m, n, k = (math.prod(sizes[x] for x in part) for part in (free_a, free_b, shared))
    rows = BATCH in la  # the small operand never holds the rows
    # What holds the rows has size 1 there: its entries and flops count for each row.
    moved, flops = float(m * k + m * n), 2.0 * m * n * k
    work = Work((0.0, flops), (float(k * n), moved)) if rows else Work((flops, 0.0), (k * n + moved, 0.0))
    first = la.index(shared[0]) if shared else len(la)
    before, after = la[:first], la[first + len(shared) :]
    pre, post = (math.prod(sizes[x] for x in part) for part in (before, after))
    # Stacks of matrices with fewer than 16 columns multiply so slowly that a copy first pays for itself.
    in_place = list(la[first : first + len(shared)]) == shared and (post == 1 or post >= 16)
    if want is not None and not rows:
        # The last product of a dense weight: both factors, which are small, bring their legs in the order of
        # the result, so that the large copy at the end moves long runs.
        free_a, free_b = (sorted(part, key=want.index) for part in (free_a, free_b))
        in_place = False
    if not in_place:
        order_a, order_b = order_of(la, (*free_a, *shared)), order_of(lb, (*shared, *free_b))
        out = (*free_a, *free_b)
        product = Product(a, b, order_a, (-1 if rows else m, k), order_b, (k, n), _shape(out, sizes))
        work = work.copying(_copy(lb, order_b, len(shared), sizes))
        return product, work.copying(_copy(la, order_a, len(free_a), sizes)), out
    free_b = _arrange(free_b, before, after, partner)
    out = (*before, *free_b, *after)
    shape, length = _shape(out, sizes), -1 if rows else pre
    if post == 1:
        order = order_of(lb, (*shared, *free_b))
        product = Product(a, b, None, (length, k), order, (k, n), shape)
        return product, work.copying(_copy(lb, order, len(shared), sizes)), out
    order = order_of(lb, (*free_b, *shared))
    is_stack = length != 1
    product = Product(
        b, a, order, (n, k), None, (length, k, post) if is_stack else (k, post), shape, is_stack
    )
    return product, work.copying(_copy(lb, order, len(free_b), sizes)), out


def _arrange(
    free: Sequence[int], before: Sequence[int], after: Sequence[int], partner: Sequence[int] | None
) -> list[int]:
    """New legs in an order that puts those to be summed over next beside each other."""
    if partner is None:
        return list(free)
    soon = [x for x in free if x in partner]
    later = [x for x in free if x not in partner]
    if before and before[-1] in partner and not (after and after[0] in partner):
        return [*soon, *later]
    return [*later, *soon]


def _copy(legs: Legs, order: tuple[int, ...] | None, left: int, sizes: dict[int, int]) -> Work:
    """Bringing a tensor into another order, as a matrix whose first `left` legs are its rows."""
    if order is None or _is_view(order, left):
        return Work()
    entries = float(math.prod(sizes[x] for x in legs))
    # Loops run over the two innermost groups of axes that stay together; the rest is overhead per tile.
    tile, groups = 1, 0
    for place in range(len(order) - 1, -1, -1):
        if place == len(order) - 1 or order[place + 1] != order[place] + 1:
            groups += 1
        if groups > 2:
            break
        tile *= sizes[legs[order[place]]]
    counts = (0.0, entries) if BATCH in legs else (entries, 0.0)
    return Work(copied=counts, tiles=(counts[0] / tile, counts[1] / tile))


def order_of(have: Legs, want: Legs) -> tuple[int, ...] | None:
    return None if have == want else tuple(have.index(x) for x in want)


def _is_view(order: tuple[int, ...], left: int) -> bool:
    """Whether both groups are runs of axes, so that the permuted tensor is a matrix without a copy."""
    return all(b == a + 1 for group in (order[:left], order[left:]) for a, b in pairwise(group))
