"""A dense tensor in memory, on CPU or GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..algebra.linalg import solve_normal
from ..contraction import Update, dense_plan, pair_plan, sweep_plan
from ..data.devices import can_limit_threads
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem
from .dense_slices import DensePairProblem, PairContext

__all__ = ["DenseLeastSquares", "numpy_is_faster"]

Array = Any

# Above this many entries a CPU target is contracted by torch with all threads; below, dispatch dominates.
NUMPY_ENTRIES = 1_000_000
# The same where the threads of NumPy's BLAS cannot be held back.
NUMPY_ENTRIES_THREADED = 50_000


class DenseLeastSquares:
    """``||target - network||`` for a dense target.

    Parameters
    ----------
    target
        The tensor, already of the dtype and on the device to compute in. It is not modified.
    use_numpy
        Compute with NumPy instead of torch; by default on the CPU when the target is small or torch has one
        thread.
    """

    def __init__(self, target: torch.Tensor, *, use_numpy: bool | None = None) -> None:
        self.target = target = target.resolve_conj().resolve_neg()
        self.dims = tuple(target.shape)
        self.use_numpy = numpy_is_faster(target) if use_numpy is None else use_numpy
        self.is_complex = target.is_complex()
        self._stored: dict[tuple[int, ...], Array] = {}

    @property
    def validation_norm(self) -> None:
        """Nothing is held out."""

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return float(torch.finfo(self.target.dtype).eps)

    @cached_property
    def norm(self) -> float:
        """Frobenius norm of the target, accumulated in double precision."""
        return _norm(self.target)

    # -- arrays ----------------------------------------------------------------------------------------

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores as NumPy arrays or as tensors on the target's device."""
        cores = [c.to(device=self.target.device, dtype=self.target.dtype) for c in network.cores]
        return [c.resolve_conj().resolve_neg().numpy() for c in cores] if self.use_numpy else cores

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """Wrap arrays as a network."""
        if not self.use_numpy:
            return TensorNetwork(structure, arrays)
        return TensorNetwork(structure, [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays])

    @cached_property
    def _natural(self) -> Array:
        return self.target.numpy() if self.use_numpy else self.target

    def _in_order(self, structure: Structure, order: tuple[int, ...]) -> Array:
        """Target stored in the order of the legs (size-1 axes for internal nodes), kept for next time."""
        data_order = tuple(k for k in order if k < len(self.dims))
        stored = self._stored.get(data_order)
        if stored is None:
            if data_order == tuple(range(len(self.dims))):
                stored = self._natural
            elif self.use_numpy:
                stored = np.ascontiguousarray(self._natural.transpose(data_order))
            else:
                stored = self._natural.permute(data_order).contiguous()
            self._stored = {data_order: stored}  # one copy at most: targets can be large
        return stored.reshape(tuple(structure.leg_dim(k) for k in order))

    # -- loss ------------------------------------------------------------------------------------------

    def dense(self, structure: Structure, arrays: Sequence[Array]) -> Array:
        """The represented tensor."""
        return dense_plan(structure, self.is_complex).run(list(arrays), self.dims)

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """Norm of the residual, from the residual itself."""
        return _norm(self._natural - self.dense(structure, arrays))

    def residual(self, network: TensorNetwork) -> DenseLeastSquares:
        """Objective whose target is what the network does not explain."""
        rest = self._natural - self.dense(network.structure, self.to_arrays(network))
        tensor = torch.from_numpy(rest) if self.use_numpy else rest
        return DenseLeastSquares(tensor, use_numpy=self.use_numpy)

    # -- node problems ---------------------------------------------------------------------------------

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> None:
        """Nothing is held out."""

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once; partial contractions are shared along a dimension tree."""
        explained = 0.0

        def update(node: int, gram: Array | None, rhs: Array) -> Array:
            nonlocal explained
            core, explained = solve_normal(gram, rhs, ridge)
            return core

        self.visit(structure, arrays, update)
        return self.norm**2 - explained

    def visit(self, structure: Structure, arrays: list[Array], update: Update) -> None:
        """Hand the normal equations of every node to `update`, which returns its core."""
        plan = sweep_plan(structure, self.is_complex)

        def visit(node: int, gram: Array | None, rhs: Array) -> Array:
            arrays[node] = update(node, gram, rhs)
            return arrays[node]

        plan.run(self._in_order(structure, plan.leg_order), arrays, visit)

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """Gram and right-hand side of one node, from a sweep that changes nothing."""
        arrays = self.to_arrays(network)
        found: dict[int, NormalEquations] = {}

        def note(k: int, gram: Array | None, rhs: Array) -> Array:
            if k == node:
                found[k] = NormalEquations(gram, rhs)
            return arrays[k]

        self.visit(network.structure, arrays, note)
        return found[node]

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Target contracted with all cores but two."""
        plan = pair_plan(network.structure, (edge,), self.is_complex)
        target = self._with_internal_axes(network.structure, self._natural)
        return plan.run(target, self.to_arrays(network))[0].gradient

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems on the residual; the residual is formed once and its contractions are shared."""
        if not edges:
            return []
        rest = self._natural - self.dense(structure, arrays)
        plan = pair_plan(structure, tuple(edges), self.is_complex)
        cores = list(arrays)
        environments = plan.run(self._with_internal_axes(structure, rest), cores)
        shared = PairContext(structure, cores, self.is_complex, lambda: self._node_grams(structure, cores))
        return [DensePairProblem(env, shared) for env in environments]

    def _node_grams(self, structure: Structure, arrays: list[Array]) -> dict[int, Array]:
        """Gram of every node's environment, from a sweep that changes nothing."""
        grams: dict[int, Array] = {}

        def note(node: int, gram: Array | None, rhs: Array) -> Array:
            grams[node] = gram
            return arrays[node]

        self.visit(structure, list(arrays), note)
        return grams

    def _with_internal_axes(self, structure: Structure, target: Array) -> Array:
        return target.reshape(tuple(structure.leg_dim(k) for k in range(structure.num_nodes)))

    def sweep_flops(self, structure: Structure) -> float:
        """Flops of the compiled sweep."""
        return sweep_plan(structure, self.is_complex).program.flops

    def memory_needed(self, structure: Structure) -> int:
        """Peak of a sweep, plus the residual that scoring forms and one reordered copy of the target."""
        peak = sweep_plan(structure, self.is_complex).program.peak_entries
        return (peak + 2 * math.prod(self.dims)) * self.target.element_size()


def numpy_is_faster(target: torch.Tensor) -> bool:
    """Small targets dispatch faster on NumPy; on one thread its BLAS also multiplies thin matrices faster."""
    if target.device.type != "cpu":
        return False
    if not can_limit_threads():
        return target.numel() <= NUMPY_ENTRIES_THREADED
    return target.numel() <= NUMPY_ENTRIES or torch.get_num_threads() == 1


def _norm(array: Array) -> float:
    if isinstance(array, np.ndarray):
        return float(np.linalg.norm(array.reshape(-1).astype(_double(array), copy=False)))
    return float(torch.linalg.vector_norm(array, dtype=_double(array)))


def _double(array: Array) -> Any:
    if isinstance(array, np.ndarray):
        return np.complex128 if array.dtype.kind == "c" else np.float64
    return torch.complex128 if array.is_complex() else torch.float64
