"""A tensor that is read block by block, opened: who reads it, its norm, and its small core if it has one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..data.arrays import compute_dtype, scale_for
from ..data.blocks import Blocks, BlockSource, Form, Partial, Reducer
from ..data.devices import GPU_ENTRIES, choose_device, free_memory
from ..errors import DataError
from ..network import TensorNetwork
from ..objectives import BlockedLeastSquares, CompressedLeastSquares, Model, SquaredResidual, Survey
from ..objectives.blocks import COPIES_OF_A_BLOCK
from ..objectives.sketch import SECOND_SKETCH, SKETCH, Compression, Ranges, find_core, find_ranges
from .request import Target
from .task import DOUBLE_ENTRIES

__all__ = ["Opened", "SmallCore", "open_blocks"]

# Numbers of double precision per entry of the core while it is cut and searched.
CORE_COPIES = 8
# Share of the error target that compressing the modes may take: errors add up as squares, so the search on
# the core is left with 0.87 of it. Without a target, what it may leave out.
COMPRESSION_SHARE = 0.5
COMPRESSION_ERROR = 1e-3


@dataclass(frozen=True)
class SmallCore:
    """A tensor by its core in bases of its modes.

    Attributes
    ----------
    objective
        Least squares on the core.
    about
        What a run needs to know, with numbers where the core is.
    """

    objective: CompressedLeastSquares
    about: Target
    core: torch.Tensor
    bases: list[torch.Tensor | None]
    rest: float

    @property
    def info(self) -> dict[str, Any]:
        """What to note of the run."""
        ranks = [int(n) for n in self.core.shape]
        return {"multilinear_ranks": ranks, "left_out": self.rest / self.objective.norm}


@dataclass(frozen=True)
class Opened:
    """A tensor that was read once.

    Attributes
    ----------
    ranges
        Leading directions of its modes, where asked for.
    """

    reducer: Reducer
    about: Target
    norm: float
    limit: float
    ranges: Ranges | None

    @property
    def is_zero(self) -> bool:
        """Whether all entries are zero."""
        return self.norm == 0.0

    def whole(self) -> BlockedLeastSquares:
        """Least squares on the blocks."""
        return BlockedLeastSquares(self.reducer, self.norm)

    def compressed(self, max_error: float | None) -> SmallCore | None:
        """The tensor in bases of its modes; from a larger sketch where the first leaves out too much.

        None when the core would not fit in memory, or too much would be left out.
        """
        if self.ranges is None:
            return None
        allowed = COMPRESSION_SHARE * (max_error or 0.0) or COMPRESSION_ERROR
        entries = self.limit / (8 * CORE_COPIES)
        small = find_core(self.reducer, self.ranges, self.norm, allowed, entries)
        if small is None and max(self.reducer.source.shape) > SKETCH:
            larger = find_ranges(self.reducer, SECOND_SKETCH)
            small = find_core(self.reducer, larger, self.norm, allowed, entries)
        return None if small is None else self._on_core(small)

    def _on_core(self, small: Compression) -> SmallCore:
        about, device = self.about, self.about.probe.device
        if small.core.numel() < GPU_ENTRIES:
            device = torch.device("cpu")
            about = replace(about, probe=about.probe.cpu())
        dtype = about.probe.dtype
        core = small.core.to(device=device, dtype=dtype)
        bases = [None if u is None else u.to(device=device, dtype=dtype) for u in small.bases]
        return SmallCore(CompressedLeastSquares(core, bases, small.rest), about, core, bases, small.rest)

    def info(self, method: str) -> dict[str, Any]:
        """What was read for a run."""
        reducer = self.reducer
        return {
            "method": method,
            "passes": reducer.passes,
            "bytes_per_pass": math.prod(reducer.source.shape) * reducer.source.itemsize,
            "blocks": len(reducer.boxes),
        }


def probe_of(source: BlockSource, dtype: torch.dtype | None) -> torch.Tensor:
    """A number of the dtype to compute in, where the tensor is; refuses tensors without entries."""
    shape = source.shape
    if not shape or math.prod(shape) == 0:
        raise DataError(f"the tensor is empty or a single number: its shape is {shape}")
    return torch.empty((), dtype=compute_dtype(source.dtype, dtype), device=Blocks(source).device)


def open_blocks(
    source: BlockSource,
    probe: torch.Tensor,
    *,
    device: torch.device | str | None,
    memory_limit: float | None,
    client: Any,
    threads: int | None,
    sketch: bool,
) -> Opened:
    """Choose who reads the blocks, and read them once."""
    where = choose_device(device, probe.expand(source.shape))
    limit = free_memory(where) if memory_limit is None else memory_limit
    form = Form(str(probe.dtype).removeprefix("torch."), None if where.type == "cpu" else str(where))
    reducer = Blocks(source, client=client, threads=threads).open(form, limit, COPIES_OF_A_BLOCK + 1)
    reducer, survey, ranges = _survey(reducer, sketch)
    norm = math.sqrt(sum(v for k, v in survey.sums.items() if _is_squares(k)))
    numbers = _fingerprint(survey, probe.dtype, where)
    about = Target(numbers, where, reducer.form.scale, lambda network: _verified(reducer, network, norm))
    return Opened(reducer, about, norm, limit, ranges)


def _survey(reducer: Reducer, sketch: bool) -> tuple[Reducer, Partial, Ranges | None]:
    """First pass: norm, largest entry, what is not finite, and the ranges of the modes where asked for.

    Made again with scaled data in the rare case that squares would overflow or vanish.
    """
    while True:
        ranges = find_ranges(reducer) if sketch else None
        found = reducer.reduce(Survey()) if ranges is None else ranges.survey
        if not math.isfinite(found.largest):
            bad = [k[1] for k, v in found.sums.items() if _is_squares(k) and not math.isfinite(v)]
            name = reducer.source.name(bad[0]) if bad else "a block"
            raise DataError(
                f"{len(bad)} blocks of {reducer.source.label} have entries that are not finite; the first is "
                f"{name}. Remove or fill them first"
            )
        scale = scale_for(found.largest)
        if scale == 1.0:
            return reducer, found, ranges
        reducer = reducer.with_form(replace(reducer.form, scale=scale * reducer.form.scale))


def _is_squares(key: Any) -> bool:
    return isinstance(key, tuple) and key[0] == "squares"


def _fingerprint(found: Partial, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers that tell one tensor from another: the norms of its blocks."""
    norms = [math.sqrt(v) for k, v in found.sums.items() if _is_squares(k)]
    return torch.tensor(norms, dtype=dtype, device=device)


def _verified(reducer: Reducer, network: TensorNetwork, norm: float) -> float:
    """Relative error from the residual, in one pass that also checks that the data is still the same."""
    objective = BlockedLeastSquares(reducer, norm)
    double = {"float32": "float64", "complex64": "complex128"}
    if math.prod(reducer.source.shape) <= DOUBLE_ENTRIES and reducer.form.dtype in double:
        form = replace(reducer.form, dtype=double[reducer.form.dtype])
        objective = BlockedLeastSquares(reducer.with_form(form), norm)
    model = Model(network.structure, tuple(objective.to_arrays(network)))
    sums = objective.reducer.reduce(SquaredResidual((model,))).sums
    if abs(sums["data"] - norm**2) > 1e-5 * norm**2:
        raise DataError(
            f"{reducer.source.label} changed while it was read: its norm was {norm:.6g} and is now "
            f"{math.sqrt(sums['data']):.6g}. Run again on data that nobody writes to"
        )
    return math.sqrt(sums["residual"] / sums["data"])
