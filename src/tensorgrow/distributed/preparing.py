"""From partitions as they are stored to parts that completion computes with."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data import as_target, compute_dtype, free_memory, scale_for
from ..errors import DataError, DataWarning, OptionError
from ..holdout import (
    FEWEST_HELD_OUT,
    FEWEST_TO_SPLIT,
    as_share,
    drawn_by_position,
    is_asked,
    position_codes,
)
from ..objectives import Census, EntryPart, ObservedLeastSquares
from ..observations import differing
from .cluster import active_client
from .partitions import Columns, Listed, PartitionedObservations, loader, read_partition
from .parts import ClientParts, ThreadParts

__all__ = ["Prepared", "prepare_parts"]

Array = Any

# Numbers of 8 bytes per entry of a tensor of order p while it is computed with, without rows: A p + B.
ENTRY_WORDS = (5, 6)
# Share of the memory limit that entries may take to be kept in this process.
KEEP_SHARE = 0.5


@dataclass(frozen=True)
class Prepared:
    """Parts that are ready, and what is known of all entries together."""

    parts: ThreadParts | ClientParts
    shape: tuple[int, ...]
    dtype: torch.dtype
    census: Census
    census_of_all: Census
    scale: float
    weight_scale: float
    codes: tuple[int, int]
    is_zero: bool


def prepare_parts(
    data: PartitionedObservations,
    columns: Columns,
    validation: Any,
    dtype: torch.dtype | None,
    device: torch.device,
    seed: int,
    memory_limit: float | None,
) -> Prepared:
    """Read all partitions, check them, choose what is held out and keep them where they are computed with."""
    raw = _opened(data, columns)
    found: list[Surveyed] = list(raw.map(_survey))
    counts = [s.count for s in found]
    total = sum(counts)
    if total == 0:
        raise DataError(
            "there are no observations with a positive weight in any partition; at least one is needed"
        )
    _warn_of_differences(found)
    shape = data.shape or tuple(int(n) + 1 for n in np.max([s.last for s in found if s.count], axis=0))
    if isinstance(raw, ThreadParts) and _kept(total, len(shape), memory_limit):
        raw.keep()
    chosen = [k for k, n in enumerate(counts) if n]
    stored = np.result_type(*(s.dtype for s in found if s.count))
    computed = compute_dtype(stored, dtype)
    largest, heaviest = max(s.largest for s in found), max(s.heaviest for s in found)
    plan = PartPlan(
        shape,
        str(computed).removeprefix("torch."),
        str(device),
        scale_for(largest),
        scale_for(heaviest) if heaviest else 1.0,
        total,
        _hold_out(raw, shape, total, columns, validation, seed),
    )
    parts = raw.made(plan, chosen)
    surveyed = list(parts.map(_census))
    census, everything = _censuses(surveyed)
    _warn_of_gaps(shape, everything)
    codes = tuple(sum(c[k] for _, _, c in surveyed) % 2**64 for k in (0, 1))
    return Prepared(
        parts,
        shape,
        computed,
        census,
        everything,
        plan.scale,
        plan.weight_scale,
        (codes[0], codes[1]),
        largest == 0.0,
    )


def _opened(data: PartitionedObservations, columns: Columns) -> ThreadParts | ClientParts:
    client = active_client() if data.client is None and data.threads is None else data.client
    if client is None:
        threads = os.cpu_count() or 1 if data.threads is None else data.threads
        loads = [loader(p, columns, data.shape, n) for p, n in zip(data.pieces, data.names)]
        return ThreadParts(loads, threads, keep=False)
    from dask.delayed import delayed

    read = delayed(read_partition, pure=False)
    tasks = [read(p, columns, data.shape, n) for p, n in zip(data.pieces, data.names)]
    return ClientParts.load(client, tasks, data.names)


def _kept(total: int, order: int, memory_limit: float | None) -> bool:
    limit = free_memory(torch.device("cpu")) if memory_limit is None else memory_limit
    words = ENTRY_WORDS[0] * order + ENTRY_WORDS[1]
    return 8 * words * total <= KEEP_SHARE * limit


# -- what partitions are asked -------------------------------------------------------------------------


@dataclass(frozen=True)
class Surveyed:
    """What is to be known of a partition before it can be used."""

    count: int
    last: Array
    dtype: Any
    largest: float
    heaviest: float
    differ: int


def _survey(part: Listed) -> Surveyed:
    if len(part) == 0:
        return Surveyed(0, None, None, 0.0, 0.0, 0)
    parts = part.values.view(part.values.real.dtype)
    heaviest = 0.0 if part.weights is None else float(part.weights.max())
    largest = float(np.abs(parts).max())
    return Surveyed(len(part), part.indices.max(0), part.values.dtype, largest, heaviest, part.differ)


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
        return _by_slice(part.indices[~held], self.shape), _by_slice(part.indices[held], self.shape)


def _by_slice(indices: Array, shape: tuple[int, ...]) -> list[Array]:
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


def _hold_out(
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


# -- parts ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartPlan:
    """How a partition becomes a part; on the device where it is computed with."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    scale: float
    weight_scale: float
    rows: int
    hold_out: HoldOut

    def __call__(self, part: Listed) -> EntryPart:
        """The part."""
        values = as_target(torch.from_numpy(np.array(part.values)), getattr(torch, self.dtype))
        values = (values if self.scale == 1.0 else values / self.scale).to(self.device)
        weights = None
        if part.weights is not None:
            weights = torch.from_numpy(part.weights / self.weight_scale).to(values.real.dtype).to(self.device)
        held_out = torch.from_numpy(self.hold_out(part)).to(self.device)
        objective = ObservedLeastSquares(
            torch.from_numpy(np.array(part.indices)).to(self.device),
            values,
            self.shape,
            weights=weights,
            held_out=held_out if bool(held_out.any()) else None,
            rows=self.rows,
        )
        return EntryPart(objective)


def _census(part: EntryPart) -> tuple[list[Array], list[Array], tuple[int, int]]:
    """Fitted and held-out entries by mode and slice, and codes of all and of held-out positions."""
    fitted, held_out = part.positions()
    codes = [int(position_codes(a, 1).sum(dtype=np.uint64)) for a in (fitted, held_out)]
    return _by_slice(fitted, part.dims), _by_slice(held_out, part.dims), (sum(codes), codes[1])


def _censuses(found: list[Any]) -> tuple[Census, Census]:
    """Of the fitted entries, and of all."""
    fitted = [sum(f[k] for f, _, _ in found) for k in range(len(found[0][0]))]
    held = [sum(h[k] for _, h, _ in found) for k in range(len(fitted))]
    sizes = [int(f[0].sum() + h[0].sum()) for f, h, _ in found]
    count, held_out = int(fitted[0].sum()), int(held[0].sum())
    return (
        Census(count, held_out, tuple(fitted), max(sizes)),
        Census(count + held_out, 0, tuple(f + h for f, h in zip(fitted, held)), max(sizes)),
    )


# -- warnings ------------------------------------------------------------------------------------------


def _warn_of_differences(found: list[Surveyed]) -> None:
    differ = sum(s.differ for s in found)
    if differ:
        warnings.warn(differing(differ), DataWarning, stacklevel=6)


def _warn_of_gaps(shape: tuple[int, ...], everything: Census) -> None:
    empty = [int((counts == 0).sum()) for counts in everything.slices]
    gaps = [f"{n} of {d} along mode {k}" for k, (n, d) in enumerate(zip(empty, shape)) if n]
    if gaps:
        warnings.warn(
            f"slices without any observation ({', '.join(gaps)}) are predicted as the mean of the others",
            DataWarning,
            stacklevel=6,
        )
    least = sum(shape) - len(shape) + 1
    if everything.fitted < least:
        warnings.warn(
            f"{everything.fitted} observations of a tensor of shape {shape}: even a network of rank one has "
            f"{least} degrees of freedom, so that the result is mostly the ridge's choice",
            DataWarning,
            stacklevel=6,
        )
