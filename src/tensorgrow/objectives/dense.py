"""A dense tensor in memory, on CPU or GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from ..algebra.linalg import single_dtype, wide_dtype
from ..contraction import Array, Update, dense_plan, pair_plan, sweep_plan
from ..data.devices import can_limit_threads
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NodeVisits
from .dense_slices import DensePairProblem, PairContext
from .slices import PairProblem

# Added to the unit diagonal of Gram matrices that were contracted in single precision: their rounding.
SINGLE_RIDGE = 1e-6


class DenseLeastSquares(NodeVisits):
    """``||target - network||`` for a dense target.

    Parameters
    ----------
    target
        The tensor, already of the dtype and on the device to compute in. It is not modified.
    use_numpy
        Compute with NumPy instead of torch; by default on the CPU when the target is small or torch has one
        thread.
    in_single
        Sweep and score in single precision; networks and losses stay in that of the target. For errors that
        are far above single rounding.
    """

    def __init__(
        self, target: torch.Tensor, *, use_numpy: bool | None = None, in_single: bool = False
    ) -> None:
        self.target = target = target.resolve_conj().resolve_neg()
        self.dims = tuple(target.shape)
        self.dtype, self.device = target.dtype, target.device
        self.working_dtype = single_dtype(target.dtype) if in_single else target.dtype
        self.use_numpy = numpy_is_faster(target) if use_numpy is None else use_numpy
        self.is_complex = target.is_complex()
        self._stored: dict[tuple[int, ...], Array] = {}

    @cached_property
    def norm(self) -> float:
        return _norm(self.target)

    @property
    def is_rounded(self) -> bool:
        return self.working_dtype != self.dtype

    @property
    def least_ridge(self) -> float:
        return SINGLE_RIDGE if self.is_rounded else 0.0

    @property
    def epsilon(self) -> float:
        return float(torch.finfo(self.working_dtype).eps)

    @cached_property
    def _natural(self) -> Array:
        target = self.target.to(self.working_dtype)
        return target.numpy() if self.use_numpy else target

    def _rounded(self, arrays: Sequence[Array]) -> list[Array]:
        """Cores in the precision that is computed in."""
        if not self.is_rounded:
            return list(arrays)
        if self.use_numpy:
            return [a.astype(self._natural.dtype, copy=False) for a in arrays]
        return [a.to(self.working_dtype) for a in arrays]

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        return super().to_network(structure, arrays).to(dtype=self.dtype)

    def _in_order(self, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """The target stored in an order of the legs, size-1 axes for internal nodes; one copy is cached."""
        data_order = tuple(k for k in order if k < len(self.dims))
        stored = self._stored.get(data_order)
        if stored is None:
            if data_order == tuple(range(len(self.dims))):
                stored = self._natural
            else:
                stored = permuted_copy(self._natural, data_order)
            self._stored = {data_order: stored}  # one copy at most: targets can be large
        return stored.reshape(shape)

    # -- loss ------------------------------------------------------------------------------------------

    def dense(self, structure: Structure, arrays: Sequence[Array]) -> Array:
        return dense_plan(structure, self.is_complex).run(arrays)

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        if not self.is_rounded:
            return _norm(self._natural - self.dense(structure, arrays))
        return _norm(self._rest(self.to_network(structure, arrays)))

    def residual(self, network: TensorNetwork) -> DenseLeastSquares:
        return DenseLeastSquares(self._rest(network), use_numpy=self.use_numpy, in_single=self.is_rounded)

    def _rest(self, network: TensorNetwork) -> torch.Tensor:
        """What a network leaves of the target, in the precision of the target."""
        cores = [c.to(self.target) for c in network.cores]
        if not self.use_numpy:
            rest: torch.Tensor = self.target - self.dense(network.structure, cores)
            return rest
        dense = self.dense(network.structure, [c.resolve_conj().resolve_neg().numpy() for c in cores])
        return torch.from_numpy(self.target.numpy() - dense)

    # -- node problems ---------------------------------------------------------------------------------

    def visit(self, structure: Structure, arrays: list[Array], update: Update) -> None:
        plan = sweep_plan(structure, self.is_complex)

        def visit(node: int, gram: Array | None, rhs: Array) -> Array:
            arrays[node] = update(node, gram, rhs)
            return arrays[node]

        plan.run(self._in_order(plan.leg_order, plan.shape), self._rounded(arrays), visit)

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        cores = self._rounded(arrays)
        rest = self._natural - self.dense(structure, cores)
        plan = pair_plan(structure, tuple(edges), self.is_complex)
        environments = plan.run(rest.reshape(structure.leg_dims), cores)
        shared = PairContext(
            structure,
            cores,
            self.is_complex,
            lambda: self._node_grams(structure, cores),
            least_ridge=self.least_ridge,
            keeps_scale=self.is_rounded,  # chosen for errors whose squares do not vanish
        )
        return [DensePairProblem(env, shared) for env in environments]

    def _node_grams(self, structure: Structure, arrays: list[Array]) -> dict[int, Array]:
        """Gram of every node's environment, from a sweep that changes nothing."""
        grams: dict[int, Array] = {}

        def note(node: int, gram: Array | None, rhs: Array) -> Array:
            grams[node] = gram
            return arrays[node]

        self.visit(structure, list(arrays), note)
        return grams

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        return sweep_plan(structure, self.is_complex).program.flops

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        size, item = math.prod(self.dims), self.working_dtype.itemsize
        # The target in the order of the last sweep, and in that of a matrix product; or it, the network and
        # the difference.
        peak = sweep_plan(structure, self.is_complex).program.peak_entries
        needed = (max(peak, size) + 2 * size) * item + solve_bytes(structure, self.dtype)
        if self.is_rounded:  # the target in single precision; losses take the network and what it leaves
            needed = max(needed, 4 * size * item) + size * item
        if edges:
            plan = pair_plan(structure, tuple(edges), self.is_complex)
            # The same with the residual; gradients, which the peak counts, are put in order.
            gradients = sum(gradient_entries(structure, edges))
            needed = max(needed, (plan.program.peak_entries + gradients + 3 * size) * item)
        return needed


def gradient_entries(structure: Structure, edges: Sequence[Edge]) -> list[int]:
    """Entries of the pair gradient of each edge."""
    ends = [structure.leg_dim(k) * structure.bond_product(k) for k in range(structure.num_nodes)]
    return [ends[i] * ends[j] // structure.rank(i, j) ** 2 for i, j in edges]


def solve_bytes(structure: Structure, dtype: torch.dtype) -> int:
    """Bytes that the normal equations of the largest core take, beside its Gram matrix."""
    # The matrix in order, scaled, factorised, and as LAPACK overwrites it; the right-hand side likewise.
    shapes = ((d, structure.bond_product(k)) for k, d in enumerate(structure.leg_dims))
    return wide_dtype(dtype).itemsize * max(4 * m * m + 3 * d * m for d, m in shapes)


def numpy_is_faster(target: torch.Tensor) -> bool:
    """Small targets dispatch faster on NumPy; on one thread its BLAS also multiplies thin matrices faster."""
    if target.device.type != "cpu":
        return False
    if not can_limit_threads():  # NumPy's BLAS then starts threads that wait for each other
        return target.numel() <= 50_000
    # Above a million entries torch with all threads gains more than its dispatch costs.
    return target.numel() <= 1_000_000 or torch.get_num_threads() == 1


def permuted_copy(array: Array, axes: tuple[int, ...]) -> Array:
    """The array with its axes stored in this order."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array.transpose(axes))
    return array.permute(axes).contiguous()


def _norm(array: Array) -> float:
    """Norm, accumulated in double precision."""
    if isinstance(array, np.ndarray):
        wide = np.complex128 if array.dtype.kind == "c" else np.float64
        return float(np.linalg.norm(array.reshape(-1).astype(wide, copy=False)))
    return float(torch.linalg.vector_norm(array, dtype=wide_dtype(array.dtype)))
