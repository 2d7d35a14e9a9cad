"""Tensors of which every entry is known: what a run needs of them besides the numbers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..algebra.linalg import wide_dtype
from ..data.arrays import exponent_of, exponent_within, largest, measured_target, norm_of, times_power
from ..data.axes import Axes, Container, container_of
from ..data.blocks import ArraySource, Form, ThreadReducer
from ..data.devices import SMALL_BYTES, check_memory, dense_flops, is_worth_gpu, one_thread
from ..data.fingerprint import fingerprint_tensor
from ..data.tensorization import DEFAULT_ERROR, Tensorization, tensorize
from ..network import TensorNetwork
from ..objectives import CompressedLeastSquares, DenseLeastSquares, LeastSquares
from ..objectives.blocks import squared_errors
from ..objectives.compressed import Compression, compress, least_error
from ..search import CutBounds
from ..structure import Structure
from .request import Request

# Up to this many entries the reported error is computed in double precision throughout.
DOUBLE_ENTRIES = 1 << 27
# Up to this many it is computed at once; beyond, copies of the tensor would be the largest of the whole run.
WHOLE_ENTRIES = 1 << 22
# Share of the error target that compressing the modes may take: errors add up as squares, so the search on
# the core is left with 0.95 of it. At shares of 0.1, 0.3 and 0.5 a field at 1e-3 ends with the same network,
# a video at 0.1 with 8,482, 10,130 and 8,734 parameters, from cores of 690,000, 190,000 and 82,000 entries.
CORE_SHARE = 0.3
# Copies of a tensor, in double precision, that compressing it takes: itself, and a matrix of it twice.
COPIES_TO_COMPRESS = 3
# Error targets from which a search on the CPU may compute in single precision: rounding is far below them,
# except where Gram matrices are nearly singular, which ALS notices.
SINGLE_ERROR = 1e-2


class TensorData(ABC):
    """A tensor of some form.

    Attributes
    ----------
    home
        Device the result goes to.
    axes, container
        Names and labels of the user's axes, and the kind of array that the user gave.
    how
        How the user's array became the tensor; None where it is the tensor.
    """

    request: Request
    shape: tuple[int, ...]
    home: torch.device
    axes: Axes | None = None
    container: Container = "numpy"
    how: Tensorization | None = None

    def note_axes(self, x: Any) -> None:
        """Remember what the user's array says of itself."""
        shape = self.shape if self.how is None else self.how.shape
        self.axes, self.container = Axes.of(x, len(shape), self.request.names), container_of(x)

    @property
    @abstractmethod
    def probe(self) -> torch.Tensor:
        """Some numbers of the data, of the dtype and on the device computed with."""

    @property
    @abstractmethod
    def exponent(self) -> int:
        """The power of two that the data was divided by."""

    @property
    @abstractmethod
    def is_zero(self) -> bool:
        """Whether all entries are zero."""

    @abstractmethod
    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        """Return what a search minimises, and bounds on the ranks; refuse what needs too much memory."""

    @property
    def share(self) -> float:
        """Share of the error target that is left to the search; what it works on may lack the rest."""
        return 1.0

    def proposals(self) -> tuple[TensorNetwork, ...]:
        """Return networks that the data itself suggests to start from."""
        return ()

    @abstractmethod
    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        """Return what a fit of one structure minimises, and what each leaves out; see `FitProblem`."""

    @abstractmethod
    def error(self, network: TensorNetwork) -> float:
        """Compute the relative error of a network, whatever the search took it for."""

    @property
    def memory_limit(self) -> float:
        """Bytes that may be taken."""
        return self.request.memory(self.probe.device)

    @property
    def bounded_error(self) -> float | None:
        """The error target where lower bounds from the spectra of the tensor are of use; else None."""
        return (self.request.limits.max_error or None) if self.request.options.certify else None

    def fingerprint(self) -> Mapping[str, object]:
        """Return numbers that tell this tensor from others."""
        return {"data": fingerprint_tensor(self.probe)}

    def about(self) -> Mapping[str, object]:
        """Return what to note of the run."""
        return {}

    def threads(self, *, searches: bool) -> AbstractContextManager[None]:
        """Limit threads that would wait for each other while a structure is searched, or one is fitted."""
        return nullcontext()

    def _on_core(self, small: Compression, where: torch.device) -> CompressedLeastSquares:
        """Least squares on a core, where it is computed fastest."""
        device = where if is_worth_gpu(dense_flops(small.core.numel())) else torch.device("cpu")
        core = small.core.to(device=device, dtype=self.probe.dtype)
        return CompressedLeastSquares(core, small.bases, small.rest)

    def _bounds_on_core(self, small: CompressedLeastSquares) -> CutBounds | None:
        """Bounds from the core: what its bases leave out is part of the error."""
        error = self.bounded_error
        if error is None:
            return None
        allowed = math.sqrt((error * small.norm) ** 2 - small.rest**2)
        inside = float(torch.linalg.vector_norm(small.core))
        return CutBounds.within(self.memory_limit, small.core, allowed / inside, small.bases)


def describe_core(small: CompressedLeastSquares) -> dict[str, object]:
    """What to note of a run on a core."""
    ranks = [int(n) for n in small.core.shape]
    return {"multilinear_ranks": ranks, "left_out": small.rest / small.norm}


class DenseTensor(TensorData):
    """A tensor in memory."""

    def __init__(self, x: Any, request: Request, norm: float | None = None) -> None:
        self.request = request
        data, self._norm = measured_target(x, request.dtype, norm)
        if request.tensorize is not None:
            error = request.limits.max_error or DEFAULT_ERROR
            data, self.how = tensorize(data, request.tensorize, max_error=error, edges=request.edges)
            self._norm = norm_of(data)  # of an axis that was padded, say
        where, self.home = request.places(data, dense_flops(data.numel(), request.width(data.shape)))
        exponent = exponent_within(self._norm, data.numel())
        self._exponent = exponent_of(data) if exponent is None else exponent
        self.target = times_power(data.to(where), -self._exponent)
        self.shape = tuple(self.target.shape)
        self.note_axes(x)
        is_users = isinstance(x, torch.Tensor | np.ndarray) and self.target.data_ptr() == _pointer(x)
        self._own_bytes = 0 if is_users else self.target.numel() * self.target.element_size()

    @property
    def probe(self) -> torch.Tensor:
        return self.target

    @property
    def exponent(self) -> int:
        return self._exponent

    @property
    def is_zero(self) -> bool:
        return not self._norm and not largest(self.target)  # squares may vanish

    @cached_property
    def objective(self) -> DenseLeastSquares:
        return DenseLeastSquares(self.target, norm=self._target_norm)

    @property
    def _target_norm(self) -> float | None:
        """The norm of what is fitted, where it is known."""
        return None if self._exponent else self._norm

    @cached_property
    def _small(self) -> CompressedLeastSquares | None:
        """The tensor as a core in bases of its modes; None where that is not much smaller, or not wanted.

        A start from the user would lose what it has outside of the bases.
        """
        request, target = self.request, self.target
        limits, wide = request.limits, wide_dtype(target.dtype).itemsize
        if not request.options.compress or request.init is not None or self.is_zero:
            return None
        if COPIES_TO_COMPRESS * target.numel() * wide > self.memory_limit:
            return None
        error = limits.max_error
        if error is None and limits.max_parameters is not None:
            error = least_error(target, limits.max_parameters)
        small = compress(target, CORE_SHARE * (error or 0.0))
        return None if small is None else self._on_core(small, target.device)

    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        if self._small is not None:
            return self._small, self._bounds_on_core(self._small)
        what = f"decomposing a tensor of shape {self.shape}"
        check_memory(self.objective.memory_needed(first), self.memory_limit, what)
        error, limit = self.bounded_error, self.memory_limit
        bounds = None if error is None else CutBounds.within(limit, self.target, error)
        return DenseLeastSquares(self.target, may_round=self._may_round, norm=self._target_norm), bounds

    @property
    def _may_round(self) -> bool:
        """Whether a search may compute in single precision: the error target is far above its rounding."""
        return self.target.device.type == "cpu" and (self.request.limits.max_error or 0.0) >= SINGLE_ERROR

    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        needed = self.objective.memory_needed(structure)
        if (
            needed > SMALL_BYTES or self.request.memory_limit is not None
        ):  # else not worth a look at the system
            check_memory(needed, self.memory_limit, f"fitting {structure.num_parameters:,} parameters")
        return ((self.objective, 0.0),)

    @cached_property
    def memory_limit(self) -> float:
        """Bytes that may be taken, as of when the run began: to ask the system takes 0.3 ms."""
        is_counted = self.request.memory_limit is None  # what is free is less than it was
        return self.request.memory(self.probe.device) - (0 if is_counted else self._own_bytes)

    def error(self, network: TensorNetwork) -> float:
        target, dtype = self.target, self.target.dtype
        if target.numel() <= DOUBLE_ENTRIES:
            dtype = wide_dtype(dtype)
        network = network.to(dtype=dtype)
        if target.numel() > WHOLE_ENTRIES:
            return self._error_by_blocks(network)
        target = target.to(dtype)
        objective = self.objective if target is self.target else DenseLeastSquares(target)
        arrays = objective.to_arrays(network)
        loss = objective.loss_from_sums(network.structure, arrays)
        return (objective.loss(network.structure, arrays) if loss is None else loss) / objective.norm

    def _error_by_blocks(self, network: TensorNetwork) -> float:
        """As `error`, in the precision of the network, without copies of the whole target."""
        where = self.target.device
        form = Form(str(network.dtype).removeprefix("torch."), None if where.type == "cpu" else str(where))
        source = ArraySource(self.target)
        blocks = ThreadReducer(source, source.boxes(WHOLE_ENTRIES), form, threads=1)
        residual, data = squared_errors(blocks, network)
        return math.sqrt(residual / data)

    def about(self) -> Mapping[str, object]:
        small = self.__dict__.get("_small")  # where a structure was searched
        return {} if small is None else {"method": "compress", **describe_core(small)}

    def threads(self, *, searches: bool) -> AbstractContextManager[None]:
        objective = (self._small if searches else None) or self.objective
        return one_thread() if objective.use_numpy else nullcontext()


def _pointer(x: torch.Tensor | np.ndarray[Any, Any]) -> int:
    return x.data_ptr() if isinstance(x, torch.Tensor) else int(x.ctypes.data)
