"""Plans to contract a layer's cores with its input, or into the dense weight.

A plan is plain tuples of integers with -1 for the number of rows, so that one plan serves every batch size
and `torch.compile` sees constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from ...contraction.paths import find_path
from ...structure import Structure
from .costs import Work, machine_of
from .layout import Layout
from .products import Plan, Product

# The number of the leg of the rows, whose size is not known.
BATCH = 0
# Stacks of matrices with fewer columns multiply so slowly that a copy first pays.
LEAST_COLUMNS = 16


@lru_cache(maxsize=4_000)
def dense_plan(layout: Layout, structure: Structure) -> Plan:
    """The weight ``(out_features, in_features)`` from the cores."""
    legs = _Legs(layout, structure)
    operands = [legs.core(k) for k in range(structure.num_nodes)]
    want = (*legs.outputs, *legs.inputs)
    path = find_path(operands, want, legs.sizes.__getitem__)
    have, products, work = _contract(operands, path, legs, want)
    return _assemble(operands, have, want, products, work, legs, (layout.out_features, layout.in_features))


@lru_cache(maxsize=4_000)
def through_plan(layout: Layout, structure: Structure, rows: int, device: str = "cpu") -> Plan:
    """Input of shape ``(rows, in_features)`` through the cores; the order is the best for so many rows."""
    legs = _Legs(layout, structure)
    operands = [(BATCH, *legs.inputs), *(legs.core(k) for k in range(structure.num_nodes))]
    want = (BATCH, *legs.outputs)
    n = structure.num_nodes
    paths = [
        find_path(operands, want, lambda leg: rows if leg == BATCH else legs.sizes[leg]),
        # Node after node: more flops than the best order at times, but fewer copies.
        _sequential(range(1, n + 1)),
        _sequential(range(n, 0, -1)),
    ]
    plans = []
    for path in dict.fromkeys(paths):
        have, products, work = _contract(operands, path, legs, want)
        plans.append(_assemble(operands, have, want, products, work, legs, (-1, layout.out_features)))
    return min(plans, key=lambda p: p.seconds(rows, 4, machine_of(device)))


def _sequential(nodes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Path that takes one operand after the other into the first."""
    order = list(nodes)
    head, out = 0, []
    for n, k in enumerate(order):
        out.append((head, k))
        head = len(order) + 1 + n
    return tuple(out)


def _assemble(
    operands: Sequence[tuple[int, ...]],
    have: tuple[int, ...],
    want: tuple[int, ...],
    products: list[Product],
    work: list[Work],
    legs: _Legs,
    shape: tuple[int, ...],
) -> Plan:
    """The plan with its last permutation."""
    order = _order(have, want)
    if order is not None:
        work = [*work, _copy(have, order, 1, legs.sizes)]
    inputs = tuple(tuple(-1 if x == BATCH else legs.sizes[x] for x in o) for o in operands)
    return Plan(inputs, tuple(products), order, shape, tuple(work))


class _Legs:
    """Numbers and sizes of legs: the rows, input digits, output digits, edges."""

    def __init__(self, layout: Layout, structure: Structure) -> None:
        n_in, n_out = len(layout.in_dims), len(layout.out_dims)
        self.structure = structure
        self.paired = layout.paired
        self.inputs = tuple(range(1, 1 + n_in))
        self.outputs = tuple(range(1 + n_in, 1 + n_in + n_out))
        first = 1 + n_in + n_out
        self.edge = {e: first + k for k, e in enumerate(structure.edges)}
        self.sizes = {BATCH: 1, **dict(zip(self.inputs, layout.in_dims))}
        self.sizes |= dict(zip(self.outputs, layout.out_dims))
        self.sizes |= {self.edge[e]: r for e, r in structure.ranks.items()}

    def core(self, node: int) -> tuple[int, ...]:
        """Legs of a core, one per digit; internal nodes have edges only."""
        bonds = [self.edge[(node, j) if node < j else (j, node)] for j in self.structure.neighbours[node]]
        if node >= self.structure.order:
            return tuple(bonds)
        if self.paired:
            return (self.outputs[node], self.inputs[node], *bonds)
        return ((*self.outputs, *self.inputs)[node], *bonds)


def _contract(
    operands: Sequence[tuple[int, ...]],
    path: Sequence[tuple[int, int]],
    legs: _Legs,
    want: tuple[int, ...],
) -> tuple[tuple[int, ...], list[Product], list[Work]]:
    """Legs of the result, the products and what they cost."""
    pool = list(operands)
    products, work = [], []
    for n, (a, b) in enumerate(path):
        if _size(pool[b], legs.sizes) > _size(pool[a], legs.sizes):
            a, b = b, a  # the large one first
        last = n == len(path) - 1
        partner = None
        if not last:  # what the result will meet next
            number = len(operands) + n
            meeting = next((p for p in path[n + 1 :] if number in p), None)
            other = None if meeting is None else meeting[meeting[0] == number]
            partner = pool[other] if other is not None and other < len(pool) else None
        product, done, out = _multiply(a, b, pool[a], pool[b], legs.sizes, partner, want if last else None)
        products.append(product)
        work.append(done)
        pool.append(out)
    return pool[-1], products, work


def _size(legs: tuple[int, ...], sizes: dict[int, int]) -> int:
    """Entries; the rows count as very many, so that what holds them is always the large operand."""
    return math.prod(sizes[x] for x in legs) * (1 << 40 if BATCH in legs else 1)


def _multiply(
    a: int,
    b: int,
    la: tuple[int, ...],
    lb: tuple[int, ...],
    sizes: dict[int, int],
    partner: tuple[int, ...] | None,
    want: tuple[int, ...] | None,
) -> tuple[Product, Work, tuple[int, ...]]:
    """Product of a large operand and a small one, in place where the legs to sum over are neighbours."""
    shared = [x for x in la if x in lb]
    free_a, free_b = [x for x in la if x not in lb], [x for x in lb if x not in la]
    m, n, k = (math.prod(sizes[x] for x in part) for part in (free_a, free_b, shared))
    first = la.index(shared[0]) if shared else len(la)
    post = math.prod(sizes[x] for x in la[first + len(shared) :])
    in_place = list(la[first : first + len(shared)]) == shared and (post == 1 or post >= LEAST_COLUMNS)
    if want is not None and BATCH not in la:
        # The last product of a dense weight: both factors, which are small, bring their legs in the order of
        # the result, so that the large copy at the end moves long runs.
        free_a, free_b = (sorted(part, key=want.index) for part in (free_a, free_b))
        in_place = False
    if in_place:
        before, after = la[:first], la[first + len(shared) :]
        pre = math.prod(sizes[x] for x in before)
        free_b = _arrange(free_b, before, after, partner)
        out = (*before, *free_b, *after)
        rows = BATCH in la
        flops, moved = 2.0 * m * n * k, float(m * k + m * n)
        shape = tuple(-1 if x == BATCH else sizes[x] for x in out)
        if post == 1:
            order = _order(lb, (*shared, *free_b))
            product = Product(a, b, None, (-1 if rows else pre, k), order, (k, n), shape)
            return product, _work(rows, flops, moved, k * n, _copy(lb, order, len(shared), sizes)), out
        order = _order(lb, (*free_b, *shared))
        copy = _copy(lb, order, len(free_b), sizes)
        if not rows and pre == 1:
            product = Product(b, a, order, (n, k), None, (k, post), shape)
            return product, _work(False, flops, moved, k * n, copy), out
        product = Product(b, a, order, (n, k), None, (-1 if rows else pre, k, post), shape, True)
        return product, _work(rows, flops, moved, k * n, copy), out
    order_a, order_b = _order(la, (*free_a, *shared)), _order(lb, (*shared, *free_b))
    out = (*free_a, *free_b)
    rows = BATCH in la
    product = Product(
        a,
        b,
        order_a,
        (-1 if rows else m, k),
        order_b,
        (k, n),
        tuple(-1 if x == BATCH else sizes[x] for x in out),
    )
    copy_a, copy_b = _copy(la, order_a, len(free_a), sizes), _copy(lb, order_b, len(shared), sizes)
    done = _work(rows, 2.0 * m * n * k, float(m * k + m * n), k * n, copy_b)
    # `_copy` counts per row for what holds the rows, since the rows have size 1 there.
    copied = (done.copied[0] + copy_a.copied[0], done.copied[1] + copy_a.copied[1])
    tiles = (done.tiles[0] + copy_a.tiles[0], done.tiles[1] + copy_a.tiles[1])
    return product, done._replace(copied=copied, tiles=tiles), out


def _arrange(
    free: Sequence[int], before: Sequence[int], after: Sequence[int], partner: Sequence[int] | None
) -> list[int]:
    """New legs in an order that puts those to be summed over next beside each other."""
    if partner is None:
        return list(free)
    soon = [x for x in free if x in partner]
    later = [x for x in free if x not in partner]
    if after and after[0] in partner:
        return [*later, *soon]
    if before and before[-1] in partner:
        return [*soon, *later]
    return [*later, *soon]


def _work(rows: bool, flops: float, moved: float, small: float, copy: Work) -> Work:
    """Work of a product whose large operand holds the rows or not; the small one never does."""
    fixed = (float(small), moved) if rows else (small + moved, 0.0)
    return Work((0.0, flops) if rows else (flops, 0.0), fixed, copy.copied, copy.tiles)


def _copy(legs: tuple[int, ...], order: tuple[int, ...] | None, left: int, sizes: dict[int, int]) -> Work:
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


def _order(have: tuple[int, ...], want: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if have == want else tuple(have.index(x) for x in want)


def _is_view(order: tuple[int, ...], left: int) -> bool:
    """Whether both groups are runs of axes, so that the permuted tensor is a matrix without a copy."""
    return all(b == a + 1 for group in (order[:left], order[left:]) for a, b in pairwise(group))
