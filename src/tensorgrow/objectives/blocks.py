"""A dense tensor that is read block by block: from files, or spread over a cluster.

Cores travel out to the blocks, small sums travel back. Gram matrices need only the cores. A sweep reads the
data twice (once per child of the root of the dimension tree); a loss reads it once, and so does the scoring
of all edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from ..algebra.linalg import is_single, wide_dtype
from ..contraction import (
    Array,
    Update,
    branch_plan,
    branches,
    gram_plan,
    pair_gradient_plan,
    pair_gram_plan,
    pair_plan,
    partial_target_plan,
    sweep_plan,
    whole_gram,
)
from ..data.blocks import Reducer, entries_of, widen
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NodeVisits, SharesPasses
from .block_kernels import Model, PairGradients, PartialTarget, SquaredResiduals
from .dense import gradient_entries, solve_bytes
from .dense_slices import DensePairProblem, PairContext
from .slices import PairProblem

# A block as read, converted, less the network, and in the order of a matrix product.
COPIES_OF_A_BLOCK = 4


class BlockedLeastSquares(NodeVisits, SharesPasses):
    """``||target - network||`` for a target that is never in memory as a whole.

    Parameters
    ----------
    reducer
        Sums over the blocks of the target.
    norm
        Norm of the target; by default it takes one pass.
    minus
        Networks that are subtracted from the target.
    """

    def __init__(self, reducer: Reducer, norm: float | None = None, minus: tuple[Model, ...] = ()) -> None:
        self.reducer = reducer
        self.dims = reducer.source.shape
        self.dtype: torch.dtype = getattr(torch, reducer.form.dtype)
        self.is_complex = self.dtype.is_complex
        self.use_numpy = reducer.form.device is None
        self.device = reducer.form.device or "cpu"
        self._minus = minus
        self._known_norm = norm

    @cached_property
    def norm(self) -> float:
        return self._losses(self._minus)[0] if self._known_norm is None else self._known_norm

    # -- loss ------------------------------------------------------------------------------------------

    def _losses(self, *groups: tuple[Model, ...]) -> list[float]:
        """Norms of the data less the models of each group: one pass."""
        sums = self.reducer.reduce(SquaredResiduals(groups)).sums
        return [math.sqrt(sums[k]) for k in range(len(groups))]

    def _with(self, network: TensorNetwork) -> tuple[Model, ...]:
        return (*self._minus, Model(network.structure, tuple(self.to_arrays(network))))

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        return self._losses((*self._minus, Model(structure, tuple(arrays))))[0]

    def losses_of(self, networks: Sequence[TensorNetwork]) -> list[tuple[float, float | None]]:
        if not networks:
            return []
        return [(loss, None) for loss in self._losses(*map(self._with, networks))]

    def residual(self, network: TensorNetwork) -> BlockedLeastSquares:
        return BlockedLeastSquares(self.reducer, minus=self._with(network))

    # -- node problems ---------------------------------------------------------------------------------

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        if is_single(self.dtype):
            # Right-hand sides are rounded to 1e-7, and in weaker directions nothing but that would be fitted.
            ridge = max(ridge, 1e-8)
        return super().sweep(structure, arrays, ridge)

    def visit(self, structure: Structure, arrays: list[Array], update: Update) -> None:
        """See `NodeVisits`; a pass per branch.

        Normal equations are in double precision whatever the data is: rounded ones would make losses from
        ``||T||^2 - <X, rhs>`` wrong by more than a sweep gains.
        """

        def visit(node: int, gram: Array | None, rhs: Array) -> Array:
            arrays[node] = self._narrow(update(node, gram, rhs))
            return widen(arrays[node])

        for branch in branches(structure):
            plan = branch_plan(structure, branch, self.is_complex)
            kernel = PartialTarget(Model(structure, tuple(arrays)), plan.leg_order, self._minus)
            legs = [k for k, node in enumerate(plan.leg_order) if node < structure.order]
            partial = self._assemble(self.reducer.reduce(kernel).sums, plan.shape, legs)
            plan.run(partial, [widen(a) for a in arrays], visit)

    def _assemble(self, parts: dict[Any, Array], shape: tuple[int, ...], legs: Sequence[int]) -> Array:
        """One array in double precision from those of the blocks, keyed by the ranges of the axes `legs`."""
        total: Array = torch.zeros(shape, dtype=wide_dtype(self.dtype), device=self.device)
        if self.use_numpy:
            total = total.numpy()
        for ranges in list(parts):
            where = [slice(None)] * len(shape)
            for axis, (start, stop) in zip(legs, ranges):
                where[axis] = slice(start, stop)
            part = parts.pop(ranges)  # freed at once: gradients can be the largest arrays here
            part = part if self.use_numpy else torch.as_tensor(part, device=self.device)
            view = total[tuple(where)]
            view += part.reshape(view.shape)
        return total

    def _narrow(self, value: Array) -> Array:
        return value.astype(self.reducer.form.dtype) if self.use_numpy else value.to(self.dtype)

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        model = Model(structure, tuple(arrays))
        gradients = self._gradients(PairGradients(model, tuple(edges), (*self._minus, model)))
        cores = list(arrays)
        shares = pair_plan(structure, tuple(edges), self.is_complex).shares
        environments = pair_gram_plan(structure, tuple(edges), self.is_complex, shares).run((), cores)

        def node_grams() -> dict[int, Array]:
            plans = (gram_plan(structure, k, self.is_complex) for k in range(structure.num_nodes))
            return {k: whole_gram(plan.run(cores)) for k, plan in enumerate(plans)}

        shared = PairContext(structure, cores, self.is_complex, node_grams, may_densify=False)
        for environment in environments:
            environment.gradient = gradients[environment.edge]
        return [DensePairProblem(e, shared) for e in environments]

    def _gradients(self, kernel: PairGradients) -> dict[Edge, Array]:
        structure = kernel.network.structure
        sums = self.reducer.reduce(kernel).sums
        parts: dict[Edge, dict[Any, Array]] = {edge: {} for edge in kernel.edges}
        for edge, *ranges in list(sums):
            parts[edge][tuple(ranges)] = sums.pop((edge, *ranges))
        gradients: dict[Edge, Array] = {}
        for i, j in kernel.edges:
            n_i, n_j = (structure.bond_product(a, without=b) for a, b in ((i, j), (j, i)))
            d_i, d_j = structure.leg_dim(i), structure.leg_dim(j)
            whole = self._assemble(parts[i, j], (d_i, n_i, d_j, n_j), (0, 2))
            gradients[i, j] = self._narrow(whole).reshape(d_i * n_i, d_j * n_j)
        return gradients

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        return sweep_plan(structure, self.is_complex).program.flops

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        """Blocks at work, sums on their way, and the partial target or the gradients of the edges."""
        item = self.dtype.itemsize
        wide = wide_dtype(self.dtype).itemsize
        box = max(self.reducer.boxes, key=entries_of)
        part = Structure(
            [stop - start for start, stop in box], structure.ranks, num_nodes=structure.num_nodes
        )
        block = sums = 0
        for branch in branches(structure):
            plan = branch_plan(structure, branch, self.is_complex)
            here = partial_target_plan(part, plan.leg_order, self.is_complex).program.peak_entries
            block = max(block, here)
            sums = max(sums, (2 * math.prod(plan.shape) + plan.program.peak_entries) * wide)
        block = (COPIES_OF_A_BLOCK * entries_of(box) + block) * item
        needed = self.reducer.at_once * block + 2 * sums + solve_bytes(structure, self.dtype)
        if edges:
            program = pair_gradient_plan(part, tuple(edges), self.is_complex).program
            block = COPIES_OF_A_BLOCK * entries_of(box) + program.peak_entries
            gradients = gradient_entries(structure, edges)
            sums = sum(gradients) * (wide + item) + max(gradients) * wide
            waiting = sum(gradient_entries(part, edges)) * (wide + item)  # in order, then added up
            at_once = self.reducer.at_once
            needed = max(needed, at_once * block * item + (at_once + 1) * waiting + sums)
        return needed


def squared_errors(reducer: Reducer, network: TensorNetwork) -> tuple[float, float]:
    """Squared norms of what a network leaves of the data, and of the data itself: one pass."""
    arrays = BlockedLeastSquares(reducer).to_arrays(network)
    sums = reducer.reduce(SquaredResiduals(((Model(network.structure, tuple(arrays)),), ()))).sums
    return sums[0], sums[1]
