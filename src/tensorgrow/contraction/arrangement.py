"""Storage order of intermediate results: chosen so that products find their operands in matrix order.

A product sums over some legs of each operand. Where these are not a run of axes at one end, the operand is
copied first, which takes a third of a sweep over a wide graph. A product may write its result in several
orders, and in more of them where an operand is copied anyway; so it writes for those who read the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

Legs = tuple[int, ...]
Readers = Sequence[frozenset[int]]
"""What each later product that reads a result sums over."""


# Entries of one product among many from which starting it costs less than a copy. From 1,024 on, slabs of
# 40x40 out of 40^4 would take 1.2 ms instead of 5, but tensors read block by block 1.5 MB more of 16.
LEAST_BATCH = 4096


class Arrangement(NamedTuple):
    """Orders of the legs of a product, ``(left, shared) x (batch, shared, right)``.

    The result is ``(batch, left, right)``.
    """

    left: Legs
    shared: Legs
    right: Legs
    swaps: bool = False  # whether the second operand is the left one
    batch: Legs = ()  # the operand on the right is stored in this order, and multiplied slab by slab

    @property
    def result(self) -> Legs:
        return (*self.batch, *self.left, *self.right)


def arrange_product(a: Legs, b: Legs, readers: Readers, sizes: Sequence[int]) -> Arrangement:
    """The arrangement of a product that copies least, now and when its result is read.

    Parameters
    ----------
    a, b
        Legs of the operands in storage order.
    """
    if any(sizes[x] == 1 for x in (*a, *b)):
        long_a, long_b = (tuple(x for x in legs if sizes[x] > 1) for legs in (a, b))
        how = arrange_product(long_a, long_b, _long_readers(readers, sizes), sizes)
        return _with_short(how, a, b, sizes)
    shared_b, free_a, free_b = _parts(a, b)
    shared_a = tuple(x for x in a if x in shared_b)
    m, n, k = (_entries(legs, sizes) for legs in (free_a, free_b, shared_b))
    lefts, rights = _orders(free_a, readers), _orders(free_b, readers)
    later = {
        (x, y, swaps): m * n * _late_copies((*y, *x) if swaps else (*x, *y), readers, sizes)
        for x, y, swaps in product(lefts, rights, (m > n, m <= n))  # first the smaller operand on the left
    }
    best, least = None, math.inf
    for shared in dict.fromkeys((shared_b, shared_a)):
        of_a = {x: 0 if _is_run(shared, a) and _is_run(x, a) else m * k for x in lefts}
        of_b = {y: 0 if _is_run(shared, b) and _is_run(y, b) else k * n for y in rights}
        for (x, y, swaps), copies in later.items():
            if copies + of_a[x] + of_b[y] < least:
                least = copies + of_a[x] + of_b[y]
                best = Arrangement(y, shared, x, True) if swaps else Arrangement(x, shared, y)
    assert best is not None
    small, large, shared = (b, a, shared_a) if m > n else (a, b, shared_b)
    if least and shared and _is_readable(frozenset(shared), large, sizes):
        first = large.index(shared[0])
        batch, right = large[:first], large[first + len(shared) :]
        for left in rights if m > n else lefts:
            option = Arrangement(left, shared, right, m > n, batch)
            copies = m * n * _late_copies(option.result, readers, sizes)
            copies += 0 if _is_run(shared, small) and _is_run(left, small) else min(m, n) * k
            if copies < least:
                best, least = option, copies
    return best


def arrange_square(a: Legs, b: Legs, readers: Readers, sizes: Sequence[int]) -> Arrangement:
    """`arrange_product` for a tensor with itself under other names; both sides keep the same order."""
    if any(sizes[x] == 1 for x in a):
        long_a, long_b = (tuple(x for x in legs if sizes[x] > 1) for legs in (a, b))
        how = arrange_square(long_a, long_b, _long_readers(readers, sizes), sizes)
        return _with_short(how, a, b, sizes)
    shared, free, _ = _parts(b, a)
    free, twin = tuple(x for x in a if x not in shared), dict(zip(a, b))
    m, k = _entries(free, sizes), _entries(shared, sizes)
    best, least = None, math.inf
    # What a reader sums over on one side is given the names of the other.
    names = {y: x for x, y in twin.items()}
    for left in _orders(free, [frozenset(names.get(x, x) for x in r) for r in readers]):
        right = tuple(twin[x] for x in left)
        copies = m * m * _late_copies((*left, *right), readers, sizes)
        copies += 0 if _is_run(shared, a) and _is_run(left, a) else m * k
        if copies < least:
            best, least = Arrangement(left, shared, right), copies
    assert best is not None
    return best


def keep_result(a: Legs, b: Legs, result: Legs) -> Arrangement:
    """The arrangement that writes a result in this order; it must be one that products can write."""
    shared, free_a, free_b = _parts(a, b)
    count = len(free_a) if set(result[: len(free_a)]) == set(free_a) else len(free_b)
    swaps = set(result[:count]) != set(free_a)
    return Arrangement(result[:count], shared, result[count:], swaps)


def _long_readers(readers: Readers, sizes: Sequence[int]) -> Readers:
    """What readers sum over, without legs of size 1."""
    return [frozenset(x for x in summed if sizes[x] > 1) for summed in readers]


def _with_short(how: Arrangement, a: Legs, b: Legs, sizes: Sequence[int]) -> Arrangement:
    """An arrangement with legs of size 1, of internal nodes say, added: nothing is copied for their place."""
    one, two = (b, a) if how.swaps else (a, b)
    short = [[x for x in legs if sizes[x] == 1] for legs in (one, two)]
    return how._replace(
        left=(*how.left, *(x for x in short[0] if x not in two)),
        shared=(*how.shared, *(x for x in short[1] if x in one)),
        right=(*how.right, *(x for x in short[1] if x not in one)),
    )


def _parts(a: Legs, b: Legs) -> tuple[Legs, Legs, Legs]:
    """Legs that two operands share, in the order of the second, and those that only one of them has."""
    in_a, in_b = set(a), set(b)
    shared = tuple(x for x in b if x in in_a)
    return shared, tuple(x for x in a if x not in in_b), tuple(x for x in b if x not in in_a)


def _orders(free: Legs, readers: Readers) -> list[Legs]:
    """Orders of the legs that an operand leaves: as they are, or with those of a reader first or last."""
    orders = {free: None}
    for summed in readers:
        mine, rest = tuple(x for x in free if x in summed), tuple(x for x in free if x not in summed)
        orders |= {(*mine, *rest): None, (*rest, *mine): None}
    return list(orders)


def _late_copies(result: Legs, readers: Readers, sizes: Sequence[int]) -> int:
    """How many of the readers must copy."""
    return sum(not _is_readable(r, result, sizes) for r in readers)


def _is_readable(summed: frozenset[int], legs: Legs, sizes: Sequence[int]) -> bool:
    """Whether a product sums over some legs without a copy: a run of them, at an end or of large slabs."""
    if not summed:
        return True
    first = next(k for k, x in enumerate(legs) if x in summed)
    last = first + len(summed)
    if not summed.issuperset(legs[first:last]):
        return False
    return first == 0 or last == len(legs) or _entries(legs[first:], sizes) >= LEAST_BATCH


def _entries(legs: Legs, sizes: Sequence[int]) -> int:
    return math.prod([sizes[x] for x in legs])


def _is_run(part: Legs, legs: Legs) -> bool:
    """Whether `part` stands in `legs` as it is, without a gap."""
    if not part:
        return True
    first = legs.index(part[0])
    return legs[first : first + len(part)] == part
