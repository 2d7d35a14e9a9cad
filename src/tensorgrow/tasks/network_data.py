"""Tensors that are known as networks, and never formed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch

from ..algebra.distance import factor_plan
from ..data.arrays import compute_dtype, floor_exponent, scale_out
from ..data.devices import check_memory, choose_device, flops_in, one_thread
from ..data.fingerprint import fingerprint_tensors
from ..errors import DataError, OptionError
from ..network import TensorNetwork
from ..objectives import LeastSquares, NetworkLeastSquares
from ..results import Result
from ..search import CutBounds, ForestBounds
from ..search.proposals import FACTOR_SECONDS, Compact, compact, merge_small, propose
from ..structure import Structure
from .request import Request
from .tensor_data import TensorData


def as_network(x: Any) -> TensorNetwork | None:
    """Return the network that data is; None for arrays.

    A result stands for its network. Objects of quimb and TensorLy are told by their names, so that neither is
    imported for anybody else.
    """
    if isinstance(x, Result):
        return x.network
    if isinstance(x, TensorNetwork):
        return x
    library = type(x).__module__.partition(".")[0]
    if library not in ("quimb", "tensorly"):
        return None
    # What knows other libraries lies above; loaded when needed.
    from ..interop import from_quimb, from_tensorly

    return from_quimb(x) if library == "quimb" else from_tensorly(x)


class NetworkTensor(TensorData):
    """A tensor given by a network.

    Errors are known to about 1e-8 from inner products, and to rounding from orthogonal factorisations, where
    these are affordable.
    """

    def __init__(self, network: TensorNetwork, request: Request) -> None:
        self.request = request
        if request.tensorize is not None:
            raise DataError(
                "tensorize is about arrays; the modes of a network are those it has. Cut them with "
                "TensorNetwork.split_mode, or leave tensorize out"
            )
        self.shape = network.structure.dims
        dtype = compute_dtype(network.dtype, request.dtype)
        cores = [c.detach().to(dtype) for c in network.cores]
        if not all(bool(torch.isfinite(c).all()) for c in cores):
            bad = [k for k, c in enumerate(cores) if not bool(torch.isfinite(c).all())]
            raise DataError(f"core {bad[0]} of the network has entries that are not finite; they must all be")
        where = choose_device(request.device, cores[0])
        self.home = cores[0].device if request.device == "auto" else where
        self.network, self._exponent = _near_one(TensorNetwork(network.structure, cores).to(where))
        self._check_error()

    # -- what precision allows -------------------------------------------------------------------------

    @property
    def least_error(self) -> float:
        """Relative error below which rounding is all that is seen."""
        nodes = self.network.structure.num_nodes
        rounding = 8.0 * nodes * torch.finfo(self.network.dtype).eps
        squares = 0.0 if self._is_careful else 4.0 * math.sqrt(torch.finfo(torch.float64).eps)
        return max(rounding, squares)

    @cached_property
    def _is_careful(self) -> bool:
        """Whether errors can be computed without squares."""
        structure = self._merged.structure
        plan = factor_plan((structure, structure))
        is_fast = plan.flops <= flops_in(FACTOR_SECONDS, self.network.device)
        return is_fast and 3 * 16 * plan.peak_entries <= self.memory_limit

    def _check_error(self) -> None:
        error = self.request.limits.max_error
        if error is not None and error < self.least_error:
            how = "orthogonal factorisations" if self._is_careful else "inner products"
            more = "" if self._is_careful else "; finer ways would take too long or too much memory here"
            raise OptionError(
                f"max_error={error:g} is below what {self.network.dtype} can tell of a network with "
                f"{self.network.structure.num_nodes} nodes: by {how} errors are known to about "
                f"{self.least_error:.1g}{more}. Ask for at least that, or leave max_error out"
            )

    # -- as any tensor ---------------------------------------------------------------------------------

    @property
    def probe(self) -> torch.Tensor:
        return self.network.cores[0]

    @property
    def exponent(self) -> int:
        return self._exponent

    @cached_property
    def is_zero(self) -> bool:
        return self.network.norm() == 0.0

    @cached_property
    def whole(self) -> NetworkLeastSquares:
        return NetworkLeastSquares(self._merged, careful=self._is_careful)

    @cached_property
    def _merged(self) -> TensorNetwork:
        """The target without internal nodes that only make it larger: those of a circuit are many."""
        return merge_small(self.network)

    @cached_property
    def compact(self) -> Compact:
        """The target without what it does not need."""
        error = self.request.limits.max_error
        # So little of the error target that the search does not feel it.
        allowed = max(1e-3 * (error or 1e-6), self.least_error)
        entries = self.memory_limit / wide_bytes(self.network)
        return compact(self.network, allowed, entries, keep_graph=isinstance(self.request.edges, Structure))

    @property
    def share(self) -> float:
        return 1.0 - self.compact.left_out / (self.request.limits.max_error or 1.0)

    def prepare(self, first: Structure) -> tuple[LeastSquares, CutBounds | None]:
        small = self.compact
        objective = NetworkLeastSquares(small.network, careful=self._is_careful)
        what = f"rounding a network with {self.network.num_parameters:,} parameters"
        check_memory(objective.memory_needed(first), self.memory_limit, what)
        error, forest = self.bounded_error, small.forest
        return objective, None if error is None or forest is None else ForestBounds(forest, error)

    def proposals(self) -> tuple[TensorNetwork, ...]:
        request, policy = self.request, self.request.policy(len(self.shape))
        limits = request.limits
        return propose(
            self.compact,
            limits.max_error,
            limits.max_parameters,
            policy,
            split_nodes=request.splits_nodes(policy),
        )

    def approximations(self, structure: Structure) -> tuple[tuple[LeastSquares, float], ...]:
        small = self.compact
        near = NetworkLeastSquares(small.network, careful=self._is_careful)
        what = f"fitting {structure.num_parameters:,} parameters"
        check_memory(near.memory_needed(structure), self.memory_limit, what)
        left_out = small.left_out * near.norm
        if not left_out or self.whole.memory_needed(structure) > self.memory_limit:
            return ((near, 0.0),)
        return (near, left_out), (self.whole, 0.0)

    def error(self, network: TensorNetwork) -> float:
        objective = self.whole
        return objective.loss(network.structure, objective.to_arrays(network)) / objective.norm

    def fingerprint(self) -> Mapping[str, object]:
        return {"data": fingerprint_tensors(self.network.cores), "network": self.network.structure.to_dict()}

    def about(self) -> Mapping[str, object]:
        small = self.compact
        return {
            "method": "network",
            "target_parameters": self.network.num_parameters,
            "compact_parameters": small.network.num_parameters,
            "left_out": small.left_out,
            "least_error": self.least_error,
        }

    def threads(self, *, searches: bool) -> AbstractContextManager[None]:
        return one_thread() if self.whole.use_numpy else nullcontext()


def wide_bytes(network: TensorNetwork) -> int:
    """Bytes of a number in double precision."""
    return 16 if network.is_complex else 8


def _near_one(network: TensorNetwork) -> tuple[TensorNetwork, int]:
    """The network over the power of two next to its norm, and its exponent: squares must not overflow."""
    cores, exponents = zip(*(scale_out(c) for c in network.cores))
    scaled, exponent = TensorNetwork(network.structure, cores), sum(exponents)
    norm = scaled.norm()
    if not (norm > 0.0 and math.isfinite(norm)):
        return scaled, exponent
    more = floor_exponent(norm)
    return scaled.times_power(-more), exponent + more
