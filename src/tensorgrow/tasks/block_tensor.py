"""Tensors that are read block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ..data.arrays import compute_dtype, scale_for
from ..data.blocks import Blocks, Form, Partial, Reducer, as_source
from ..data.devices import GPU_ENTRIES, check_memory, choose_device, one_thread
from ..errors import DataError, OptionError
from ..network import TensorNetwork
from ..objectives import (
    BlockedLeastSquares,
    CompressedLeastSquares,
    LeastSquares,
    Model,
    SquaredResiduals,
    Survey,
)
from ..objectives.blocks import COPIES_OF_A_BLOCK
from ..objectives.sketch import SECOND_SKETCH, SKETCH, Ranges, find_core, find_ranges
from ..search import CutBounds
from ..structure import Structure
from .request import Request
from .tensor_data import DOUBLE_ENTRIES, TensorData

# Copies of the tensor that a decomposition in memory takes: the data, another order, the residual, products.
COPIES_IN_MEMORY = 5
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
    rest
        Norm of what the core leaves out.
    """

    objective: CompressedLeastSquares
    core: torch.Tensor
    bases: list[torch.Tensor | None]
    rest: float

    def bounds(self, max_error: float) -> CutBounds:
        """Lower bounds on the ranks from the spectra of the core."""
        allowed = (max_error * self.objective.norm) ** 2 - self.rest**2
        inside = float(torch.linalg.vector_norm(self.core))
        return CutBounds(self.core, math.sqrt(allowed) / inside, bases=self.bases)

    @property
    def info(self) -> dict[str, Any]:
        """What to note of the run."""
        ranks = [int(n) for n in self.core.shape]
        return {"multilinear_ranks": ranks, "left_out": self.rest / self.objective.norm}


class BlockTensor(TensorData):
    """A tensor that is read block by block; nothing is read before it is needed."""

    def __init__(self, x: Any, request: Request) -> None:
        self.request = request
        self.blocks = x if isinstance(x, Blocks) else Blocks(x)
        self.shape = self.blocks.shape
        self._like = _probe(self.blocks, request.dtype)
        self.home = choose_device(request.device, self._like.expand(self.shape))
        self._small: SmallCore | None = None

    @cached_property
    def memory_limit(self) -> float:
        return self.request.memory(self.home)

    @cached_property
    def _first_pass(self) -> tuple[Reducer, list[float], Ranges | None]:
        """Who reads the blocks, the squared norm of each, and the leading directions of the modes."""
        device = None if self.home.type == "cpu" else str(self.home)
        form = Form(str(self._like.dtype).removeprefix("torch."), device)
        reducer = self.blocks.open(form, self.memory_limit, COPIES_OF_A_BLOCK + 1)
        reducer, survey, ranges = _survey(reducer, self.blocks.method != "stream")
        return reducer, [v for k, v in survey.sums.items() if _is_squares(k)], ranges

    @property
    def reducer(self) -> Reducer:
        """Who reads the blocks."""
        return self._first_pass[0]

    @cached_property
    def norm(self) -> float:
        """Of the tensor."""
        return math.sqrt(sum(self._first_pass[1]))

    @property
    def probe(self) -> torch.Tensor:
        if "_first_pass" not in self.__dict__:
            return self._like
        device = self.home if self._small is None else self._small.core.device
        norms = [math.sqrt(v) for v in self._first_pass[1]]
        return torch.tensor(norms, dtype=self._like.dtype, device=device)

    @property
    def scale(self) -> float:
        return self.reducer.form.scale

    @property
    def is_zero(self) -> bool:
        return self.norm == 0.0

    @cached_property
    def whole(self) -> BlockedLeastSquares:
        """Least squares on the blocks."""
        return BlockedLeastSquares(self.reducer, self.norm)

    def _compress(self) -> SmallCore | None:
        """The tensor in bases of its modes; from a larger sketch where the first leaves out too much.

        None when the core would not fit in memory, or too much would be left out.
        """
        reducer, _, ranges = self._first_pass
        if ranges is None:
            return None
        allowed = COMPRESSION_SHARE * (self.request.limits.max_error or 0.0) or COMPRESSION_ERROR
        entries = self.memory_limit / (8 * CORE_COPIES)
        small = find_core(reducer, ranges, self.norm, allowed, entries)
        if small is None and max(self.shape) > SKETCH:
            larger = find_ranges(reducer, SECOND_SKETCH)
            small = find_core(reducer, larger, self.norm, allowed, entries)
        if small is None:
            return None
        device = torch.device("cpu") if small.core.numel() < GPU_ENTRIES else self.home
        core = small.core.to(device=device, dtype=self._like.dtype)
        bases = [None if u is None else u.to(device=device, dtype=self._like.dtype) for u in small.bases]
        self._small = SmallCore(CompressedLeastSquares(core, bases, small.rest), core, bases, small.rest)
        return self._small

    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        small, error = self._compress(), self.request.limits.max_error
        if small is not None:
            return small.objective, small.bounds(error) if self.wants_bounds and error else None
        if self.blocks.method == "compress":
            raise OptionError(
                "method='compress', but the modes do not compress: the core would not fit in the memory "
                "limit or leave out too much. Use method='stream', or a larger max_error or memory_limit"
            )
        what = f"streaming a tensor of shape {self.shape}"
        check_memory(self.whole.memory_needed(first), self.memory_limit, what)
        return self.whole, None

    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        small, needed = self._compress(), self.whole.memory_needed(structure, pairs=False)
        if small is None:
            what = f"streaming {structure.num_parameters:,} parameters"
            check_memory(needed, self.memory_limit, what)
            return ((self.whole, 0.0),)
        core = (small.objective, small.rest)
        return (core, (self.whole, 0.0)) if needed <= self.memory_limit else (core,)

    def error(self, network: TensorNetwork) -> float:
        return _verify(self.reducer, network, self.norm)

    def about(self) -> Mapping[str, object]:
        small, reducer = self._small, self.reducer
        return {
            "method": "stream" if small is None else "compress",
            "passes": reducer.passes,
            "bytes_per_pass": math.prod(self.shape) * reducer.source.itemsize,
            "blocks": len(reducer.boxes),
            **({} if small is None else small.info),
        }

    def threads(self) -> AbstractContextManager[None]:
        return one_thread()


def fits_in_memory(x: Any, request: Request) -> bool:
    """Whether a lazy array can be decomposed in memory."""
    source = as_source(x)
    item = torch.empty((), dtype=compute_dtype(source.dtype, request.dtype)).element_size()
    return COPIES_IN_MEMORY * item * math.prod(source.shape) <= request.memory(torch.device("cpu"))


def _probe(blocks: Blocks, dtype: torch.dtype | None) -> torch.Tensor:
    """A number of the dtype to compute in, where the tensor is; refuses tensors without entries."""
    if not blocks.shape or math.prod(blocks.shape) == 0:
        raise DataError(f"the tensor is empty or a single number: its shape is {blocks.shape}")
    return torch.empty((), dtype=compute_dtype(blocks.source.dtype, dtype), device=blocks.device)


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


def _verify(reducer: Reducer, network: TensorNetwork, norm: float) -> float:
    """Relative error from the residual, in one pass that also checks that the data is still the same."""
    objective = BlockedLeastSquares(reducer, norm)
    double = {"float32": "float64", "complex64": "complex128"}
    if math.prod(reducer.source.shape) <= DOUBLE_ENTRIES and reducer.form.dtype in double:
        form = replace(reducer.form, dtype=double[reducer.form.dtype])
        objective = BlockedLeastSquares(reducer.with_form(form), norm)
    model = Model(network.structure, tuple(objective.to_arrays(network)))
    sums = objective.reducer.reduce(SquaredResiduals(((model,), ()))).sums
    residual, data = sums[0], sums[1]
    if abs(data - norm**2) > 1e-5 * norm**2:
        raise DataError(
            f"{reducer.source.label} changed while it was read: its norm was {norm:.6g} and is now "
            f"{math.sqrt(data):.6g}. Run again on data that nobody writes to"
        )
    return math.sqrt(residual / data)
