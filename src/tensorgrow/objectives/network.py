"""A target that is a tensor network itself, and is never formed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from ..algebra.distance import factor_plan, joint_factor
from ..algebra.linalg import wide_dtype
from ..contraction import Array, Update, cross_data, cross_inner_plan, cross_pair_plan, cross_sweep_plan
from ..data.devices import can_limit_threads
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NodeVisits
from .compressed import NODE_FLOPS
from .dense import gradient_entries, solve_bytes
from .dense_slices import DensePairProblem, PairContext
from .slices import PairProblem


class NetworkLeastSquares(NodeVisits):
    """``||target - network||`` for a target that is a network, of the dtype and on the device to compute in.

    Parameters
    ----------
    target
        The network; its tensor is never formed.
    careful
        Whether losses that inner products cannot tell are computed by orthogonal factorisations, which takes
        more memory. Without, losses below 1e-7 of the norm are mostly rounding.
    use_numpy
        Compute with NumPy instead of torch; by default on the CPU.
    """

    def __init__(self, target: TensorNetwork, *, careful: bool = True, use_numpy: bool | None = None) -> None:
        cores = [c.detach().resolve_conj().resolve_neg() for c in target.cores]
        self.target = TensorNetwork(target.structure, cores)
        self.dims = target.structure.dims
        self.dtype, self.device = target.dtype, target.device
        self.is_complex, self.careful = target.is_complex, careful
        is_numpy = target.device.type == "cpu" and can_limit_threads()
        self.use_numpy = is_numpy if use_numpy is None else use_numpy
        self._arrays = self.to_arrays(self.target)

    # -- loss ------------------------------------------------------------------------------------------

    @cached_property
    def _wide(self) -> TensorNetwork:
        return self.target.to(dtype=wide_dtype(self.dtype))

    @cached_property
    def norm(self) -> float:
        if not self.careful:
            return self._wide.norm()
        return float(torch.linalg.vector_norm(joint_factor([(self._wide.structure, self._wide.cores)])))

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        network = self.to_network(structure, arrays).to(dtype=self._wide.dtype)
        squared = self._squared_loss(network)
        # Sums of inner products are rounded at about 1e-15 of the squared norm: here they still tell the loss
        # to 1e-5 of itself.
        if squared > 1e-10 * self.norm**2 or not self.careful:
            return math.sqrt(max(squared, 0.0))
        both = [(n.structure, n.cores) for n in (self._wide, network)]
        factor = joint_factor(both)
        return float(torch.linalg.vector_norm(factor[:, 0] - factor[:, 1]))

    def _squared_loss(self, network: TensorNetwork) -> float:
        """From inner products, in double precision."""
        cross, own = (self._inner(network, other) for other in (self._wide, network))
        return self.norm**2 - 2.0 * cross + own

    def _inner(self, network: TensorNetwork, other: TensorNetwork) -> float:
        """Real part of an inner product."""
        first, second = network.structure, other.structure
        mine, theirs = ([_plain(c) if self.use_numpy else c for c in n.cores] for n in (network, other))
        plan = cross_inner_plan(first, second, self.is_complex)
        return float(plan.run([*mine, *cross_data(first, second, theirs)]).real)

    def residual(self, network: TensorNetwork) -> NetworkLeastSquares:
        rest = self.target - network.to(self.device, self.dtype)
        return NetworkLeastSquares(rest, careful=self.careful, use_numpy=self.use_numpy)

    # -- node problems ---------------------------------------------------------------------------------

    def _data(self, structure: Structure) -> list[Array]:
        return cross_data(structure, self.target.structure, self._arrays)

    def visit(self, structure: Structure, arrays: list[Array], update: Update) -> None:
        def visit(node: int, gram: Array | None, rhs: Array) -> Array:
            arrays[node] = update(node, gram, rhs)
            return arrays[node]

        plan = cross_sweep_plan(structure, self.target.structure, self.is_complex)
        plan.run(self._data(structure), list(arrays), visit)

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        cores = list(arrays)
        plan = cross_pair_plan(structure, self.target.structure, tuple(edges), True, self.is_complex)
        environments = plan.run(self._data(structure), cores)
        mine = cross_pair_plan(structure, structure, tuple(edges), False, self.is_complex)
        explained = mine.run(cross_data(structure, structure, cores), cores)
        for env, own in zip(environments, explained):
            env.gradient = env.gradient - own.gradient
        shared = PairContext(
            structure, cores, self.is_complex, lambda: self._node_grams(structure, cores), may_densify=False
        )
        return [DensePairProblem(env, shared) for env in environments]

    def screen(self, structure: Structure, edges: list[Edge]) -> list[Edge]:
        """Of very many edges those between nodes that are close in the network, or in the target."""
        if len(edges) <= 66:  # those of 12 modes; every further one takes some 10 ms to plan and to score
            return edges
        near = {e for s in (structure, self.target.structure) for e in _close_pairs(s)}
        return [e for e in edges if e in near]

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        program = cross_sweep_plan(structure, self.target.structure, self.is_complex).program
        return program.cost + NODE_FLOPS * structure.num_nodes

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        target, item = self.target.structure, self.dtype.itemsize
        peak = cross_sweep_plan(structure, target, self.is_complex).program.peak_entries
        needed = peak * item + solve_bytes(structure, self.dtype)
        wide = self._wide.dtype.itemsize
        if self.careful:  # the matrix, its triangle, and what LAPACK overwrites
            needed = max(needed, 3 * factor_plan((target, structure)).peak_entries * wide)
        if edges:
            plans = (
                cross_pair_plan(structure, target, tuple(edges), True, self.is_complex),
                cross_pair_plan(structure, structure, tuple(edges), False, self.is_complex),
            )
            gradients = 2 * sum(gradient_entries(structure, edges))
            needed = max(needed, (sum(p.program.peak_entries for p in plans) + gradients) * item)
        return needed


def _plain(core: torch.Tensor) -> Array:
    return np.ascontiguousarray(core.numpy())


def _close_pairs(structure: Structure) -> set[Edge]:
    """Pairs of nodes with an edge, or a common neighbour."""
    around = structure.neighbours
    return {(i, j) for i, near in enumerate(around) for k in near for j in (k, *around[k]) if i < j}
