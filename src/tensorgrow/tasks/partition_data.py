"""From partitions as they are stored to parts that completion computes with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ..data.arrays import as_target, compute_dtype, exponent_for, times_power
from ..data.fingerprint import fingerprint_entries, fingerprint_positions
from ..data.holdout import Split, warn_of_empty_slices, warn_of_few
from ..data.observations import warn_of_differences
from ..data.partitions.holdout import HeldOutRows, count_slices, hold_out_rows
from ..data.partitions.parts import ClientParts, ThreadParts, open_parts
from ..data.partitions.rows import Columns, Rows
from ..data.partitions.tables import PartitionedObservations
from ..errors import DataError
from ..objectives import Census, EntryPart, ObservedLeastSquares
from ..objectives.entries import index_bytes
from ..structure import Structure
from .request import Request

Array = Any

# Share of the memory limit that entries may take to stay in this process.
KEEP_SHARE = 0.5


@dataclass(frozen=True)
class Prepared:
    """Parts that are ready, and what is known of all entries together.

    Attributes
    ----------
    census, census_of_all
        Numbers of fitted entries, and of all.
    codes
        Fingerprints of all entries, and of the positions of held-out ones.
    smallest
        The smallest value, or part of a complex one, in the units of the parts.
    """

    parts: ThreadParts | ClientParts
    plan: PartPlan
    census: Census
    census_of_all: Census
    codes: tuple[int, int]
    is_zero: bool
    smallest: float


def prepare_parts(
    data: PartitionedObservations,
    columns: Columns,
    validation: Any,
    request: Request,
    device: torch.device,
    seed: int,
) -> Prepared:
    """Read all partitions, check them, choose what is held out and move them to where they are used."""
    raw = open_parts(data, columns)
    surveys: list[Survey] = list(raw.map(_survey))
    full = [s for s in surveys if s.count]
    total = sum(s.count for s in full)
    if total == 0:
        raise DataError(
            "there are no observations with a positive weight in any partition; at least one is needed"
        )
    warn_of_differences(sum(s.differ for s in full))
    last, labels = np.max([s.last for s in full], axis=0), columns.labels or (None,) * len(columns.index)
    shape = data.shape or tuple(int(n) + 1 if known is None else len(known) for n, known in zip(last, labels))
    request.check_modes(shape)
    needed = index_bytes(Structure.rank_one(shape), total)
    if isinstance(raw, ThreadParts) and needed <= KEEP_SHARE * request.memory(torch.device("cpu")):
        raw.keep()
    largest, heaviest = max(s.largest for s in full), max(s.heaviest for s in full)
    plan = PartPlan(
        shape,
        compute_dtype(np.result_type(*(s.dtype for s in full)), request.dtype),
        device,
        exponent_for(largest),
        exponent_for(heaviest),
        total,
        hold_out_rows(raw, shape, total, columns.held_out or Split.parse(validation), seed),
    )
    parts = raw.transform(plan, [k for k, s in enumerate(surveys) if s.count])
    counts = list(parts.map(_count))
    fitted = [sum(slices) for slices in zip(*(c.fitted for c in counts))]
    held_out = [sum(slices) for slices in zip(*(c.held_out for c in counts))]
    number, number_held = int(fitted[0].sum()), int(held_out[0].sum())
    sizes = tuple(s.count for s in full)
    census = Census(number, number_held, tuple(fitted), sizes)
    slices = tuple(f + h for f, h in zip(fitted, held_out))
    warn_of_empty_slices(slices)
    warn_of_few(number + number_held, shape)
    return Prepared(
        parts,
        plan,
        census,
        Census(number + number_held, 0, slices, sizes),
        (sum(c.code for c in counts) % 2**64, sum(c.held_out_code for c in counts) % 2**64),
        largest == 0.0,
        times_power(min(s.smallest for s in full), -plan.exponent),
    )


@dataclass(frozen=True)
class Survey:
    """What must be known of a partition before it can be used."""

    count: int
    last: Array = None
    dtype: Any = None
    largest: float = 0.0
    smallest: float = 0.0
    heaviest: float = 0.0
    differ: int = 0


def _survey(part: Rows) -> Survey:
    if len(part) == 0:
        return Survey(0)
    parts = part.values.view(part.values.real.dtype)
    heaviest = 0.0 if part.weights is None else float(part.weights.max())
    extent = float(np.abs(parts).max()), float(parts.min())
    return Survey(len(part), part.indices.max(0), part.values.dtype, *extent, heaviest, part.differ)


@dataclass(frozen=True)
class PartPlan:
    """Turns a partition into a part, on the device where it is used."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    exponent: int
    weight_exponent: int
    rows: int
    hold_out: HeldOutRows

    def __call__(self, part: Rows) -> EntryPart:
        values = as_target(torch.from_numpy(np.array(part.values)), self.dtype)
        values = times_power(values, -self.exponent).to(self.device)
        weights = None
        if part.weights is not None:
            weights = times_power(torch.from_numpy(np.array(part.weights)), -self.weight_exponent)
            weights = weights.to(values.real.dtype).to(self.device)
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


class Counts(NamedTuple):
    """Entries of a part by mode and slice, and codes of all and of the positions of held-out ones."""

    fitted: list[Array]
    held_out: list[Array]
    code: int
    held_out_code: int


def _count(part: EntryPart) -> Counts:
    fitted, held_out = part.positions()
    code = fingerprint_entries(part.all_positions(), *part.numbers())
    held_out_code = fingerprint_positions(held_out)
    return Counts(count_slices(fitted, part.dims), count_slices(held_out, part.dims), code, held_out_code)
