"""A tensor given by a small core in orthonormal bases of its modes.

With ``T = G x_1 U_1 ... x_p U_p + R`` and orthonormal ``U_k`` that ``R`` is orthogonal to, the best cores lie
in the ranges of the bases, and ``||T - X||^2 = ||R||^2 + ||G - X'||^2``, with ``X`` in the bases as ``X'``.
So everything is computed on the core, while structures, sizes and networks are those of the full tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from ..algebra.linalg import wide_dtype
from ..algebra.spectra import tail_norms
from ..contraction import Array
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import LeastSquares, Recording
from .dense import DenseLeastSquares
from .slices import ChangedPairProblem, PairProblem, SliceFit

Basis = torch.Tensor | None

# Tensors with fewer entries are searched as they are: sweeps over them are mostly dispatch.
FEW_ENTRIES = 1 << 15
# A core must have this many times fewer entries to be searched instead of the tensor: less does not make up
# for what is left out.
MUCH_SMALLER = 4
# The Gram matrix of a longer mode, and its eigenvectors, would cost more than the sweeps that they save.
LONGEST_MODE = 1024
# Gram matrices know singular values down to about 1e-8 of the largest: to leave out less than this share of
# the norm, and to know how much, takes an SVD.
GRAM_LEVEL = 1e-5
# The update of a node takes some 0.1 ms on one core, however small it is, and the scores between two refits
# twice as long: on a field 40x40x40x30 with a core of 7,600 entries, seconds are then counted as they are.
NODE_FLOPS = 3e6


@dataclass(frozen=True)
class Compression:
    """A tensor as a core in orthonormal bases."""

    core: torch.Tensor  # the tensor in the bases, in double precision
    bases: list[Basis]  # one matrix per mode, None where the mode was not compressed
    rest: float  # norm of what the bases leave out


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
        self._last: tuple[Structure, Structure] | tuple[None, None] = (None, None)

    @property
    def norm(self) -> float:
        return math.hypot(self._inner.norm, self.rest)

    def _small(self, structure: Structure) -> Structure:
        """The structure of the core; every sweep asks for it, mostly for the same one."""
        if structure.dims == self._inner.dims:
            return structure
        if self._last[0] is not structure:
            self._last = structure, structure.with_dims(self._inner.dims)
        return self._last[1]

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        return self._inner.to_arrays(self.lower(network))

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        small = self._inner.to_network(self._small(structure), arrays)
        return self.lift(small)

    def on(self, device: torch.device) -> CompressedLeastSquares:
        return CompressedLeastSquares(self.core.to(device), self.bases, self.rest)

    def alone(self) -> CompressedLeastSquares:
        """The same for networks over the core instead of the tensor."""
        return CompressedLeastSquares(self.core, [None] * len(self.bases), self.rest)

    def lift(self, network: TensorNetwork) -> TensorNetwork:
        """A network over the core as one over the tensor."""
        cores = [_lift(c, self._basis(k)) for k, c in enumerate(network.cores)]
        return TensorNetwork(network.structure.with_dims(self.dims), cores)

    def _basis(self, node: int) -> Basis:
        return self.bases[node] if node < len(self.bases) else None

    def lower(self, network: TensorNetwork) -> TensorNetwork:
        """The part of a network that lies in the bases, as a network over the core."""
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
        rest = self._inner.residual(self.lower(network))
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
        return self._inner.sweep_flops(self._small(structure)) + NODE_FLOPS * structure.num_nodes

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        return self._inner.memory_needed(self._small(structure), edges)


def _lift(array: Array, basis: Basis) -> Array:
    """A core over the full mode from one in the basis; a flat slice stays flat."""
    if basis is None:
        return array
    here = basis if isinstance(array, torch.Tensor) else basis.numpy()
    shape = (-1,) if array.ndim == 1 else (len(here), *array.shape[1:])
    return (here @ array.reshape(here.shape[1], -1)).reshape(shape)


def compress(tensor: torch.Tensor, allowed: float) -> Compression | None:
    """Write a tensor in bases of its modes that leave out at most `allowed` of its norm.

    None where the core would not be much smaller.
    """
    if tensor.dim() < 3 or tensor.numel() < FEW_ENTRIES or not allowed > 0.0:
        return None
    wide = tensor.to(wide_dtype(tensor.dtype))
    modes = sorted(_affordable(tensor.shape), key=lambda k: tensor.shape[k])  # the short ones cost least
    most = allowed * float(torch.linalg.vector_norm(wide))
    core, bases, lost = truncate(wide, most, modes, by_grams=allowed > GRAM_LEVEL)
    if MUCH_SMALLER * core.numel() > tensor.numel():
        return None
    return Compression(core, bases, math.sqrt(lost))


def least_error(tensor: torch.Tensor, max_parameters: int) -> float:
    """Relative error that no network with so many parameters can be below.

    A core with a leg of size n and rank r across it has n r entries at least, and the others one per slice.
    """
    total, bound = sum(tensor.shape), 0.0
    for k in _affordable(tensor.shape):
        size = tensor.shape[k]
        matrix = tensor.movedim(k, 0).reshape(size, -1)
        tails = tail_norms(_directions(matrix.to(wide_dtype(tensor.dtype)), by_gram=True)[0])
        rank = min(max(1, (max_parameters - total + size) // size), size)
        bound = max(bound, float(tails[rank] / tails[0]))
    return bound


def _affordable(shape: Sequence[int]) -> list[int]:
    """Modes whose Gram matrix costs little beside a search."""
    entries = math.prod(shape)
    return [k for k, n in enumerate(shape) if 1 < n <= LONGEST_MODE and n * n <= entries]


def truncate(
    core: torch.Tensor, allowed: float, modes: Iterable[int] | None = None, *, by_grams: bool = False
) -> tuple[torch.Tensor, list[Basis], float]:
    """Core cut to its multilinear rank mode by mode, the bases it was cut with, and the squared norm lost.

    Parameters
    ----------
    modes
        In this order; by default all.
    by_grams
        From Gram matrices: several times faster on large tensors, and good down to `GRAM_LEVEL`.
    """
    bases: list[Basis] = [None] * core.dim()
    lost = 0.0
    each = allowed / math.sqrt(core.dim())
    for k in range(core.dim()) if modes is None else modes:
        moved = core.movedim(k, 0)
        s, vectors = _directions(moved.reshape(core.shape[k], -1), by_gram=by_grams)
        tails = tail_norms(s)
        rank = max(1, int((tails > each).sum()))
        if rank == core.shape[k]:
            continue
        basis = vectors[:, :rank].contiguous()
        lost += float(tails[rank]) ** 2
        bases[k] = basis
        core = torch.tensordot(basis.mH, moved, dims=1).movedim(0, k).contiguous()
    return core, bases, lost


def _directions(matrix: torch.Tensor, *, by_gram: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Singular values of a matrix and its left singular vectors, the largest first."""
    if by_gram:
        values, vectors = torch.linalg.eigh(matrix @ matrix.mH)
        return values.flip(0).clamp_min(0.0).sqrt(), vectors.flip(1)
    triangle = torch.linalg.qr(matrix.mH, mode="r")[1] if matrix.shape[1] > matrix.shape[0] else matrix.mH
    _, s, vh = torch.linalg.svd(triangle, full_matrices=False)
    return s, vh.mH
