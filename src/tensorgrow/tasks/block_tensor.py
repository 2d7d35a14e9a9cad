"""Tensors that are read block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch

from ..data.arrays import compute_dtype, exponent_for
from ..data.blocks import Blocks, Form, Partial, Reducer, as_source
from ..data.devices import check_memory, choose_device, one_thread
from ..data.fingerprint import format_codes
from ..errors import DataError, OptionError, counted
from ..network import TensorNetwork
from ..objectives import BlockedLeastSquares, Codes, CompressedLeastSquares, LeastSquares, Survey
from ..objectives.blocks import COPIES_OF_A_BLOCK, squared_errors
from ..objectives.sketch import SECOND_SKETCH, SKETCH, Ranges, find_core, find_ranges
from ..search import CutBounds
from ..structure import Structure
from .request import Request
from .tensor_data import DOUBLE_ENTRIES, TensorData, describe_core

# Copies of the tensor that a decomposition in memory takes: the data, another order, the residual, products.
COPIES_IN_MEMORY = 5
# Share of the error target that compressing the modes may take: errors add up as squares, so the search on
# the core is left with 0.87 of it. Without a target, what it may leave out.
COMPRESSION_SHARE = 0.5
COMPRESSION_ERROR = 1e-3


class BlockTensor(TensorData):
    """A tensor that is read block by block; nothing is read before it is needed."""

    def __init__(self, x: Any, request: Request) -> None:
        self.request = request
        self.blocks = x if isinstance(x, Blocks) else Blocks(x)
        self.shape = self.blocks.shape
        if not self.shape or math.prod(self.shape) == 0:
            raise DataError(f"the tensor is empty or a single number: its shape is {self.shape}")
        dtype = compute_dtype(self.blocks.source.dtype, request.dtype)
        self._like = torch.empty((), dtype=dtype, device=self.blocks.device)
        self.home = choose_device(request.device, self._like.expand(self.shape))
        self._small: CompressedLeastSquares | None = None

    @property
    def _may_compress(self) -> bool:
        method = self.blocks.method
        return method == "compress" or (method != "stream" and self.request.options.compress)

    @cached_property
    def memory_limit(self) -> float:
        return self.request.memory(self.home)

    @cached_property
    def _first_pass(self) -> tuple[Reducer, list[float], Ranges | None]:
        """Who reads the blocks, the squared norm of each, and the leading directions of the modes."""
        device = None if self.home.type == "cpu" else str(self.home)
        form = Form(str(self._like.dtype).removeprefix("torch."), device)
        reducer = self.blocks.open(form, self.memory_limit, COPIES_OF_A_BLOCK + 1)
        reducer, survey, ranges = _survey(reducer, self._may_compress)
        return reducer, [v for k, v in survey.sums.items() if _is_squares(k)], ranges

    @property
    def reducer(self) -> Reducer:
        return self._first_pass[0]

    @cached_property
    def norm(self) -> float:
        return math.sqrt(sum(self._first_pass[1]))

    @property
    def probe(self) -> torch.Tensor:
        if "_first_pass" not in self.__dict__:
            return self._like
        device = self.home if self._small is None else self._small.core.device
        norms = [math.sqrt(v) for v in self._first_pass[1]]
        return torch.tensor(norms, dtype=self._like.dtype, device=device)

    @property
    def exponent(self) -> int:
        return self.reducer.form.exponent

    @property
    def is_zero(self) -> bool:
        return self.norm == 0.0

    @cached_property
    def whole(self) -> BlockedLeastSquares:
        return BlockedLeastSquares(self.reducer, self.norm)

    def _compress(self) -> CompressedLeastSquares | None:
        """Write the tensor in bases of its modes; from a larger sketch where the first leaves out too much.

        None when the core would not fit in memory, or too much would be left out.
        """
        reducer, _, ranges = self._first_pass
        if ranges is None:
            return None
        allowed = COMPRESSION_SHARE * (self.request.limits.max_error or 0.0) or COMPRESSION_ERROR
        entries = self.memory_limit / (8 * 8)  # 8 numbers of 8 bytes per entry while the core is searched
        small = find_core(reducer, ranges, self.norm, allowed, entries)
        if small is None and max(self.shape) > SKETCH:
            larger = find_ranges(reducer, SECOND_SKETCH)
            small = find_core(reducer, larger, self.norm, allowed, entries)
        if small is None:
            return None
        self._small = self._on_core(small, self.home)
        return self._small

    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        small = self._compress()
        if small is not None:
            return small, self._bounds_on_core(small)
        if self.blocks.method == "compress":
            raise OptionError(
                "method='compress', but the modes do not compress: the core would not fit in the memory "
                "limit or leave out too much. Use method='stream', or a larger max_error or memory_limit"
            )
        what = f"streaming a tensor of shape {self.shape}"
        check_memory(self.whole.memory_needed(first), self.memory_limit, what)
        return self.whole, None

    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        small, needed = self._compress(), self.whole.memory_needed(structure)
        if small is None:
            what = f"streaming {structure.num_parameters:,} parameters"
            check_memory(needed, self.memory_limit, what)
            return ((self.whole, 0.0),)
        core = (small, small.rest)
        return (core, (self.whole, 0.0)) if needed <= self.memory_limit else (core,)

    def error(self, network: TensorNetwork) -> float:
        """Compute the relative error in one pass that also checks that the data is still the same."""
        reducer, norm = self.reducer, self.norm
        double = {"float32": "float64", "complex64": "complex128"}
        if math.prod(self.shape) <= DOUBLE_ENTRIES and reducer.form.dtype in double:
            reducer = reducer.with_form(replace(reducer.form, dtype=double[reducer.form.dtype]))
        residual, data = squared_errors(reducer, network)
        if abs(data - norm**2) > 1e-5 * norm**2:
            raise DataError(
                f"{reducer.source.label} changed while it was read: its norm was {norm:.6g} and is now "
                f"{math.sqrt(data):.6g}. Run again on data that nobody writes to"
            )
        return math.sqrt(residual / data)

    def fingerprint(self) -> Mapping[str, object]:
        """Look at every entry, in a pass of its own, which only runs with a checkpoint need."""
        codes = self.reducer.reduce(Codes(self.shape)).sums.values()
        return {"data": format_codes(self.shape, sum(codes))}

    def about(self) -> Mapping[str, object]:
        small, reducer = self._small, self.reducer
        notes = {
            "method": "stream" if small is None else "compress",
            "passes": reducer.passes,
            "bytes_per_pass": math.prod(self.shape) * reducer.source.itemsize,
            "blocks": len(reducer.boxes),
        }
        return notes if small is None else {**notes, **describe_core(small)}

    def threads(self, *, searches: bool) -> AbstractContextManager[None]:
        return one_thread()


def fits_in_memory(x: Any, request: Request) -> bool:
    """Whether a lazy array can be decomposed in memory."""
    source = as_source(x)
    item = torch.empty((), dtype=compute_dtype(source.dtype, request.dtype)).element_size()
    return COPIES_IN_MEMORY * item * math.prod(source.shape) <= request.memory(torch.device("cpu"))


def _survey(reducer: Reducer, sketch: bool) -> tuple[Reducer, Partial, Ranges | None]:
    """Compute the norm, the largest entry and, with `sketch`, the ranges of the modes in one pass.

    In the rare case that squares would overflow or vanish, a second pass reads scaled data.
    """
    while True:
        ranges = find_ranges(reducer) if sketch else None
        survey = reducer.reduce(Survey()) if ranges is None else ranges.survey
        if not math.isfinite(survey.largest):
            bad = [k[1] for k, v in survey.sums.items() if _is_squares(k) and not math.isfinite(v)]
            name = reducer.source.name(bad[0]) if bad else "a block"
            raise DataError(
                f"{reducer.source.label} has entries that are not finite in {counted(len(bad), 'block')}; "
                f"the first is {name}. Remove or fill them first"
            )
        exponent = exponent_for(survey.largest)
        if exponent == 0:
            return reducer, survey, ranges
        reducer = reducer.with_form(replace(reducer.form, exponent=exponent + reducer.form.exponent))


def _is_squares(key: Any) -> bool:
    return isinstance(key, tuple) and key[0] == "squares"
