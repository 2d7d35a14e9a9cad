"""Patterns of gaps: which entries of a tensor are missing together, and others that go together alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .observations import Observations

Mask = npt.NDArray[np.bool_]

# A table of what is known has at most this many cells, or so many per entry. Longer lists of fewer entries
# (ratings) are taken to be random: nearly all their fibres hold nothing or one entry.
MOST_CELLS, CELLS_PER_ENTRY = 10**7, 30
# Entries hang together where at least these shares of what independent gaps leave open are found, whatever
# the size: of missing entries in fibres that are missing, with the correlation of two entries of a fibre that
# even many single gaps beside them leave; of the correlation of neighbours; of missing entries in tails ...
WHOLE, CORRELATION, RUNS, TAIL = 0.5, 0.3, 0.2, 0.75
# ... and where chance would have to deviate by so many of its standard deviations: small tensors need more.
DEVIATIONS = 3.0
# At least so many groups are held out: an error on a single one says little about others.
GROUPS = 4
# Multiples of these spread evenly over an interval, however few are used, and pairs of them over a square.
GOLDEN, SILVER = (math.sqrt(5.0) - 1.0) / 2.0, math.sqrt(2.0) - 1.0


@dataclass(frozen=True)
class Gaps:
    """How missing entries hang together; without any mode they are random.

    Attributes
    ----------
    order
        Modes of the tensor.
    whole
        Modes along which entries are missing all together: the colours of a pixel, the hours of a day.
    runs
        Other modes along which they are missing in runs.
    tail
        The one of these whose end is missing.
    filled
        Modes of which slices without any entry count, since something determines them, such as digits. Others
        are predicted as the mean of the rest, whatever is held out.
    """

    order: int
    whole: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()
    tail: int | None = None
    filled: tuple[int, ...] = ()

    @classmethod
    def find(cls, seen: Observations, filled: tuple[int, ...] = ()) -> Gaps:
        """Find the pattern of what is not listed, in time linear in the size of the tensor."""
        cells = math.prod(seen.shape)
        if cells > max(MOST_CELLS, CELLS_PER_ENTRY * len(seen)):
            return cls(seen.order)
        known, _ = _table(seen, filled)
        whole: list[int] = []
        rest = known  # what is known of groups that are missing together
        others = list(range(seen.order))
        while others:
            found = {k: _wholeness(rest, k) for k in others}
            mode = max(others, key=found.__getitem__)
            if found[mode] < WHOLE:
                break
            others.remove(mode)
            if _likeness(rest, mode) < RUNS:  # else some runs are as long as the fibre, and others are not
                whole.append(mode)
                rest = np.asarray(rest.any(mode, keepdims=True))
        runs = _modes_of_runs(rest)
        tails = {k: _tail_share(rest, k) for k in runs}
        last = max(tails, key=tails.__getitem__, default=None)
        tail = last if last is not None and tails[last] >= TAIL else None
        return cls(seen.order, tuple(sorted(whole)), runs, tail, filled)

    @property
    def are_random(self) -> bool:
        """Whether entries are missing one by one."""
        return not self.whole and not self.runs

    def __str__(self) -> str:
        return self.describe()

    def describe(self, names: Sequence[str] | None = None) -> str:
        """Say what is missing together, by the names of the modes where there are some."""

        def name(modes: Iterable[int]) -> str:
            *first, last = (f"mode {k}" if names is None else names[k] for k in modes)
            return f"{', '.join(first)} and {last}" if first else last

        if self.are_random:
            return "random"
        if not self.runs:
            others = set(range(self.order)) - set(self.whole)
            one = len(others) == 1
            return f"whole slices of {name(others)}" if one else f"whole fibres along {name(self.whole)}"
        runs = f"blocks along {name(self.runs)}" if self.tail is None else f"tails along {name([self.tail])}"
        return runs + (f", whole along {name(self.whole)}" if self.whole else "")

    def draw(self, seen: Observations, number: int, generator: torch.Generator) -> torch.Tensor:
        """Choose about `number` of the entries, in groups as large as those that are missing, as a mask."""
        known, where = _table(seen, self.filled)
        return torch.from_numpy(self._draw(known, number, generator)[where])

    def _draw(self, known: Mask, number: int, generator: torch.Generator) -> Mask:
        rest = np.asarray(known.any(self.whole, keepdims=True)) if self.whole else known
        missing = np.argwhere(~rest)
        held = np.zeros_like(known)
        # Single entries are missing as well, and as many of all that are held out.
        loose = 1.0 - len(missing) * (known.size / rest.size) / max(1, int((~known).sum()))
        singles = _choose(np.flatnonzero(known), round(loose * number), generator)
        held.reshape(-1)[singles] = True
        centres = _choose(np.argwhere(rest), int(rest.sum()), generator)
        if not self.runs:
            sizes = (known & ~held).sum(self.whole, keepdims=True)[tuple(centres.T)]
            enough = int(np.searchsorted(np.cumsum(sizes), number - len(singles))) + 1
            chosen = np.zeros_like(rest)
            chosen[tuple(centres[:enough].T)] = True
            return np.asarray(held | (chosen & known))
        per_cell = known.sum() / rest.sum()
        centres, lengths = self._boxes(rest, missing, centres, number / per_cell, generator)
        places = (torch.rand(lengths.shape, generator=generator).numpy() * lengths).astype(np.int64)
        ends = None if self.tail is None else _bounds_of_runs(rest, self.tail)[0].take(-1, self.tail)
        count, number = len(singles), max(number, round(per_cell * lengths[:GROUPS].prod(1).sum()))
        for centre, length, place in zip(centres.tolist(), lengths.tolist(), places.tolist()):
            if count >= number:
                break
            stop = [
                min(max(middle - before, 0) + size, d)
                for middle, before, size, d in zip(centre, place, length, rest.shape)
            ]
            if self.tail is not None and ends is not None:
                stop[self.tail] = int(ends[tuple(c for k, c in enumerate(centre) if k != self.tail)]) + 1
            box = tuple(
                slice(None) if k in self.whole else slice(max(0, end - size), end)
                for k, (end, size) in enumerate(zip(stop, length))
            )
            count += int((known[box] & ~held[box]).sum())
            held[box] |= known[box]
        return held

    def _fibres(self, where: Any, shape: Sequence[int]) -> Any:
        """Number positions by their fibre: the same for those that differ along the runs only."""
        number = np.zeros(len(where), np.int64)
        for k in set(range(self.order)) - set(self.runs):
            number = number * shape[k] + where[:, k]
        return number

    def _boxes(
        self, rest: Mask, missing: Any, centres: Any, most: float, generator: torch.Generator
    ) -> tuple[Any, Any]:
        """Draw positions from `centres`, and sizes of groups around them as of what is missing.

        Of each size as many entries, from those of the same fibre where there are some: short gaps of one
        place say nothing about another. The first few, however many, lie in all fibres in proportion: by
        chance one would have none, and may be the one that matters. (Of 900 pairs of taxi zones one has a
        quarter more traffic than any other; without a day of it held out, nothing told how it is predicted.)
        Tails stay where they are, with sizes from all.
        """
        where = tuple(missing.T)
        found = np.stack([_run_lengths(rest, k)[where] for k in self.runs], 1)
        if self.tail is None:
            centres = centres[np.argsort(self._fibres(centres, rest.shape), kind="stable")]
            fibres, mine = (self._fibres(w, rest.shape) for w in (missing, centres))
        else:
            found = found[_is_tail(rest, self.tail)[where]]
            fibres, mine = np.zeros(len(found), np.int64), np.zeros(len(centres), np.int64)
        # Smaller ones, where few of that size would be twice as much as wanted; a tail that all share is one.
        is_one = self.tail is not None and rest.size == rest.shape[self.tail]
        largest = max(1.0, most if is_one else 2.0 * most / GROUPS)
        can_shrink = (found > 1) & (found < [rest.shape[k] for k in self.runs])  # what is whole stays so
        shrink = np.minimum(1.0, largest / found.prod(1)) ** (1.0 / np.maximum(can_shrink.sum(1), 1))
        found = np.where(can_shrink, np.maximum(1, np.round(found * shrink[:, None])), found).astype(np.int64)
        order = np.lexsort((found.prod(1), fibres))
        found, fibres = found[order], fibres[order]
        shares = np.concatenate([[0.0], np.cumsum(1.0 / found.prod(1))])
        first, last = np.searchsorted(fibres, mine), np.searchsorted(fibres, mine, side="right")
        first, last = np.where(first < last, first, 0), np.where(first < last, last, len(found))
        sums = shares[last] - shares[first]
        start = torch.rand(2, generator=generator).numpy()[:, None]
        spread, places = (start + np.outer((GOLDEN, SILVER), np.arange(len(centres)))) % 1.0
        if self.tail is None:  # the longer groups of a fibre are, the fewer it has
            ends = np.cumsum(sums / (last - first))
            chosen = np.minimum(np.searchsorted(ends, places * ends[-1]), len(ends) - 1)
            centres, first, last, sums = centres[chosen], first[chosen], last[chosen], sums[chosen]
        drawn = np.searchsorted(shares, shares[first] + spread * sums, side="right") - 1
        lengths = np.ones((len(centres), self.order), dtype=np.int64)
        lengths[:, list(self.runs)] = found[np.clip(drawn, first, last - 1)]
        return centres, lengths


def _table(seen: Observations, filled: tuple[int, ...]) -> tuple[Mask, tuple[Any, ...]]:
    """Tell which entries are known, without slices that nothing fills; and where in this `seen` are."""
    shape, where = list(seen.shape), list(seen.indices.cpu().numpy().T)
    for k in set(range(seen.order)) - set(filled):
        slices, where[k] = np.unique(where[k], return_inverse=True)
        shape[k] = len(slices)
    known = np.zeros(shape, dtype=bool)
    known[tuple(where)] = True
    return known, tuple(where)


# -- statistics ----------------------------------------------------------------------------------------


def _wholeness(known: Mask, mode: int) -> float:
    """Share of missing entries in fibres of which all is missing, beyond chance: 0 for independent gaps.

    0 also where fibres of unequal rates explain it, or so few entries that chance does.
    """
    d, rate = known.shape[mode], 1.0 - float(known.mean())
    if d < 2 or not 0.0 < rate < 1.0:
        return 0.0
    counts = known.sum(mode, dtype=np.int64).reshape(-1)  # in every fibre
    chance = float(rate ** (d - 1))
    share = float((counts == 0).sum()) / (rate * len(counts))
    # Pairs of the rarer kind in one fibre: how many there are, and how many chance gives.
    rare, fewer = (counts, 1.0 - rate) if rate > 0.5 else (d - counts, rate)
    pairs, expected = float((rare * (rare - 1)).sum()) / 2, len(counts) * d * (d - 1) / 2 * fewer**2
    correlation = (pairs - expected) / (len(counts) * d * (d - 1) / 2 * fewer * (1.0 - fewer))
    if correlation < CORRELATION or pairs - expected < DEVIATIONS * np.sqrt(expected + 1.0):
        return 0.0
    return (share - chance) / (1.0 - chance)


def _modes_of_runs(known: Mask) -> tuple[int, ...]:
    """Modes along which neighbours are alike more than entries of one fibre are."""
    rate = float(known.mean())
    if not 0.0 < rate < 1.0:
        return ()
    likeness = {k: _likeness(known, k) for k in range(known.ndim) if known.shape[k] > 2}
    fewer, found = min(rate, 1.0 - rate), []
    for k, more in likeness.items():
        # What is alike along other modes counts several times.
        copies = np.prod([(1 + v) / (1 - v) for j, v in likeness.items() if j != k and 0 < v < 1])
        pairs = known.size * (1 - 1 / known.shape[k])
        deviation = np.sqrt(pairs * fewer**2 + 1.0) * np.sqrt(copies)
        if more >= RUNS and pairs * fewer * (1 - fewer) * more >= DEVIATIONS * deviation:
            found.append(k)
    return tuple(found)


def _likeness(known: Mask, mode: int) -> float:
    """Correlation of neighbours along a mode, less that of any two entries of a fibre.

    What slices have in common is taken out where there is more than one entry in a slice: popular items that
    stand together are no runs.
    """
    x = np.moveaxis(known, mode, 0).reshape(known.shape[mode], -1).astype(np.float32)
    x -= x.mean(1, keepdims=True) if x.shape[1] > 1 else x.mean()
    squares = float((x**2).sum())
    if squares <= 1e-6 * x.size:
        return 0.0
    d = len(x)
    near = float((x[1:] * x[:-1]).sum()) / squares * d / (d - 1)
    far = (float((x.sum(0) ** 2).sum()) / squares - 1.0) / (d - 1)
    return near - far


def _bounds_of_runs(known: Mask, mode: int) -> tuple[Any, Any]:
    """Positions of the last known entry up to here, and the next from here; -1 and the size for none."""
    d = known.shape[mode]
    line = np.arange(d, dtype=np.int32).reshape([-1 if k == mode else 1 for k in range(known.ndim)])
    before = np.maximum.accumulate(np.where(known, line, np.int32(-1)), mode)
    after = np.flip(np.minimum.accumulate(np.flip(np.where(known, line, np.int32(d)), mode), mode), mode)
    return before, after


def _run_lengths(known: Mask, mode: int) -> Any:
    before, after = _bounds_of_runs(known, mode)
    return after - before - 1


def _is_tail(known: Mask, mode: int) -> Mask:
    """Missing entries after which nothing is known along a mode, though something is before."""
    before, after = _bounds_of_runs(known, mode)
    return np.asarray(~known & (after == known.shape[mode]) & (before >= 0))


def _tail_share(known: Mask, mode: int) -> float:
    return float(_is_tail(known, mode).sum()) / max(1, int((~known).sum()))


def _choose(from_: Any, number: int, generator: torch.Generator) -> Any:
    return from_[torch.randperm(len(from_), generator=generator)[: max(0, number)].numpy()]
