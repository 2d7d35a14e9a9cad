"""Tensors of which every entry is known: what a run needs of them besides the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch

from ..data.arrays import as_target, scale_out
from ..data.devices import check_memory, choose_device, one_thread
from ..data.fingerprint import fingerprint_tensor
from ..network import TensorNetwork
from ..objectives import DenseLeastSquares, LeastSquares
from ..search import CutBounds
from ..structure import Structure
from .request import Request

# Up to this many entries the reported error is computed in double precision throughout.
DOUBLE_ENTRIES = 1 << 27


class TensorData(ABC):
    """A tensor of some form.

    Attributes
    ----------
    request
        What the user asked for.
    shape
        Of the tensor.
    home
        Device the result goes to.
    """

    request: Request
    shape: tuple[int, ...]
    home: torch.device

    @property
    @abstractmethod
    def probe(self) -> torch.Tensor:
        """Some numbers of the data, of the dtype and on the device computed with."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """What the data was divided by."""

    @property
    @abstractmethod
    def is_zero(self) -> bool:
        """Whether all entries are zero."""

    @abstractmethod
    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        """What a search minimises, and bounds on the ranks; refuses what needs too much memory."""

    @abstractmethod
    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        """What a fit of one structure minimises, and what each leaves out; see `FitProblem`."""

    @abstractmethod
    def error(self, network: TensorNetwork) -> float:
        """Relative error of a network, recomputed with care."""

    @property
    def memory_limit(self) -> float:
        """Bytes that may be taken."""
        return self.request.memory(self.probe.device)

    @property
    def wants_bounds(self) -> bool:
        """Whether lower bounds from the spectra of the tensor are of use."""
        return bool(self.request.limits.max_error) and self.request.options.certify

    def fingerprint(self) -> Mapping[str, object]:
        """Numbers that tell this tensor from others."""
        return {"data": fingerprint_tensor(self.probe)}

    def about(self) -> Mapping[str, object]:
        """What to note of the run."""
        return {}

    def threads(self) -> AbstractContextManager[None]:
        """A limit on threads that would wait for each other."""
        return nullcontext()


class DenseTensor(TensorData):
    """A tensor in memory."""

    def __init__(self, x: Any, request: Request) -> None:
        self.request = request
        data = as_target(x, request.dtype)
        where = choose_device(request.device, data)
        self.home = data.device if request.device == "auto" else where
        self.target, self._scale = scale_out(data.to(where))
        self.shape = tuple(self.target.shape)

    @property
    def probe(self) -> torch.Tensor:
        return self.target

    @property
    def scale(self) -> float:
        return self._scale

    @property
    def is_zero(self) -> bool:
        return not bool(self.target.any())

    @cached_property
    def objective(self) -> DenseLeastSquares:
        """Least squares on the tensor."""
        return DenseLeastSquares(self.target)

    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        what = f"decomposing a tensor of shape {self.shape}"
        check_memory(self.objective.memory_needed(first), self.memory_limit, what)
        error = self.request.limits.max_error
        return self.objective, CutBounds(self.target, error) if self.wants_bounds and error else None

    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        what = f"fitting {structure.num_parameters:,} parameters"
        check_memory(self.objective.memory_needed(structure), self.memory_limit, what)
        return ((self.objective, 0.0),)

    def error(self, network: TensorNetwork) -> float:
        return exact_error(self.target, network)

    def threads(self) -> AbstractContextManager[None]:
        return one_thread() if self.objective.use_numpy else nullcontext()


def exact_error(target: torch.Tensor, network: TensorNetwork) -> float:
    """Relative error from the residual, in double precision where that fits comfortably."""
    if target.numel() <= DOUBLE_ENTRIES:
        double = torch.complex128 if target.is_complex() else torch.float64
        target, network = target.to(double), network.to(dtype=double)
    objective = DenseLeastSquares(target, use_numpy=False)
    return objective.loss(network.structure, objective.to_arrays(network)) / objective.norm
