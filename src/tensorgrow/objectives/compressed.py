"""A tensor given by a small core in orthonormal bases of its modes.

With ``T = G x_1 U_1 ... x_p U_p + R`` and orthonormal ``U_k`` that ``R`` is orthogonal to, the best cores lie
in the ranges of the bases, and ``||T - X||^2 = ||R||^2 + ||G - X'||^2``, with ``X`` in the bases as ``X'``.
So everything is computed on the core, while structures, sizes and networks are those of the full tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from ..contraction import Array
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import LeastSquares, Recording
from .dense import DenseLeastSquares
from .slices import ChangedPairProblem, PairProblem, SliceFit

Basis = torch.Tensor | None


class CompressedLeastSquares(LeastSquares):
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
        self.core = core
        # Conjugates that are not written out yet cannot become NumPy arrays.
        self.bases = [None if u is None else u.to(core.device, core.dtype).resolve_conj() for u in bases]
        self.dims = tuple(n if u is None else u.shape[0] for n, u in zip(core.shape, bases))
        self.dtype, self.device, self.use_numpy = core.dtype, core.device, self._inner.use_numpy
        self.rest = rest

    @property
    def norm(self) -> float:
        return math.hypot(self._inner.norm, self.rest)

    def _small(self, structure: Structure) -> Structure:
        return Structure(self._inner.dims, structure.ranks, num_nodes=structure.num_nodes)

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        return self._inner.to_arrays(self._lower(network))

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        small = self._inner.to_network(self._small(structure), arrays)
        cores = [_lift(c, self._basis(k)) for k, c in enumerate(small.cores)]
        return TensorNetwork(structure, cores)

    def _basis(self, node: int) -> Basis:
        return self.bases[node] if node < len(self.bases) else None

    def _lower(self, network: TensorNetwork) -> TensorNetwork:
        cores = []
        for k, core in enumerate(network.cores):
            core = core.to(device=self.device, dtype=self.dtype)
            basis = self._basis(k)
            cores.append(core if basis is None else torch.tensordot(basis.mH, core, dims=1))
        return TensorNetwork(self._small(network.structure), cores)

    # -- loss and node problems ------------------------------------------------------------------------

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        return math.hypot(self._inner.loss(self._small(structure), arrays), self.rest)

    def residual(self, network: TensorNetwork) -> CompressedLeastSquares:
        rest = self._inner.residual(self._lower(network))
        return CompressedLeastSquares(rest.target, self.bases, self.rest)

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        return self._inner.sweep(self._small(structure), arrays, ridge) + self.rest**2

    def recording(self, structure: Structure, ridge: float) -> Recording | None:
        inner = self._inner.recording(self._small(structure), ridge)
        if inner is None:
            return None
        squared_loss = inner.squared_loss
        return replace(inner, squared_loss=lambda *now: squared_loss(*now) + self.rest**2)

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        inner = self._inner.pair_problems(self._small(structure), arrays, edges)
        return [ChangedPairProblem(p, partial(self._lift_slices, p.edge)) for p in inner]

    def _lift_slices(self, edge: Edge, fit: SliceFit) -> SliceFit:
        left, right = (_lift(x, self._basis(k)) for x, k in zip(fit[:2], edge))
        return SliceFit(left, right, fit.explained)

    def sweep_flops(self, structure: Structure) -> float:
        return self._inner.sweep_flops(self._small(structure))

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        return self._inner.memory_needed(self._small(structure), edges)


def _lift(array: Array, basis: Basis) -> Array:
    """A core over the full mode from one in the basis; a flat slice stays flat."""
    if basis is None:
        return array
    here = basis if isinstance(array, torch.Tensor) else basis.numpy()
    shape = (-1,) if array.ndim == 1 else (len(here), *array.shape[1:])
    return (here @ array.reshape(here.shape[1], -1)).reshape(shape)
