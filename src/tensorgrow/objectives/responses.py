"""Samples and responses in the form that sweeps read, and the ridge solution for one design matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..algebra.linalg import solve_normal
from ..contraction import design_plan
from ..structure import Structure

__all__ = ["Samples", "explained_by", "norm_of", "ridge_solution"]

Array = Any

# The least ridge: it decides what the samples leave open.
LEAST_RIDGE = 1e-14
# Features up to which samples that outnumber them are replaced by as many orthogonal combinations.
COMPRESSED_FEATURES = 2048


class Samples:
    """Samples ``(n, d_1, ..., d_p)`` with their responses ``(n, q)``.

    Where samples outnumber features, only a triangular factor of both is kept: least squares cannot tell it
    from the samples, and a sweep over it costs the same however many there are.

    Attributes
    ----------
    count
        Samples that were given.
    """

    def __init__(self, x: torch.Tensor, y: torch.Tensor, *, use_numpy: bool) -> None:
        self.count = len(x)
        self.dims = tuple(x.shape[1:])
        self.use_numpy = use_numpy
        flat, y = _compressed(x.reshape(len(x), -1), y)
        self.x: Array = flat.numpy() if use_numpy else flat
        self.y: Array = y.numpy() if use_numpy else y
        self._stored: dict[tuple[int, ...], Array] = {}

    def with_responses(self, y: Array) -> Samples:
        """The same samples with other responses."""
        other = object.__new__(Samples)
        other.__dict__ |= {**self.__dict__, "y": y}
        return other

    @property
    def rows(self) -> int:
        """Samples that are computed with."""
        return int(self.x.shape[0])

    @property
    def is_complex(self) -> bool:
        """Whether the numbers are complex."""
        return bool(np.iscomplexobj(self.x)) if self.use_numpy else bool(self.x.is_complex())

    def shaped(self, structure: Structure) -> Array:
        """Samples with one axis per node but the output; internal nodes get axes of size 1."""
        return self.x.reshape(self.rows, *self.dims, *(1,) * (structure.num_nodes - structure.order))

    def in_order(self, structure: Structure, order: tuple[int, ...]) -> Array:
        """Samples with their axes stored in an order, -1 for their own; kept for next time."""
        inner = tuple(k for k in order if k < len(self.dims))
        stored = self._stored.get(inner)
        if stored is None:
            axes = tuple(k + 1 for k in inner)
            moved = self.x.reshape(self.rows, *self.dims)
            if self.use_numpy:
                stored = np.ascontiguousarray(moved.transpose(axes))
            else:
                stored = moved.permute(axes).contiguous()
            self._stored.clear()  # one copy at most
            self._stored[inner] = stored
        return stored.reshape(tuple(self.rows if k < 0 else structure.leg_dim(k) for k in order))

    def design(self, structure: Structure, arrays: list[Array], node: int, output: int | None) -> Array:
        """Samples contracted with all cores but one, as `SampleSweepPlan` hands it out."""
        plan = design_plan(structure, node, self.rows, output, self.is_complex)
        return plan.run(self.shaped(structure), arrays)

    def residual(self, dense: Array) -> Array:
        """Responses less those of a coefficient tensor."""
        return self.y - self.x @ dense.reshape(self.x.shape[1], -1)

    def correlation(self, responses: Array) -> Array:
        """``sum_n conj(X_n) y_n``, a matrix of features by outputs."""
        dual = self.x.conj().T if self.is_complex else self.x.T
        return dual @ responses


def _compressed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    features, outputs = x.shape[1], y.shape[1]
    if len(x) <= features + outputs or features + outputs > COMPRESSED_FEATURES:
        return x.contiguous(), y.contiguous()
    wide = torch.complex128 if x.is_complex() else torch.float64
    joint = torch.cat([x.to(wide), y.to(wide)], 1)
    triangle = torch.linalg.qr(joint, mode="r")[1].to(x.dtype)
    return triangle[:, :features].contiguous(), triangle[:, features:].contiguous()


def ridge_solution(design: Array, responses: Array, ridge: float, numerical: float) -> tuple[Array, float]:
    """Minimise ``||Y - D X^T||^2 + mu ||X||^2``, in double precision.

    Parameters
    ----------
    design
        ``D``, ``(n, m)``.
    responses
        ``Y``, ``(n, q)``.
    ridge
        ``mu`` over the mean squared norm of the columns of ``D``.
    numerical
        Added to the unit diagonal of the scaled matrix, against rounding.

    Returns
    -------
    solution
        ``X``, ``(q, m)``, of the precision of `design`.
    explained
        By how much ``||Y - D X^T||^2`` lies below ``||Y||^2``.
    """
    d, y = _wide(design), _wide(responses).T
    rows, width = d.shape
    weight = max(ridge, LEAST_RIDGE) * norm_of(d) ** 2 / width + 1e-300
    bra = d.conj()
    if width <= rows:
        gram, rhs = d.T @ bra, y @ bra
        x, _ = solve_normal(_penalised(gram, weight), rhs, numerical)
        explained = 2.0 * (x.conj() * rhs).sum().real - ((x @ gram) * x.conj()).sum().real
    else:  # fewer samples than unknowns: the smaller system is the one of the samples
        dual, _ = solve_normal(_penalised(bra @ d.T, weight), y, numerical)
        x = dual @ bra
        explained = explained_by(y, x @ d.T)
    return _as(x, design), float(explained)


def explained_by(responses: Array, fitted: Array) -> float:
    """``||y||^2 - ||y - fitted||^2``."""
    return norm_of(responses) ** 2 - norm_of(responses - fitted) ** 2


def norm_of(array: Array) -> float:
    """Norm, accumulated in double precision."""
    flat = _wide(array).reshape(-1)
    return math.sqrt(float((flat.conj() @ flat).real))


def _penalised(gram: Array, weight: float) -> Array:
    if isinstance(gram, np.ndarray):
        out = gram.copy()
        out.reshape(-1)[:: len(out) + 1] += weight
        return out
    out = gram.clone()
    out.diagonal().add_(weight)
    return out


def _wide(array: Array) -> Array:
    if isinstance(array, np.ndarray):
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)
    return array.to(torch.complex128 if array.is_complex() else torch.float64)


def _as(array: Array, like: Array) -> Array:
    return array.astype(like.dtype, copy=False) if isinstance(array, np.ndarray) else array.to(like.dtype)
