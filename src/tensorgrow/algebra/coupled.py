"""Normal equations whose slices are tied to each other: ``G_s x_s + weight * sum_t L_st x_t = m_s``."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ..priors import Quadratic

# Where conjugate gradients stop: residual relative to the right-hand side, and rounds. They start from the
# present core, and the next sweep continues.
TOLERANCE, ROUNDS = 1e-9, 300
# Bandwidths up to which a banded factor costs about as much as the conjugate gradients that it saves.
NARROW = 2
# Along a chain, slices of so many unknowns are solved for by rounds in place of a banded factor. 512 of 8,
# 18, 36 and 69 unknowns take 0.3, 0.6, 2.4 and 5.4 ms, by a factor 0.3, 1.2, 5 and 18 ms. Rounds stop when
# what they could still gain is this share of what is minimised: with a hundred times as much, sweeps stopped
# too soon (a photograph at an error of 0.0461, not 0.0434); with a hundredth of it the answer was the same.
WIDE, ENOUGH = 16, 1e-7


class Coupling:
    """A positive semi-definite matrix between the slices of a core, ready to compute with."""

    def __init__(self, quadratic: Quadratic) -> None:
        self.quadratic = quadratic
        self._matrices: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def matrix(self, like: torch.Tensor) -> torch.Tensor:
        """The matrix, sparse, of the dtype and on the device of a tensor."""
        key = str(like.device), like.dtype
        if key not in self._matrices:
            q = self.quadratic
            where = torch.from_numpy(np.stack([q.rows, q.columns]))
            matrix = torch.sparse_coo_tensor(
                where, torch.from_numpy(q.values).to(like.dtype), (q.size, q.size), check_invariants=False
            )
            self._matrices[key] = matrix.to(like.device).coalesce()
        return self._matrices[key]

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """The matrix times slices, ``(d, m)``."""
        product: torch.Tensor = torch.sparse.mm(self.matrix(x), x)
        return product

    def diagonal(self, like: torch.Tensor) -> torch.Tensor:
        """The diagonal, real."""
        q = self.quadratic
        on = q.rows == q.columns
        out = np.zeros(q.size)
        out[q.rows[on]] = q.values[on]
        return torch.from_numpy(out).to(like.device)

    def reached(self, filled: torch.Tensor) -> torch.Tensor:
        """Slices that are tied to filled ones, by however many others."""
        q = self.quadratic
        known = np.zeros(q.size, bool)
        known[filled.cpu().numpy()] = True
        while True:
            more = known.copy()
            more[q.rows[known[q.columns]]] = True
            if (more == known).all():
                return torch.from_numpy(known).to(filled.device)
            known = more


def solve_coupled(
    gram: torch.Tensor,
    rhs: torch.Tensor,
    coupling: Coupling,
    weight: float,
    start: torch.Tensor,
    free: torch.Tensor | None = None,
) -> torch.Tensor:
    """Solve for all slices at once, in double precision.

    Parameters
    ----------
    gram, rhs
        ``G``, ``(d, m, m)`` Hermitian positive definite, except that slices may be zero that are tied to
        others; and ``m``, ``(d, m)``.
    weight
        Of the coupling.
    start
        Slices to start from where the equations are solved iteratively.
    free
        True for unknowns, ``(d, m)``; the others are zero. By default all are unknown.
    """
    quadratic = coupling.quadratic
    if gram.device.type == "cpu" and quadratic.bandwidth <= NARROW and _banded_module() is not None:
        solved = _solve_banded(gram, rhs, quadratic, weight, free)
        if solved is not None:
            return solved
    return _solve_iteratively(gram, rhs, coupling, weight, start, free)


def solve_along_chain(
    gram: torch.Tensor,
    rhs: torch.Tensor,
    coupling: Coupling,
    weight: float,
    own: torch.Tensor,
    start: torch.Tensor,
    size: float,
) -> torch.Tensor | None:
    """Solve for all slices at once by rounds in the precision of the Gram matrices, near enough for a sweep.

    Conjugate gradients, preconditioned by what would be solved for if all slices had the mean of the Gram
    matrices: then each of its eigenvectors has a chain of its own.

    Parameters
    ----------
    own
        Numbers to add to the diagonal of every slice, ``(d,)``, positive.
    start
        Slices to start from.
    size
        The squared values that ``gram`` and ``rhs`` come from.

    Returns
    -------
    solution
        In double precision. None where a banded factor is cheaper, and where rounds converge slowly.
    """
    modules, width = _banded_module(), rhs.shape[1]
    if coupling.quadratic.bandwidth != 1 or width < WIDE or gram.device.type != "cpu" or modules is None:
        return None
    if gram.is_complex():
        return None
    matrices, dtype = gram.numpy(), gram.numpy().dtype
    factorise, solve = modules.get_lapack_funcs(("pttrf", "pttrs"), dtype=dtype)
    more, chain = own.numpy(), weight * coupling.quadratic.chain
    mean = matrices.mean(0).astype(np.float64) + more.mean() * np.eye(width)
    if not np.isfinite(mean).all():
        return None
    spectrum, basis = np.linalg.eigh(mean)
    chains = np.add.outer(spectrum, chain[0]).astype(dtype), np.tile(chain[1].astype(dtype), width)
    *factor, failed = factorise(chains[0].reshape(-1), chains[1][:-1])
    if failed:
        return None
    basis, diagonal = basis.astype(dtype), (more + chain[0]).astype(dtype)[:, None]
    beside = chain[1, :-1].astype(dtype)[:, None]
    # Memory for all rounds: new arrays would cost as much as the arithmetic.
    p, q, z, r, spare = np.empty((5, *rhs.shape), dtype)
    along = np.empty(rhs.shape[::-1], dtype)

    def apply(x: Any, out: Any) -> None:
        np.matmul(matrices, x[:, :, None], out=out[:, :, None])
        out += np.multiply(diagonal, x, out=spare)
        out[1:] += np.multiply(beside, x[:-1], out=spare[1:])
        out[:-1] += np.multiply(beside, x[1:], out=spare[:-1])

    def precondition() -> None:
        np.matmul(basis.T, r.T, out=along)
        solved, _ = solve(*factor, along.reshape(-1), overwrite_b=True)
        np.matmul(solved.reshape(along.shape).T, basis.T, out=z)

    p[:] = start.numpy()
    apply(p, q)
    m = rhs.numpy()
    np.subtract(m, q, out=r)
    size -= float(np.vdot(p, m) + np.vdot(p, r))  # what is minimised
    change = np.zeros_like(p)
    p[:] = 0.0
    before = math.inf
    for _ in range(width // 2):  # more would take as long as a factor
        precondition()
        gain = float(np.vdot(r, z))
        if gain <= ENOUGH * max(size, 0.0):
            return torch.from_numpy(change).double() + start.double()
        p *= gain / before
        p += z
        apply(p, q)
        curvature = float(np.vdot(p, q))
        if not (math.isfinite(gain) and curvature > 0.0):
            break  # rounding, or numbers too small or too large for it
        step = gain / curvature
        change += np.multiply(step, p, out=spare)
        r -= np.multiply(step, q, out=spare)
        size, before = size - step * gain, gain
    return None


@lru_cache(maxsize=1)
def _banded_module() -> Any:
    try:
        from scipy import linalg
    except ImportError:
        return None
    return linalg


def _solve_banded(
    gram: torch.Tensor, rhs: torch.Tensor, quadratic: Quadratic, weight: float, free: torch.Tensor | None
) -> torch.Tensor | None:
    """A banded Cholesky factor; None where the matrix is not positive definite."""
    matrices = gram.numpy()
    d, m = rhs.shape
    # What is k below the diagonal, by column: last, for that is the order of LAPACK.
    band = np.zeros((d, m, max(quadratic.bandwidth * m, m - 1) + 1), matrices.dtype)
    for k in range(m):
        band[:, k, : m - k] = matrices[:, k:, k]
    below = quadratic.rows - quadratic.columns
    for k in range(quadratic.bandwidth + 1):
        mine = below == k
        band[quadratic.columns[mine], :, k * m] += weight * quadratic.values[mine, None]
    flat, right = band.reshape(d * m, -1).T, rhs.numpy().reshape(-1)
    if free is not None:
        mask = free.numpy().reshape(-1).astype(flat.real.dtype)
        for k in range(1, len(flat)):
            flat[k, : d * m - k] *= mask[k:] * mask[: d * m - k]
        flat[0] = np.where(mask, flat[0], 1.0)
        right = right * mask
    try:
        x = _banded_module().solveh_banded(flat, right, lower=True, overwrite_ab=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    return torch.from_numpy(x.reshape(d, m))


def _solve_iteratively(
    gram: torch.Tensor,
    rhs: torch.Tensor,
    coupling: Coupling,
    weight: float,
    start: torch.Tensor,
    free: torch.Tensor | None,
) -> torch.Tensor:
    """Conjugate gradients, preconditioned by the blocks on the diagonal."""
    blocks = gram.clone()
    blocks.diagonal(dim1=1, dim2=2).add_((weight * coupling.diagonal(gram))[:, None])
    mask = None if free is None else free.to(gram.dtype)
    if mask is not None:
        rhs, start, own = rhs * mask, start * mask, blocks.diagonal(dim1=1, dim2=2).clone()
        blocks.mul_(mask[:, :, None]).mul_(mask[:, None, :]).diagonal(dim1=1, dim2=2).copy_(own)
    factor, info = torch.linalg.cholesky_ex(blocks)
    if bool(info.any()):  # rounding: a slightly larger diagonal does, this only preconditions
        size = blocks.diagonal(dim1=1, dim2=2).real.amax().clamp_min(1e-300)
        blocks.diagonal(dim1=1, dim2=2).add_(1e-10 * size)
        factor, _ = torch.linalg.cholesky_ex(blocks)
    del blocks

    def apply(x: torch.Tensor) -> torch.Tensor:
        product = (gram @ x[:, :, None])[:, :, 0] + weight * coupling.times(x)
        return product if mask is None else product * mask

    def precondition(r: torch.Tensor) -> torch.Tensor:
        return torch.cholesky_solve(r[:, :, None], factor)[:, :, 0]

    x = start.clone()
    r = rhs - apply(x)
    enough = TOLERANCE * float(torch.linalg.vector_norm(rhs))
    z = precondition(r)
    p, rz = z, torch.sum(r.conj() * z).real
    for _ in range(ROUNDS):
        if not float(torch.linalg.vector_norm(r)) > enough or not math.isfinite(float(rz)):
            break
        q = apply(p)
        curvature = torch.sum(p.conj() * q).real
        if not float(curvature) > 0.0:
            break  # rounding, or nothing but zeros
        step = rz / curvature
        x, r = x + step * p, r - step * q
        z = precondition(r)
        rz, before = torch.sum(r.conj() * z).real, rz
        p = z + (rz / before) * p
    return x
