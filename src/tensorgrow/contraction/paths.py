"""Pairwise contraction order, found once per topology and size class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from opt_einsum.paths import DynamicProgramming, greedy, linear_to_ssa

from .cache import cached

# Beyond this many operands an optimal search costs more than it saves on networks of our size.
OPTIMAL_OPERANDS = 10
# Flops plus 64 x the entries written: on real machines a write costs about that many multiply-adds.
MINIMIZE = "combo-64"

# Random greedy orders that are tried.
TRIALS = 32

Path = tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def size_class(size: int) -> int:
    """Half-octave of a size. Paths are shared within a class, so that growth by one does not search again."""
    return round(2 * math.log2(size)) if size > 1 else 0


def find_path(
    operands: Sequence[Sequence[int]], output: Sequence[int], size_of: Callable[[int], int]
) -> Path:
    """Order of pairwise contractions, as pairs of positions in a list that results are appended to.

    Parameters
    ----------
    operands
        Legs of every operand.
    output
        Legs that stay.
    size_of
        Size of a leg.
    """
    if len(operands) == 1:
        return ()
    if len(operands) == 2:
        return ((0, 1),)
    number: dict[int, int] = {}
    for legs in operands:
        for leg in legs:
            number.setdefault(leg, len(number))
    key = tuple([tuple([number[x] for x in legs]) for legs in operands])
    open_legs = tuple(sorted([number[x] for x in output if x in number]))
    classes = tuple(map(size_class, map(size_of, number)))
    return search_path(key, open_legs, classes)


@cached
def search_path(
    operands: tuple[tuple[int, ...], ...], output: tuple[int, ...], classes: tuple[int, ...]
) -> Path:
    """Cheapest order for legs with numbers from 0 on, of these size classes."""
    sizes = _sizes(classes)
    optimal = len(operands) <= OPTIMAL_OPERANDS
    rust = rust_finder()
    if rust is not None:
        inputs, out, named = _named(operands, output, sizes)
        if optimal:
            ssa = rust.optimize_optimal(inputs, out, named, minimize=MINIMIZE, use_ssa=True)
        else:
            ssa = rust.optimize_greedy(inputs, out, named, use_ssa=True)
        return tuple(_pairs(ssa, len(operands)))
    finder = DynamicProgramming(minimize=MINIMIZE) if optimal else greedy
    path = finder([frozenset(legs) for legs in operands], frozenset(output), sizes)
    return tuple(_pairs(linear_to_ssa(path), len(operands)))


def greedy_paths(operands: tuple[tuple[int, ...], ...], classes: tuple[int, ...]) -> list[Path]:
    """Greedy orders for the number that a closed network is: one, and the best of some random ones.

    The random ones, where the extra `tensorgrow[fast]` is installed: on sparse graphs of 20 to 69 nodes they
    halve the flops, in 3 ms.
    """
    paths = [search_path(operands, (), classes)]
    rust = rust_finder()
    if rust is not None:
        arguments = _named(operands, (), _sizes(classes))
        ssa, _ = rust.optimize_random_greedy_track_flops(*arguments, ntrials=TRIALS, seed=0, use_ssa=True)
        paths.append(tuple(_pairs(ssa, len(operands))))
    return paths


def _sizes(classes: tuple[int, ...]) -> dict[int, int]:
    return {leg: max(2, round(2 ** (c / 2))) if c else 1 for leg, c in enumerate(classes)}


def _named(
    operands: tuple[tuple[int, ...], ...], output: tuple[int, ...], sizes: dict[int, int]
) -> tuple[list[list[str]], list[str], dict[str, float]]:
    """What the compiled finder takes: a letter for every leg."""
    inputs = [[chr(leg + 192) for leg in legs] for legs in operands]
    named = {chr(leg + 192): float(s) for leg, s in sizes.items()}
    return inputs, [chr(leg + 192) for leg in output], named


@lru_cache(maxsize=1)
def rust_finder() -> Any:
    """The compiled path finder, where the extra `tensorgrow[fast]` is installed."""
    try:
        import cotengrust
    except ImportError:
        return None
    return cotengrust


def _pairs(ssa: Sequence[Sequence[int]], count: int) -> list[tuple[int, int]]:
    """Make every step a pair (finders may leave scalars alone or join three at once)."""
    out: list[tuple[int, int]] = []
    rename = list(range(count))
    produced = count
    for step in ssa:
        head, *others = (rename[k] for k in step)
        for other in others:
            out.append((head, other))
            head = produced
            produced += 1
        rename.append(head)
    used = {k for pair in out for k in pair}
    loose = [k for k in range(produced) if k not in used]
    while len(loose) > 1:
        out.append((loose[0], loose[1]))
        loose = [*loose[2:], produced]
        produced += 1
    return out
