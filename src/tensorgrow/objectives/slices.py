"""New slices of an edge: what scoring needs, their alternating fit, and where it starts.

Raising the rank of edge ``(i, j)`` by one adds a *left* slice to core ``i`` and a *right* slice to core
``j``. With everything else fixed the residual is linear in either of them, so they are fitted in turn.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from ..algebra.spectra import leading_pair
from ..contraction import Array
from ..structure import Edge, Structure

T = TypeVar("T")
G = TypeVar("G")

# Added to the unit diagonal of scaled Gram matrices of slices. Scoring needs only rough slices, and a ridge
# larger than that of a sweep keeps them tame.
SLICE_RIDGE = 1e-12


class SliceFit(NamedTuple):
    """New slices of an edge as vectors, and by how much they lower the squared loss.

    On held-out data where there is some.
    """

    left: Array
    right: Array
    explained: float


class PairProblem(ABC):
    """Best new slices for one edge, everything else fixed.

    Slices are vectors in the order of their core's axes without the edge.
    """

    edge: Edge  # ``(i, j)``; the left slice belongs to ``i``, the right one to ``j``

    @property
    @abstractmethod
    def gradient(self) -> Array:
        """Residual contracted with all cores but two: a matrix, left slice by right slice."""

    def draw(self, generator: torch.Generator) -> Array:
        """Draw a right slice of normal entries, in the form this problem computes in."""
        like = self.gradient
        noise = torch.randn(like.shape[1], generator=generator, dtype=torch.float64)
        return noise.to(like) if isinstance(like, torch.Tensor) else noise.numpy().astype(like.dtype)

    @abstractmethod
    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Fit the slices by alternating least squares, from this right slice or from a default one."""

    def fit_several(self, count: int) -> list[SliceFit]:
        """Rough slices for up to so many new ranks at once, to be refitted; here just one."""
        return [self.fit(None, 1)]


class ChangedPairProblem(PairProblem):
    """A pair problem whose fit is converted: to other bases, or to other units."""

    def __init__(self, inner: PairProblem, change: Callable[[SliceFit], SliceFit]) -> None:
        self.edge = inner.edge
        self._inner, self._change = inner, change

    @property
    def gradient(self) -> Array:
        return self._inner.gradient

    def draw(self, generator: torch.Generator) -> Array:
        return self._inner.draw(generator)

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        return self._change(self._inner.fit(right, sweeps))

    def fit_several(self, count: int) -> list[SliceFit]:
        return [self._change(fit) for fit in self._inner.fit_several(count)]


# -- alternation -----------------------------------------------------------------------------------------


def rescale(array: Array) -> Array:
    """Divide by the largest absolute value; zero stays zero."""
    if isinstance(array, torch.Tensor) and array.is_cuda:  # nobody waits for the number
        return array / torch.linalg.vector_norm(array, math.inf).clamp_min(1e-30)
    return array / max(float(abs(array).max()), 1e-30)


def alternate(
    improve: Callable[[int, T], tuple[T, G]],
    right: T,
    sweeps: int,
    *,
    before_left: Callable[[T], T] = rescale,
    before_right: Callable[[T], T] = rescale,
) -> tuple[T, T, G]:
    """Fit left and right slices in turn, at least once.

    Parameters
    ----------
    improve
        ``improve(side, other)``: the best slices of one side (0: left, 1: right) for those of the other, and
        their gains. One array and number, or a list for each of several edges.
    right
        Right slices to start from.
    before_left, before_right
        Applied to the slices of the other side first.
    """
    for _ in range(sweeps):
        left = before_right(improve(0, before_left(right))[0])
        right, gain = improve(1, left)
    return left, right, gain


def fit_unwatched(fit: Callable[[bool], SliceFit], like: Array) -> SliceFit:
    """Fit slices, on a GPU without a look at any factorisation; carefully where one of them failed.

    `fit` is told whether it must be careful.
    """
    if isinstance(like, torch.Tensor) and like.is_cuda:
        fitted = fit(False)
        if math.isfinite(fitted.explained):
            return fitted
    return fit(True)


# -- starts ----------------------------------------------------------------------------------------------


def spectral_slice(gradient: Array) -> Array:
    """Right slice near the leading singular vector of a pair gradient."""
    # The largest row is a deterministic start with weight on that vector; three rounds are near enough.
    norms = (gradient.conj() * gradient).real.sum(1)
    if isinstance(gradient, torch.Tensor):
        return leading_pair(gradient, 3, gradient.index_select(0, norms.argmax()[None])[0])[1]
    return leading_pair(gradient, 3, gradient[int(norms.argmax())])[1]


def random_slice(structure: Structure, edge: Edge, dtype: torch.dtype) -> torch.Tensor:
    """A random right slice, the same each time."""
    seeded = torch.Generator().manual_seed(edge[0] * 1009 + edge[1])
    noise = torch.randn(slice_shape(structure, edge, 1), generator=seeded, dtype=torch.float64)
    return noise.to(dtype)


def sharpen(apply: Callable[[int, T], T], right: T, normalise: Callable[[T], T]) -> T:
    """One round of power iteration on a gradient that is never formed, but applied to slices."""
    for side in (0, 1):
        right = apply(side, normalise(right))
    return right


def draw_slice(structure: Structure, edge: Edge, generator: torch.Generator) -> torch.Tensor:
    """A right slice of normal entries."""
    size = math.prod(slice_shape(structure, edge, 1))
    return torch.randn(size, generator=generator, dtype=torch.float64)


# -- forms -----------------------------------------------------------------------------------------------


def as_torch(array: Array) -> torch.Tensor:
    """A slice in the form that networks hold."""
    return torch.from_numpy(np.ascontiguousarray(array)) if isinstance(array, np.ndarray) else array


def slice_shape(structure: Structure, edge: Edge, side: int) -> tuple[int, ...]:
    """Axes of a slice: those of its core without the edge."""
    node, other = edge if side == 0 else edge[::-1]
    bonds = (structure.rank(node, k) for k in structure.neighbours[node] if k != other)
    return structure.leg_dim(node), *bonds


def slice_edges(structure: Structure, edge: Edge, side: int) -> tuple[Edge, ...]:
    """Bonds of a slice in the order of its axes."""
    return tuple(e for e in structure.edges_of(edge[side]) if e != edge)
