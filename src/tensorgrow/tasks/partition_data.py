"""From partitions as they are stored to parts that completion computes with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data.arrays import as_target, compute_dtype, scale_for
from ..data.fingerprint import fingerprint_positions
from ..data.holdout import Split, warn_of_empty_slices, warn_of_few
from ..data.observations import warn_of_differences
from ..data.partitions.holdout import HeldOutRows, count_slices, hold_out_rows
from ..data.partitions.parts import ClientParts, ThreadParts, open_parts
from ..data.partitions.rows import Columns, Rows
from ..data.partitions.tables import PartitionedObservations
from ..errors import DataError
from ..objectives import Census, EntryPart, ObservedLeastSquares
from .request import Request

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
    request: Request,
    device: torch.device,
    seed: int,
) -> Prepared:
    """Read all partitions, check them, choose what is held out and keep them where they are computed with."""
    raw = open_parts(data, columns)
    found: list[Surveyed] = list(raw.map(_survey))
    counts = [s.count for s in found]
    total = sum(counts)
    if total == 0:
        raise DataError(
            "there are no observations with a positive weight in any partition; at least one is needed"
        )
    warn_of_differences(sum(s.differ for s in found))
    shape = data.shape or tuple(int(n) + 1 for n in np.max([s.last for s in found if s.count], axis=0))
    if isinstance(raw, ThreadParts) and _may_keep(total, len(shape), request):
        raw.keep()
    chosen = [k for k, n in enumerate(counts) if n]
    stored = np.result_type(*(s.dtype for s in found if s.count))
    computed = compute_dtype(stored, request.dtype)
    largest, heaviest = max(s.largest for s in found), max(s.heaviest for s in found)
    plan = PartPlan(
        shape,
        str(computed).removeprefix("torch."),
        str(device),
        scale_for(largest),
        scale_for(heaviest) if heaviest else 1.0,
        total,
        hold_out_rows(raw, shape, total, columns.held_out or Split.parse(validation), seed),
    )
    parts = raw.transform(plan, chosen)
    surveyed = list(parts.map(_census))
    census, everything = _censuses(surveyed)
    warn_of_empty_slices(everything.slices)
    warn_of_few(everything.fitted, shape)
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


def _may_keep(total: int, order: int, request: Request) -> bool:
    """Whether entries may stay in this process between rounds."""
    limit = request.memory(torch.device("cpu"))
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


def _survey(part: Rows) -> Surveyed:
    if len(part) == 0:
        return Surveyed(0, None, None, 0.0, 0.0, 0)
    parts = part.values.view(part.values.real.dtype)
    heaviest = 0.0 if part.weights is None else float(part.weights.max())
    largest = float(np.abs(parts).max())
    return Surveyed(len(part), part.indices.max(0), part.values.dtype, largest, heaviest, part.differ)


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
    hold_out: HeldOutRows

    def __call__(self, part: Rows) -> EntryPart:
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
    codes = [fingerprint_positions(a) for a in (fitted, held_out)]
    return count_slices(fitted, part.dims), count_slices(held_out, part.dims), (sum(codes), codes[1])


def _censuses(found: list[Any]) -> tuple[Census, Census]:
    """Of the fitted entries, and of all."""
    fitted = [sum(f[k] for f, _, _ in found) for k in range(len(found[0][0]))]
    held = [sum(h[k] for _, h, _ in found) for k in range(len(fitted))]
    count, held_out = int(fitted[0].sum()), int(held[0].sum())
    return (
        Census(count, held_out, tuple(fitted)),
        Census(count + held_out, 0, tuple(f + h for f, h in zip(fitted, held))),
    )
