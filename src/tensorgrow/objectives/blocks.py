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

import numpy as np
import torch

from ..algebra.linalg import is_single, solve_normal
from ..contraction import (
    Update,
    branch_plan,
    branches,
    gram_plan,
    pair_gram_plan,
    pair_plan,
    partial_target_plan,
    sweep_plan,
)
from ..data.blocks import Box, Partial, Reducer, entries_of, widen
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem
from .block_kernels import Model, PairGradients, PartialTarget, SquaredResidual, SquaredResiduals
from .dense_slices import DensePairProblem, PairContext

__all__ = ["BlockedLeastSquares"]

Array = Any

# A block as read, converted, less the network, and in the order of a matrix product.
COPIES_OF_A_BLOCK = 4
# Added to the unit diagonal of scaled Gram matrices where data is in single precision: right-hand sides are
# rounded to 1e-7, and in weaker directions nothing but that would be fitted.
SINGLE_RIDGE = 1e-8


class BlockedLeastSquares:
    """``||target - network||`` for a target that never is in memory as a whole.

    Parameters
    ----------
    reducer
        Sums over the blocks of the target.
    norm
        Norm of the target; by default one pass finds it.
    minus
        Networks that are subtracted from the target.
    """

    def __init__(self, reducer: Reducer, norm: float | None = None, minus: tuple[Model, ...] = ()) -> None:
        self.reducer = reducer
        self.dims = reducer.source.shape
        self.dtype: torch.dtype = getattr(torch, reducer.form.dtype)
        self.is_complex = self.dtype.is_complex
        self.use_numpy = reducer.form.device is None
        self._minus = minus
        self._given_norm = norm

    @property
    def validation_norm(self) -> None:
        """Nothing is held out."""

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return float(torch.finfo(self.dtype).eps)

    @cached_property
    def norm(self) -> float:
        """Frobenius norm of the target."""
        if self._given_norm is not None:
            return self._given_norm
        return math.sqrt(self.reducer.reduce(SquaredResidual(self._minus)).sums["residual"])

    # -- arrays ----------------------------------------------------------------------------------------

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores as NumPy arrays, or as tensors on the device that blocks move to."""
        where = self.reducer.form.device or "cpu"
        cores = [c.to(device=where, dtype=self.dtype).resolve_conj().resolve_neg() for c in network.cores]
        return [c.numpy() for c in cores] if self.use_numpy else cores

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """Wrap arrays as a network."""
        if not self.use_numpy:
            return TensorNetwork(structure, arrays)
        return TensorNetwork(structure, [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays])

    # -- loss ------------------------------------------------------------------------------------------

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """Norm of the residual, from the residual itself: one pass."""
        models = (*self._minus, Model(structure, tuple(arrays)))
        return math.sqrt(self.reducer.reduce(SquaredResidual(models)).sums["residual"])

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> None:
        """Nothing is held out."""

    def losses_of(self, networks: Sequence[TensorNetwork]) -> list[tuple[float, None]]:
        """Norms of the residuals of several networks: one pass."""
        if not networks:
            return []
        models = tuple(Model(n.structure, tuple(self.to_arrays(n))) for n in networks)
        sums = self.reducer.reduce(SquaredResiduals(models, self._minus)).sums
        return [(math.sqrt(sums[k]), None) for k in range(len(models))]

    def residual(self, network: TensorNetwork) -> BlockedLeastSquares:
        """Objective whose target is what the network does not explain; it is formed block by block."""
        model = Model(network.structure, tuple(self.to_arrays(network)))
        return BlockedLeastSquares(self.reducer, minus=(*self._minus, model))

    # -- node problems ---------------------------------------------------------------------------------

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once: one pass per child of the root, two in all."""
        explained = 0.0
        ridge = max(ridge, SINGLE_RIDGE) if is_single(self.dtype) else ridge

        def update(node: int, gram: Array | None, rhs: Array) -> Array:
            nonlocal explained
            core, explained = solve_normal(gram, rhs, ridge)
            arrays[node] = self._narrow(core)
            return widen(arrays[node])

        for branch in branches(structure):
            self._visit(structure, arrays, branch, update)
        return self.norm**2 - explained

    def _visit(self, structure: Structure, arrays: list[Array], branch: Any, update: Update) -> None:
        """Hand the normal equations of the nodes below a branch to `update`: one pass.

        They are in double precision, whatever the data is: rounded Gram matrices would make losses from
        ``||T||^2 - <X, rhs>`` wrong by more than a sweep gains.
        """
        plan = branch_plan(structure, branch, self.is_complex)
        kernel = PartialTarget(Model(structure, tuple(arrays)), plan.nodes, self._minus)
        found = self.reducer.reduce(kernel)
        legs = [k for k, node in enumerate(plan.nodes) if node < structure.order]
        partial = self._assembled(found, plan.shape, legs)
        plan.run(partial, [widen(a) for a in arrays], update)

    def _assembled(self, found: Partial, shape: tuple[int, ...], legs: Sequence[int]) -> Array:
        """One array in double precision from those of the blocks, keyed by the ranges of the axes `legs`."""
        total = self._zeros(shape)
        for ranges in list(found.sums):
            value = found.sums.pop(ranges)
            where = [slice(None)] * len(shape)
            for axis, (start, stop) in zip(legs, ranges):
                where[axis] = slice(start, stop)
            total[tuple(where)] += self._mine(value)
        return total

    def _zeros(self, shape: tuple[int, ...]) -> Array:
        if self.use_numpy:
            return np.zeros(shape, dtype=np.complex128 if self.is_complex else np.float64)
        wide = torch.complex128 if self.is_complex else torch.float64
        return torch.zeros(shape, dtype=wide, device=self.reducer.form.device)

    def _mine(self, value: Array) -> Array:
        """A sum as it came back, where the driver computes."""
        return value if self.use_numpy else torch.as_tensor(value, device=self.reducer.form.device)

    def _narrow(self, value: Array) -> Array:
        return value.astype(self.reducer.form.dtype) if self.use_numpy else value.to(self.dtype)

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """Gram and right-hand side of one node: one pass that changes nothing."""
        arrays = self.to_arrays(network)
        found: dict[int, NormalEquations] = {}

        def note(k: int, gram: Array | None, rhs: Array) -> Array:
            found[k] = NormalEquations(None if gram is None else self._narrow(gram), self._narrow(rhs))
            return widen(arrays[k])

        for branch in branches(network.structure):
            if node in branch_plan(network.structure, branch, self.is_complex).nodes:
                self._visit(network.structure, arrays, branch, note)
        return found[node]

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Target contracted with all cores but two: one pass."""
        model = Model(network.structure, tuple(self.to_arrays(network)))
        return self._gradients(PairGradients(model, (edge,), self._minus))[edge]

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems of all edges on the residual: one pass; the slices are fitted in one place."""
        if not edges:
            return []
        model = Model(structure, tuple(arrays))
        gradients = self._gradients(PairGradients(model, tuple(edges), (*self._minus, model)))
        cores = list(arrays)
        shares = pair_plan(structure, tuple(edges), self.is_complex).shares
        environments = pair_gram_plan(structure, tuple(edges), self.is_complex, shares).run(None, cores)
        shared = PairContext(
            structure, cores, self.is_complex, lambda: self._node_grams(structure, cores), may_densify=False
        )
        found: list[PairProblem] = []
        for environment in environments:
            environment.gradient = gradients[environment.edge]
            found.append(DensePairProblem(environment, shared))
        return found

    def _gradients(self, kernel: PairGradients) -> dict[Edge, Array]:
        """Gradient matrix of every edge."""
        structure = kernel.network.structure
        sums = self.reducer.reduce(kernel).sums
        keys: dict[Edge, list[Any]] = {}
        for key in sums:
            keys.setdefault(key[0], []).append(key)
        found: dict[Edge, Array] = {}
        for i, j in kernel.edges:
            n_i, n_j = (structure.bond_product(a, without=b) for a, b in ((i, j), (j, i)))
            whole = self._zeros((structure.leg_dim(i), n_i, structure.leg_dim(j), n_j))
            for key in keys[i, j]:
                _, rows, columns = key
                part = self._mine(sums.pop(key))  # freed at once: gradients can be the largest arrays here
                part = part.reshape(rows[1] - rows[0], n_i, -1, n_j)
                whole[rows[0] : rows[1], :, columns[0] : columns[1]] += part
            found[i, j] = self._narrow(whole).reshape(whole.shape[0] * n_i, whole.shape[2] * n_j)
        return found

    def _node_grams(self, structure: Structure, arrays: list[Array]) -> dict[int, Array]:
        """Gram of every node's environment, from the cores."""
        return {k: gram_plan(structure, k, self.is_complex).run(arrays) for k in range(structure.num_nodes)}

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        """Flops of a sweep, as if the target were in memory."""
        return sweep_plan(structure, self.is_complex).program.flops

    def memory_needed(self, structure: Structure, *, pairs: bool = True) -> int:
        """Blocks at work, sums on their way, and the partial target or the gradients of all pairs.

        Without `pairs` what a fit needs, which scores no edges.
        """
        item = torch.empty((), dtype=self.dtype).element_size()
        wide = 16 if self.is_complex else 8
        box = max(self.reducer.boxes, key=entries_of)
        part = self._part(structure, box)
        block = sums = 0
        for branch in branches(structure):
            plan = branch_plan(structure, branch, self.is_complex)
            here = partial_target_plan(part, plan.nodes, self.is_complex).program.peak_entries
            block = max(block, here)
            whole = (2 * math.prod(plan.shape) + plan.program.peak_entries) * wide
            sums = max(sums, whole)
        block = (COPIES_OF_A_BLOCK * entries_of(box) + block) * item
        if not pairs:
            return self.reducer.at_once * block + 2 * sums
        sums = max(sums, _pair_entries(structure) * (wide + item) + _largest_pair(structure) * wide)
        waiting = _pair_entries(part) * wide
        return self.reducer.at_once * (block + waiting) + sums

    @staticmethod
    def _part(structure: Structure, box: Box) -> Structure:
        dims = tuple(stop - start for start, stop in box)
        return Structure(dims, structure.ranks, num_nodes=structure.num_nodes)


def _pair_entries(structure: Structure) -> int:
    """Entries of the gradients of all pairs of nodes together."""
    ends = [structure.leg_dim(k) * structure.bond_product(k) for k in range(structure.num_nodes)]
    return (sum(ends) ** 2 - sum(e * e for e in ends)) // 2


def _largest_pair(structure: Structure) -> int:
    ends = sorted(structure.leg_dim(k) * structure.bond_product(k) for k in range(structure.num_nodes))
    return math.prod(ends[-2:])
