"""Which entries are held out, where no process sees all of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataWarning, OptionError
from ..holdout import FEWEST_HELD_OUT, FEWEST_TO_SPLIT, as_share, drawn_by_position, is_asked, position_codes
from .parts import ClientParts, ThreadParts
from .table_rows import Columns, Listed

__all__ = ["HoldOut", "by_slice", "hold_out_of"]

Array = Any


@dataclass(frozen=True)
class HoldOut:
    """Which entries are held out.

    Attributes
    ----------
    share
        About how many; None where a column says which, or none are.
    given_back
        Positions that are fitted all the same, because a slice has no others.
    """

    share: float | None
    by_column: bool = False
    seed: int = 0
    given_back: Array | None = None

    def __call__(self, part: Listed) -> Array:
        """A mask of the entries of a partition."""
        if self.by_column:
            return part.held_out.copy()
        if self.share is None:
            return np.zeros(len(part), dtype=bool)
        held = drawn_by_position(part.indices, self.share, self.seed)
        if self.given_back is not None and held.any():
            held &= ~np.isin(position_codes(part.indices, 0), position_codes(self.given_back, 0))
        return held


@dataclass(frozen=True)
class SliceCounts:
    """Fitted and held-out entries by mode and slice."""

    hold_out: HoldOut
    shape: tuple[int, ...]

    def __call__(self, part: Listed) -> tuple[list[Array], list[Array]]:
        """Both for one partition."""
        held = self.hold_out(part)
        return by_slice(part.indices[~held], self.shape), by_slice(part.indices[held], self.shape)


def by_slice(indices: Array, shape: tuple[int, ...]) -> list[Array]:
    return [np.bincount(column, minlength=d) for column, d in zip(indices.T, shape)]


@dataclass(frozen=True)
class FirstHeldOut:
    """First held-out position of some slices."""

    hold_out: HoldOut
    mode: int
    slices: Array

    def __call__(self, part: Listed) -> dict[int, tuple[int, ...]]:
        """By slice; entries are in order already."""
        where = part.indices[self.hold_out(part) & np.isin(part.indices[:, self.mode], self.slices)]
        found: dict[int, tuple[int, ...]] = {}
        for row in where.tolist():
            found.setdefault(row[self.mode], tuple(row))
        return found


def hold_out_of(
    raw: ThreadParts | ClientParts,
    shape: tuple[int, ...],
    total: int,
    columns: Columns,
    validation: Any,
    seed: int,
) -> HoldOut:
    """Choose what is held out, and see to it that every slice keeps an entry."""
    if columns.held_out is not None:
        by_column = HoldOut(None, by_column=True)
        fitted, held = _slice_counts(raw, by_column, shape)
        if not fitted[0].any() or not held[0].any():
            raise OptionError(
                f"the column {columns.held_out!r} holds out {held[0].sum()} of {total} observations; some "
                "must be held out and some be left to fit"
            )
        return by_column
    share = as_share(validation) if is_asked(validation) else 0.0
    if not share:
        return HoldOut(None)
    if total >= FEWEST_TO_SPLIT:
        share = max(share, min(FEWEST_HELD_OUT, total // 5) / total)
        chosen = _keep_slices(raw, HoldOut(share, seed=seed), shape)
        if chosen is not None:
            return chosen
    what = (
        f"only {total} observations" if total < FEWEST_TO_SPLIT else "every slice needs its only observation"
    )
    warnings.warn(
        f"{what}: none is held out, and the network stays at rank one unless a limit is given",
        DataWarning,
        stacklevel=6,
    )
    return HoldOut(None)


def _slice_counts(
    raw: ThreadParts | ClientParts, hold_out: HoldOut, shape: tuple[int, ...]
) -> tuple[list[Array], list[Array]]:
    fitted, held = ([np.zeros(d, dtype=np.int64) for d in shape] for _ in range(2))
    for mine in raw.map(SliceCounts(hold_out, shape)):
        for totals, counts in zip((fitted, held), mine):
            for whole, some in zip(totals, counts):
                whole += some
    return fitted, held


def _keep_slices(raw: ThreadParts | ClientParts, chosen: HoldOut, shape: tuple[int, ...]) -> HoldOut | None:
    """Give back held-out entries that a slice cannot do without; None when nothing is left."""
    fitted, held = _slice_counts(raw, chosen, shape)
    back: list[tuple[int, ...]] = []
    for mode in range(len(shape)):
        bare = np.flatnonzero((fitted[mode] == 0) & (held[mode] > 0))
        if len(bare) == 0:
            continue
        first: dict[int, tuple[int, ...]] = {}
        for found in raw.map(FirstHeldOut(chosen, mode, bare)):
            for k, position in found.items():
                first[k] = min(position, first.get(k, position))
        for position in first.values():
            for m, k in enumerate(position):
                fitted[m][k] += 1
                held[m][k] -= 1
        back += first.values()
        chosen = HoldOut(chosen.share, seed=chosen.seed, given_back=np.array(back, dtype=np.int64))
    return chosen if held[0].sum() > 0 else None
