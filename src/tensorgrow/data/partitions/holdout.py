"""Which entries are held out, where no process sees all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...errors import OptionError
from ..fingerprint import position_codes
from ..holdout import Split, draw_by_position
from .parts import ClientParts, ThreadParts
from .rows import Rows

Array = Any
Parts = ThreadParts | ClientParts


@dataclass(frozen=True)
class HeldOutRows:
    """Finds the held-out entries of a partition, as a mask."""

    share: float  # of the entries, roughly
    by_column: bool = False  # a column says which entries are held out; `share` is ignored
    seed: int = 0
    restored: Array | None = None  # positions that are fitted although drawn: their slices have no others

    def __call__(self, part: Rows) -> Array:
        if self.by_column:
            return part.held_out.copy()
        if self.share == 0.0:
            return np.zeros(len(part), dtype=bool)
        held = draw_by_position(part.indices, self.share, self.seed)
        if self.restored is not None and held.any():
            held &= ~np.isin(position_codes(part.indices, 0), position_codes(self.restored, 0))
        return held


def count_slices(indices: Array, shape: tuple[int, ...]) -> list[Array]:
    """Count listed entries by mode and slice."""
    return [np.bincount(column, minlength=d) for column, d in zip(indices.T, shape)]


def _count_both(find: HeldOutRows, shape: tuple[int, ...], part: Rows) -> tuple[list[Array], list[Array]]:
    """Count the fitted and the held-out entries of a partition by mode and slice."""
    held = find(part)
    return count_slices(part.indices[~held], shape), count_slices(part.indices[held], shape)


def _find_first(find: HeldOutRows, mode: int, slices: Array, part: Rows) -> dict[int, tuple[int, ...]]:
    """Find the first held-out position of some slices; entries of a partition are in order already."""
    where = part.indices[find(part) & np.isin(part.indices[:, mode], slices)]
    first: dict[int, tuple[int, ...]] = {}
    for row in where.tolist():
        first.setdefault(row[mode], tuple(row))
    return first


def hold_out_rows(
    parts: Parts, shape: tuple[int, ...], total: int, split: Split | str, seed: int
) -> HeldOutRows:
    """Decide which of the `total` entries are held out; every slice keeps an entry to fit.

    Instead of a split, the name of the column that says what is held out.
    """
    if isinstance(split, str):
        by_column = HeldOutRows(0.0, by_column=True)
        fitted, held = _total_counts(parts, by_column, shape)
        if not fitted[0].any() or not held[0].any():
            raise OptionError(
                f"the column {split!r} holds out {held[0].sum()} of {total} observations; some "
                "must be held out and some be left to fit"
            )
        return by_column
    if split.share is None:
        raise OptionError(
            "validation of entries in partitions must be a share, the name of a column, or False; not "
            f"{type(split.mask).__name__}"
        )
    if split.share:
        share = split.share_of(total)
        drawn = _restore_slices(parts, HeldOutRows(share, seed=seed), shape) if share else None
        if drawn is not None:
            return drawn
        split.warn_of_none(total)
    return HeldOutRows(0.0)


def _total_counts(parts: Parts, find: HeldOutRows, shape: tuple[int, ...]) -> tuple[list[Array], list[Array]]:
    fitted, held = ([np.zeros(d, dtype=np.int64) for d in shape] for _ in range(2))
    for mine in parts.map(partial(_count_both, find, shape)):
        for totals, counts in zip((fitted, held), mine):
            for whole, some in zip(totals, counts):
                whole += some
    return fitted, held


def _restore_slices(parts: Parts, find: HeldOutRows, shape: tuple[int, ...]) -> HeldOutRows | None:
    """Restore held-out entries of slices that have no others; None where nothing stays held out."""
    fitted, held = _total_counts(parts, find, shape)
    restored: list[tuple[int, ...]] = []
    for mode in range(len(shape)):
        bare = np.flatnonzero((fitted[mode] == 0) & (held[mode] > 0))
        if len(bare) == 0:
            continue
        first: dict[int, tuple[int, ...]] = {}
        for some in parts.map(partial(_find_first, find, mode, bare)):
            for k, position in some.items():
                first[k] = min(position, first.get(k, position))
        for position in first.values():
            for m, k in enumerate(position):
                fitted[m][k] += 1
                held[m][k] -= 1
        restored += first.values()
        find = replace(find, restored=np.array(restored, dtype=np.int64))
    return find if held[0].sum() > 0 else None
