"""A tensor given by a small core in orthonormal bases of its modes.

With ``T = G x_1 U_1 ... x_p U_p + R`` and orthonormal ``U_k`` that ``R`` is orthogonal to, the best cores lie
in the ranges of the bases, and ``||T - X||^2 = ||R||^2 + ||G - X'||^2``, with ``X`` in the bases as ``X'``.
So everything is computed on the core, while structures, sizes and networks are those of the full tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem, SliceFit
from .dense import DenseLeastSquares

__all__ = ["CompressedLeastSquares"]

Array = Any
Basis = torch.Tensor | None


class CompressedLeastSquares:
    """``||target - network||`` for a target known through a core, bases and the norm of the rest.

    Parameters
    ----------
    core
        The tensor in the bases.
    bases
        One matrix with orthonormal columns per mode; None where the mode is as it was.
    rest
        Norm of what the bases leave out.
    """

    def __init__(self, core: torch.Tensor, bases: Sequence[Basis], rest: float) -> None:
        self._inner = DenseLeastSquares(core)
        self._bases = [None if u is None else u.to(device=core.device, dtype=core.dtype) for u in bases]
        self.dims = tuple(n if u is None else u.shape[0] for n, u in zip(core.shape, bases))
        self.rest = rest
        self.norm = math.hypot(self._inner.norm, rest)
        self.use_numpy = self._inner.use_numpy

    @property
    def validation_norm(self) -> None:
        """Nothing is held out."""

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return self._inner.epsilon

    def _small(self, structure: Structure) -> Structure:
        """The structure over the core."""
        return Structure(self._inner.dims, structure.ranks, num_nodes=structure.num_nodes)

    # -- arrays ----------------------------------------------------------------------------------------

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores in the bases."""
        return self._inner.to_arrays(self._lowered(network))

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """Cores over the full modes."""
        small = self._inner.to_network(self._small(structure), arrays)
        cores = [
            c if self._basis(k) is None else torch.tensordot(self._basis(k), c, dims=1)
            for k, c in enumerate(small.cores)
        ]
        return TensorNetwork(structure, cores)

    def _basis(self, node: int) -> Any:
        return self._bases[node] if node < len(self._bases) else None

    def _lowered(self, network: TensorNetwork) -> TensorNetwork:
        like = self._inner.target
        cores = []
        for k, core in enumerate(network.cores):
            core = core.to(device=like.device, dtype=like.dtype)
            basis = self._basis(k)
            cores.append(core if basis is None else torch.tensordot(basis.mH, core, dims=1))
        return TensorNetwork(self._small(network.structure), cores)

    # -- loss and node problems ------------------------------------------------------------------------

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """Norm of the residual on the full tensor."""
        return math.hypot(self._inner.loss(self._small(structure), arrays), self.rest)

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> None:
        """Nothing is held out."""

    def residual(self, network: TensorNetwork) -> CompressedLeastSquares:
        """Objective whose target is what the network does not explain."""
        rest = self._inner.residual(self._lowered(network))
        return CompressedLeastSquares(rest.target, self._bases, self.rest)

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once, on the core."""
        return self._inner.sweep(self._small(structure), arrays, ridge) + self.rest**2

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """Gram and right-hand side of one node in the bases."""
        return self._inner.normal_equations(self._lowered(network), node)

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Core contracted with all cores but two, in the bases."""
        return self._inner.pair_gradient(self._lowered(network), edge)

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems on the core, whose slices are over the full modes."""
        found = self._inner.pair_problems(self._small(structure), arrays, edges)
        return [LiftedPairProblem(p, *(self._basis(k) for k in p.edge)) for p in found]

    def sweep_flops(self, structure: Structure) -> float:
        """Flops of a sweep over the core."""
        return self._inner.sweep_flops(self._small(structure))

    def memory_needed(self, structure: Structure) -> int:
        """What the core needs."""
        return self._inner.memory_needed(self._small(structure))


class LiftedPairProblem:
    """A slice problem in bases, whose answer is over the full modes."""

    def __init__(self, inner: PairProblem, left: Basis, right: Basis) -> None:
        self._inner, self._left, self._right = inner, left, right
        self.edge, self.gradient = inner.edge, inner.gradient

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Slices found in the bases."""
        found = self._inner.fit(right, sweeps)
        return SliceFit(_lifted(found.left, self._left), _lifted(found.right, self._right), found.explained)


def _lifted(piece: Array, basis: Basis) -> Array:
    if basis is None:
        return piece
    here = basis if isinstance(piece, torch.Tensor) else basis.numpy()
    return (here @ piece.reshape(here.shape[1], -1)).reshape(-1)
