"""Slice problems of a dense target: exact where that is cheap, in a separable metric where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from ..algebra.linalg import Number, explained_by, is_single, solve_for_core
from ..algebra.spectra import leading_columns
from ..contraction import Array, GramParts, GramPlan, PairEnvironment, dense_plan, inner_plan, slice_gram_plan
from ..data.devices import flops_in
from ..structure import Structure
from .slices import (
    SLICE_RIDGE,
    PairProblem,
    SliceFit,
    alternate,
    as_torch,
    fit_unwatched,
    rescale,
    slice_shape,
    spectral_slice,
)

# Slices whose Gram takes more seconds than this are fitted in the separable metric.
EXACT_SECONDS = 5e-3
# Stands in for zero where something is divided by; single precision holds it too.
TINY = 1e-35


@dataclass
class PairContext:
    """What the pairs of one network share."""

    structure: Structure
    arrays: list[Array]
    is_complex: bool
    compute_grams: Callable[[], dict[int, Array]]
    may_densify: bool = True  # whether a tensor of the size of the target may be formed
    least_ridge: float = 0.0  # see `LeastSquares`
    keeps_scale: bool = False  # whether squares of gradients do not vanish, even in single precision

    @cached_property
    def node_grams(self) -> dict[int, Array]:
        """Gram of every node's environment, computed when the first pair needs it."""
        return self.compute_grams()


class DensePairProblem(PairProblem):
    """Slices of one edge by small least-squares problems on the pair environment."""

    def __init__(self, environment: PairEnvironment, context: PairContext) -> None:
        self.edge = environment.edge
        self._environment = environment
        self._context = context
        self._dims = tuple(context.structure.leg_dim(k) for k in self.edge)

    @property
    def gradient(self) -> Array:
        return self._environment.gradient

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        if right is None and not self._is_cheap():
            return self.fit_separable()
        if right is None:
            right = self._start()
        return fit_unwatched(partial(self._fit, right, sweeps), self.gradient)

    def _fit(self, right: Array, sweeps: int, careful: bool) -> SliceFit:
        if careful and not bool(abs(self.gradient).max() > 0):
            return SliceFit(0 * self.gradient[:, 0], 0 * self.gradient[0], 0.0)
        # In single precision the Gram of a tiny slice would vanish. In double, slices keep their scale, here
        # and at the start: how it is shared between the two decides how far the next sweeps extrapolate, and
        # photographs need 3 to 7 % fewer parameters this way.
        before_right = rescale if self._rescales else _as_it_is
        improve = partial(self._improve, careful=careful)
        with np.errstate(over="ignore", invalid="ignore"):
            left, best, explained = alternate(
                improve, right, sweeps, before_left=_as_it_is, before_right=before_right
            )
            gain = float(explained())
        if careful and not math.isfinite(gain):  # slices too large for single precision
            return SliceFit(0 * self.gradient[:, 0], 0 * self.gradient[0], 0.0)
        return SliceFit(left, best, gain)

    def _start(self) -> Array:
        return spectral_slice(rescale(self.gradient) if self._rescales else self.gradient)

    @property
    def _rescales(self) -> bool:
        return is_single(self.gradient.dtype) and not self._context.keeps_scale

    # -- exact -----------------------------------------------------------------------------------------

    def _is_cheap(self) -> bool:
        if self._environment.is_pair_gram:
            return True
        most = flops_in(EXACT_SECONDS, getattr(self.gradient, "device", "cpu"))
        return all(self._plan(side).program.flops <= most for side in (0, 1))

    def _plan(self, side: int) -> GramPlan:
        env, context = self._environment, self._context
        i, j = self.edge if side == 0 else self.edge[::-1]
        return slice_gram_plan(context.structure, i, j, env.gram_nodes, env.gram_legs, context.is_complex)

    def _improve(self, side: int, other: Array, careful: bool) -> tuple[Array, Callable[[], Number]]:
        """Best slice of one side when the other end holds the slice `other`, and who can tell its gain."""
        rhs = self.gradient @ other.conj() if side == 0 else other.conj() @ self.gradient
        rhs, ridge = self._shape(side, rhs), max(SLICE_RIDGE, self._context.least_ridge)
        gram = self._gram(side, other)
        x = solve_for_core(gram, rhs, ridge, careful=careful)
        return x.reshape(-1), partial(explained_by, gram, rhs, x)

    def _gram(self, side: int, other: Array) -> Array | GramParts:
        env = self._environment
        if env.is_pair_gram:
            piece = other.reshape(self._dims[1 - side], -1)
            density = (piece.T @ piece.conj()).reshape(-1)
            return env.gram @ density if side == 0 else density @ env.gram
        cores = list(self._context.arrays)
        cores[self.edge[1 - side]] = self._shape(1 - side, other)
        return self._plan(side).run(cores if env.gram is None else [*cores, env.gram])

    def _shape(self, side: int, piece: Array) -> Array:
        return piece.reshape(self._shapes[side])

    @cached_property
    def _shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        structure, edge = self._context.structure, self.edge
        return slice_shape(structure, edge, 0), slice_shape(structure, edge, 1)

    # -- separable -------------------------------------------------------------------------------------

    def fit_separable(self) -> SliceFit:
        """Leading pair of the gradient after whitening both ends, then the exact best scale.

        The Gram of the pair environment is replaced by the product of the two ends' own Grams, each averaged
        over the present cores of the other end. The decrease is exact for the slices found, so a bad metric
        can only make an edge look less promising than it is.
        """
        gradient = as_torch(self.gradient)
        lower = [self._metric_factor(side) for side in (0, 1)]

        def whiten(side: int, vector: torch.Tensor) -> torch.Tensor:
            flat = vector.reshape(self._dims[side], -1).T
            solved: torch.Tensor = torch.linalg.solve_triangular(lower[side].conj(), flat, upper=False)
            return solved.T.reshape(-1)

        def unwhiten(side: int, vector: torch.Tensor) -> torch.Tensor:
            return self._unwhiten(lower[side], vector[None])[0]

        left = right = whiten(1, as_torch(self._start()))
        for _ in range(10):
            right = right / torch.linalg.vector_norm(right).clamp_min(TINY)
            left = whiten(0, gradient @ unwhiten(1, right).conj())
            left = left / torch.linalg.vector_norm(left).clamp_min(TINY)
            right = whiten(1, unwhiten(0, left).conj() @ gradient)
        return self._scaled(unwhiten(0, left)[None], unwhiten(1, right)[None])[0]

    def fit_several(self, count: int) -> list[SliceFit]:
        """Leading pairs of the whitened gradient, in one go, then the exact best scale of their sum."""
        white = as_torch(self.gradient)
        lower = [self._metric_factor(side) for side in (0, 1)]
        for factor, dim in zip(lower, self._dims):  # one end after the other, and both change places
            ends = white.reshape(dim, len(factor), -1)
            solved = torch.linalg.solve_triangular(factor.conj(), ends, upper=False)
            white = solved.reshape(dim * len(factor), -1).T
        left, right = leading_columns(white, min(count, *white.shape), 3)
        return self._scaled(self._unwhiten(lower[0], left.T), self._unwhiten(lower[1], right.T))

    def _unwhiten(self, lower: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """Rows in the metric of one end as slices."""
        flat = vectors.reshape(-1, len(lower))
        solved: torch.Tensor = torch.linalg.solve_triangular(lower, flat, upper=False, left=False)
        return solved.reshape(vectors.shape)

    def _scaled(self, left: torch.Tensor, right: torch.Tensor) -> list[SliceFit]:
        """Rows as pairs of slices, all in the best scale of their sum; the first pair is credited with it."""
        overlap = torch.sum(left.conj() * (as_torch(self.gradient) @ right.mH).T)
        norm2 = self._slice_norm2(left, right)
        gains = [float((overlap.abs() ** 2 / norm2).real), *([0.0] * (len(left) - 1))]
        pairs: list[tuple[Array, Array]] = list(zip(left * (overlap / norm2), right))
        if isinstance(self.gradient, np.ndarray):
            pairs = [(u.numpy(), v.numpy()) for u, v in pairs]
        return [SliceFit(*pair, gain) for pair, gain in zip(pairs, gains)]

    def _metric_factor(self, side: int) -> torch.Tensor:
        """Cholesky factor of one end's Gram, traced over the edge itself."""
        node, other = self.edge if side == 0 else self.edge[::-1]
        structure = self._context.structure
        gram = as_torch(self._context.node_grams[node])
        bonds = gram.dim() // 2
        if structure.rank(node, other) > 1:
            axis = structure.axis(node, other) - 1
            gram = gram.diagonal(dim1=axis, dim2=axis + bonds).sum(-1)
        size = self.gradient.shape[side] // self._dims[side]
        matrix = gram.reshape(size, size)
        mean = float(matrix.diagonal().real.mean())
        eye = torch.eye(size, dtype=matrix.dtype, device=matrix.device)
        factor: torch.Tensor = torch.linalg.cholesky_ex(matrix + (1e-6 * mean + TINY) * eye)[0]
        return factor

    def _slice_norm2(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Squared norm of the tensor that new slices, one per row, would add."""
        context = self._context
        i, j = self.edge
        structure = context.structure.with_rank(i, j, len(left))
        cores = [as_torch(a) for a in context.arrays]
        for side, (node, other), rows in ((0, (i, j), left), (1, (j, i), right)):
            slices = rows.reshape(-1, *self._shapes[side])
            cores[node] = slices[0] if len(rows) == 1 else slices.movedim(0, structure.axis(node, other))
        squared: torch.Tensor
        if context.may_densify:
            added = dense_plan(structure, context.is_complex).run(cores)
            squared = torch.linalg.vector_norm(added) ** 2
        else:
            plan = inner_plan(structure, structure, context.is_complex)
            squared = plan.run([*(c.conj() for c in cores), *cores]).real
        return squared.clamp_min(TINY)


def _as_it_is(array: Array) -> Array:
    return array
