"""Digits of sizes: even ones for a size of an axis, and those that a wanted shape implies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from .axes import Digit, Order

# Axes from this size on are cut into digits; shorter ones (colours, months) have no scales to speak of.
LONG_AXIS = 24


@lru_cache(maxsize=1024)
def even_digits(size: int, base: int) -> tuple[int, ...]:
    """Return digits of about `base` whose product is `size` or up to 5 % more.

    The smallest digit comes first, as the most significant, so that the fine scales of axes of different
    sizes agree. An axis of at most twice the base stays whole.
    """
    if size <= 2 * base:
        return (size,)
    best: tuple[float, tuple[int, ...]] | None = None
    for padded in range(size, math.floor(size * 1.05) + 1):
        count = max(1, round(math.log(padded) / math.log(base)))
        sizes = [1] * count
        for prime in _primes(padded)[::-1]:
            sizes[sizes.index(min(sizes))] *= prime
        # Uneven digits cost as much as padding by the same factor. Any padding costs a factor of 1.5 more: it
        # must make the largest digit that much smaller.
        cost = padded / size * max(sizes) / padded ** (1.0 / count) * (1.0 if padded == size else 1.5)
        if best is None or cost < best[0]:
            best = (cost, tuple(sorted(s for s in sizes if s > 1)))
    assert best is not None
    return best[1]


def _primes(n: int) -> list[int]:
    """Prime factors, ascending."""
    factors, p = [], 2
    while p * p <= n:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return [*factors, n] if n > 1 else factors


def arrange(digits: Sequence[Sequence[int]], order: Order) -> tuple[tuple[Digit, ...], ...]:
    """Decide which digits each mode holds.

    "C": axis after axis, significant digits first. "F": the same with the least significant digit first, as
    a column-major reshape gives. "interleaved": scale after scale, coarse to fine, one mode per axis; axes of
    a single digit come last. "grouped": the digits of one scale share a mode.
    """
    if order in ("C", "F"):
        step = 1 if order == "C" else -1
        return tuple(((a, k),) for a, sizes in enumerate(digits) for k in range(len(sizes))[::step])
    cut = [a for a, sizes in enumerate(digits) if len(sizes) > 1]
    scales = [
        tuple((a, len(digits[a]) - s) for a in cut if len(digits[a]) >= s)
        for s in range(max((len(digits[a]) for a in cut), default=0), 0, -1)
    ]
    whole = [((a, 0),) for a, sizes in enumerate(digits) if len(sizes) == 1]
    if order == "grouped":
        return (*scales, *whole)
    return (*((digit,) for scale in scales for digit in scale), *whole)


def match(
    dims: Sequence[int], sizes: Sequence[int], order: Order
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[Digit, ...], ...]] | None:
    """Find the digits of every axis and the modes they form, for a tensor of shape `dims`.

    Axes are met exactly where that is possible, and padded otherwise. None where there is no way.
    """
    if math.prod(dims) < math.prod(sizes):
        return None
    search = _Matching(tuple(dims), tuple(sizes), order)
    factors = search.from_mode(0, (1,) * len(sizes), 0, math.prod(dims) == math.prod(sizes))
    if factors is None:
        return None
    digits: list[list[int]] = [[] for _ in sizes]
    modes: list[tuple[Digit, ...]] = []
    for d, split in zip(dims, factors):
        mode: list[Digit] = []
        for axis, factor in enumerate(split):
            if factor > 1 or (d == 1 and not mode and axis == len(split) - 1):
                mode.append((axis, len(digits[axis])))
                digits[axis].append(factor)
        modes.append(tuple(mode))
    if order == "F":  # modes came least significant first
        last = [len(sizes) - 1 for sizes in digits]
        modes = [tuple((a, last[a] - k) for a, k in mode) for mode in modes]
        digits = [sizes[::-1] for sizes in digits]
    return tuple(map(tuple, digits)), tuple(modes)


class _Matching:
    """Depth-first search for the factors that each axis contributes to each mode."""

    def __init__(self, dims: tuple[int, ...], sizes: tuple[int, ...], order: Order) -> None:
        self.dims, self.sizes, self.order = dims, sizes, order
        self.failed: set[tuple[int, tuple[int, ...], int]] = set()

    def from_mode(
        self, mode: int, reached: tuple[int, ...], last: int, exact: bool
    ) -> list[tuple[int, ...]] | None:
        """Factors of the modes from `mode` on, where the axes have the sizes `reached`."""
        if mode == len(self.dims):
            return [] if all(m >= n for m, n in zip(reached, self.sizes)) else None
        key = (mode, reached, last)
        if key in self.failed:
            return None
        for split in self._splits(self.dims[mode], reached, last):
            after = tuple(m * f for m, f in zip(reached, split))
            if exact and any(n % m for n, m in zip(self.sizes, after)):
                continue
            used = max((a for a, f in enumerate(split) if f > 1), default=last)
            rest = self.from_mode(mode + 1, after, used, exact)
            if rest is not None:
                return [split, *rest]
        self.failed.add(key)
        return None

    def _splits(self, d: int, reached: tuple[int, ...], last: int) -> list[tuple[int, ...]]:
        """Ways to share a mode among the axes, the preferred first."""
        axes = range(len(self.sizes))
        whole = [tuple(d if a == b else 1 for a in axes) for b in axes]
        if self.order in ("C", "F"):  # an axis is done when it is large enough; then the next one
            return [*whole[last + 1 :], whole[last]] if reached[last] >= self.sizes[last] else [whole[last]]
        if self.order == "interleaved":  # the next axis first
            return [whole[(last + 1 + k) % len(axes)] for k in axes] if max(reached) > 1 else whole
        open_axes = [a for a in axes if reached[a] < self.sizes[a]]
        splits = _factorings(d, len(self.sizes))
        allowed = [s for s in splits if all(f == 1 or a in open_axes for a, f in enumerate(s))]
        return sorted(allowed, key=max)


@lru_cache(maxsize=256)
def _factorings(d: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Ordered ways to write `d` as a product of `count` factors."""
    if count == 1:
        return ((d,),)
    return tuple((f, *rest) for f in range(1, d + 1) if d % f == 0 for rest in _factorings(d // f, count - 1))
