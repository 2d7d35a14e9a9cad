"""A dense tensor in memory, on CPU or GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch

from ..algebra.linalg import Number, single_dtype, wide_dtype
from ..contraction import Array, SweepPlan, Update, dense_plan, halves_plan, pair_plan, sweep_plan
from ..contraction.sweeps import MANY_ENTRIES
from ..contraction.thin import thin_product
from ..data.arrays import norm_of
from ..data.devices import can_limit_threads
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import InTurn, NodeVisits, Recording
from .dense_slices import DensePairProblem, PairContext
from .slices import PairProblem

# Arithmetic of a sweep from which single precision is worth it: less is mostly dispatch. One of 3.4e9 takes
# 83 instead of 156 ms.
SINGLE_FLOPS = 1e8
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
    may_round
        Where sweeps are costly, sweep and score in single precision; networks and losses stay in that of the
        target. For errors that are far above single rounding.
    norm
        Norm of the target, where it is known.
    """

    def __init__(
        self,
        target: torch.Tensor,
        *,
        use_numpy: bool | None = None,
        may_round: bool = False,
        norm: float | None = None,
    ) -> None:
        self.target = target = target.resolve_conj().resolve_neg()
        self.dims = tuple(target.shape)
        self.dtype, self.device = target.dtype, target.device
        self.may_round = may_round and target.dtype == wide_dtype(target.dtype)
        self.use_numpy = numpy_is_faster(target) if use_numpy is None else use_numpy
        self.is_complex = target.is_complex()
        self._stored: dict[tuple[int, ...], Array] = {}
        self._ready: tuple[SweepPlan, Array, Mapping[int, Array]] | None = None
        # What the last sweep ended with: structure, cores, squared loss.
        self._swept: tuple[Structure, list[Array], float] | None = None
        self._known_norm = norm

    def on(self, device: torch.device) -> DenseLeastSquares:
        return DenseLeastSquares(self.target.to(device), may_round=self.may_round and device.type == "cpu")

    @cached_property
    def norm(self) -> float:
        return norm_of(self.target) if self._known_norm is None else self._known_norm

    def is_rounded(self, structure: Structure) -> bool:
        return self.may_round and self.sweep_flops(structure) >= SINGLE_FLOPS

    def in_full(self) -> DenseLeastSquares:
        return self._in_full if self.may_round else self

    @cached_property
    def _in_full(self) -> DenseLeastSquares:
        return DenseLeastSquares(self.target, use_numpy=self.use_numpy)

    def least_ridge(self, structure: Structure) -> float:
        return SINGLE_RIDGE if self.is_rounded(structure) else 0.0

    @cached_property
    def _natural(self) -> Array:
        return self.target.numpy() if self.use_numpy else self.target

    @cached_property
    def _rounded(self) -> Array:
        """The target in single precision."""
        target = self.target.to(single_dtype(self.dtype))
        return target.numpy() if self.use_numpy else target

    def _working(self, structure: Structure, arrays: Sequence[Array]) -> tuple[Array, list[Array]]:
        """Target and cores in the precision to compute in."""
        if not self.is_rounded(structure):
            return self._natural, list(arrays)
        target = self._rounded
        if self.use_numpy:
            return target, [a.astype(target.dtype, copy=False) for a in arrays]
        return target, [a.to(target.dtype) for a in arrays]

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        return super().to_network(structure, arrays).to(dtype=self.dtype)

    def _in_order(self, target: Array, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """The target stored in an order of the legs, size-1 axes for internal nodes; one copy is cached."""
        data_order = tuple([k for k in order if k < len(self.dims)])
        stored = self._stored.get(data_order)
        if stored is None or stored.dtype != target.dtype:
            if data_order == tuple(range(len(self.dims))):
                stored = target
            else:
                stored = permuted_copy(target, data_order)
            self._stored = {data_order: stored}  # one copy at most: targets can be large
        return stored.reshape(shape)

    def _laid_out(self, plan: SweepPlan, target: Array) -> Mapping[int, Array]:
        """What a sweep reads of the target; that of the last plan is kept."""
        if self._ready is not None and self._ready[0] is plan and self._ready[1] is target:
            return self._ready[2]
        self._ready = None  # the old copies go before new ones are made
        ready = plan.lay_out(self._in_order(target, plan.leg_order, plan.shape))
        self._ready = plan, target, ready
        return ready

    # -- loss ------------------------------------------------------------------------------------------

    def dense(self, structure: Structure, arrays: Sequence[Array]) -> Array:
        return dense_plan(structure, self.is_complex).run(arrays)

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        if arrays[0].dtype != self._natural.dtype:
            arrays = self.to_arrays(self.to_network(structure, arrays))
        if self.use_numpy and self._natural.size >= MANY_ENTRIES and len(self.dims) > 1:
            return self._loss_in_parts(structure, arrays)
        return _norm(self._natural - self.dense(structure, arrays))

    def _loss_in_parts(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """`loss`, some rows of the tensor as a matrix at a time, which stay in the cache.

        At once, memory for the network and the difference is asked of the system each time: 40^4 in 8.4
        instead of 2.9 ms.
        """
        target, done, total = self._natural.reshape(-1), 0, 0.0
        room = np.empty(0, dtype=target.dtype)
        for rows, columns in halves_plan(structure, self.is_complex).parts(arrays):
            size = len(rows) * columns.shape[1]
            room = room[:size] if len(room) >= size else np.empty(size, dtype=target.dtype)
            np.matmul(rows, columns, out=room.reshape(len(rows), -1))
            room -= target[done : done + size]
            total, done = total + _norm(room) ** 2, done + size
        return math.sqrt(total)

    def loss_from_sums(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """`loss` as ``||T||^2 - 2 <T, X> + ||X||^2`` to 10 digits; None where it may have fewer.

        The target is read once, and nothing of its size is written: 40^4 in 1.3 instead of 3.0 ms. It is not
        read at all for the network that the last sweep ended with: that had the same sums.
        """
        is_large = self.use_numpy and self._natural.size >= MANY_ENTRIES and len(self.dims) > 1
        if not is_large or self._natural.dtype != np.float64:
            return None
        rows, columns = halves_plan(structure, False).run(arrays)
        left, right = rows.T @ rows, columns @ columns.T
        squared = self._squared_after_sweep(structure, arrays)
        if squared is None:
            inner = np.vdot(columns, thin_product(rows.T, self._natural.reshape(len(rows), -1)))
            squared = self.norm**2 - 2.0 * float(inner) + float(np.vdot(left, right))
        # Sums of squares have 14 digits of what is added up, which may be far larger than the network.
        terms = self.norm + float(np.sqrt(left.diagonal() * right.diagonal()).sum())
        return math.sqrt(squared) if squared >= 1e-4 * terms**2 else None

    def _squared_after_sweep(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """The squared loss that the last sweep ended with; None where that was another network."""
        if self._swept is None or self.is_rounded(structure):
            return None
        swept, cores, squared = self._swept
        is_same = swept == structure and all(map(np.array_equal, cores, arrays))
        return squared if is_same else None

    def residual(self, network: TensorNetwork) -> DenseLeastSquares:
        rest = self._natural - self.dense(network.structure, self.to_arrays(network))
        tensor = torch.from_numpy(rest) if self.use_numpy else rest
        return DenseLeastSquares(tensor, use_numpy=self.use_numpy, may_round=self.may_round)

    # -- node problems ---------------------------------------------------------------------------------

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        squared = super().sweep(structure, arrays, ridge)
        if self.use_numpy:
            self._swept = structure, list(arrays), squared
        return squared

    def visit(self, structure: Structure, arrays: list[Array], update: Update) -> None:
        plan = sweep_plan(structure, self.is_complex)
        target, cores = self._working(structure, arrays)
        _visit(plan, self._laid_out(plan, target), cores, arrays, update)

    def recording(self, structure: Structure, ridge: float) -> Recording | None:
        if self.use_numpy or self.is_rounded(structure):
            return None
        plan = sweep_plan(structure, self.is_complex)
        target = self._laid_out(plan, self._natural)

        def solve(arrays: list[Array], numbers: Sequence[Number]) -> torch.Tensor:
            solver = InTurn(ridge, careful=False)
            _visit(plan, target, arrays, arrays, solver)
            explained = torch.as_tensor(solver.explained)
            # The host, which looks, then computes the loss anew.
            return torch.where(self.norm**2 - explained < solver.rounding, math.nan, explained)

        return Recording(
            (id(self), structure, ridge), (), solve, lambda arrays, explained: self.norm**2 - explained
        )

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        target, cores = self._working(structure, arrays)
        rest = target - self.dense(structure, cores)
        plan = pair_plan(structure, tuple(edges), self.is_complex)
        environments = plan.run([rest.reshape(structure.leg_dims)], cores)
        shared = PairContext(
            structure,
            cores,
            self.is_complex,
            lambda: self._node_grams(structure, cores),
            least_ridge=self.least_ridge(structure),
            keeps_scale=self.may_round,  # errors are such that squares do not vanish
        )
        return [DensePairProblem(env, shared) for env in environments]

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        return sweep_plan(structure, self.is_complex).program.flops

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        size, item = math.prod(self.dims), self.target.element_size()
        # The target in the order of the last sweep, and in that of a matrix product; or it, the network and
        # the difference.
        sweep = sweep_plan(structure, self.is_complex)
        copies = max(1, len(sweep.layouts))
        needed = (max(sweep.program.peak_entries, size) + (1 + copies) * size) * item
        needed += solve_bytes(structure, self.dtype)
        if edges:
            plan = pair_plan(structure, tuple(edges), self.is_complex)
            # The same with the residual; gradients, which the peak counts, are put in order.
            gradients = sum(gradient_entries(structure, edges))
            needed = max(needed, (plan.program.peak_entries + gradients + 3 * size) * item)
        # Fits may turn out to need full precision, beside the target in single precision, stored twice.
        return needed + (size * item if self.is_rounded(structure) else 0)


def _visit(
    plan: SweepPlan, target: Mapping[int, Array], cores: list[Array], arrays: list[Array], update: Update
) -> None:
    """Visit every node of a plan, from some cores; `arrays` takes the new ones."""

    def visit(node: int, gram: Array | None, rhs: Array) -> Array:
        arrays[node] = update(node, gram, rhs)
        return arrays[node]

    plan.run(target, cores, visit)


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
