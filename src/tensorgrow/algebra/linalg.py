"""Small dense linear algebra: regularised normal equations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from ..contraction import Array, Gram, GramParts
from ..data.arrays import scale_out, times_power
from ..data.blocks import widen

# The least ridge on a core, relative to its Gram matrices: it settles what the data leaves open.
LEAST_RIDGE = 1e-14
# Entries of all cores up to which their decompositions are left to the CPU: a GPU takes milliseconds for the
# singular values of a small matrix, whatever its size.
HOST_ENTRIES = 1_000_000


Number = float | torch.Tensor
"""A number on the host, or one on the device that nobody has waited for yet."""


def solve_normal(gram: Gram, rhs: Array, ridge: float, *, careful: bool = True) -> tuple[Array, Number]:
    """`solve_for_core`, and what its solution has `explained_by` it."""
    solution = solve_for_core(gram, rhs, ridge, careful=careful)
    explained = explained_by(gram, rhs, solution)
    return solution, float(explained) if careful else explained


def solve_for_core(gram: Gram, rhs: Array, ridge: float, *, careful: bool = True) -> Array:
    r"""Solve ``X G = M`` for a Hermitian positive semi-definite ``G``.

    ``ridge`` times its diagonal is added to the Gram matrix, and a Cholesky factor taken. When that fails the
    pseudo-inverse with an eigenvalue cut-off is used. Everything is done in double precision.

    Parameters
    ----------
    gram
        ``(m, m)`` entries in any shape, ket rows and bra columns; None stands for the number 1. Of a matrix
        in parts each is solved by itself.
    rhs
        ``(d, ...)`` with ``m`` entries after the first axis; one axis per bond where the matrix has parts.
    ridge
        Added to the unit diagonal of the scaled Gram.
    careful
        Whether the host looks at the factor. A GPU is not waited for without that: where the factorisation
        fails, the solution is NaN, and so is all that is computed from it.

    Returns
    -------
    Array
        Same type and shape as `rhs`.
    """
    if isinstance(gram, GramParts):
        return _solve_parts(gram, rhs, ridge, careful)
    if isinstance(rhs, np.ndarray):
        return _solve_numpy(gram, rhs, ridge)
    if gram is None:
        return rhs.clone()
    working = wide_dtype(rhs.dtype)
    flat = rhs.reshape(rhs.shape[0], -1).to(working)
    matrix = gram.reshape(flat.shape[1], flat.shape[1]).to(working)
    diagonal = matrix.diagonal().real.clamp_min(0.0)
    scale = (diagonal + (diagonal.max() * 1e-20 + 1e-300)).rsqrt()
    scaled = (matrix.T * scale).mul_(scale[:, None])
    scaled.diagonal().add_(ridge)
    flat = flat * scale
    if not careful:
        x = solve_or_nan(scaled, flat.T).T
    else:
        factor, info = torch.linalg.cholesky_ex(scaled)
        if int(info):
            x = _pseudo_solve(scaled, flat.T, is_single(rhs.dtype)).T
        else:
            x = torch.cholesky_solve(flat.T, factor).T
    return (x * scale).to(rhs.dtype).reshape(rhs.shape)


def explained_by(gram: Gram, rhs: Array, solution: Array) -> Number:
    """By how much a core lowers the squared residual against zero: ``2 Re<X, M> - <X G, X>``.

    A tensor that nobody has waited for, on torch.
    """
    x, right = widen(solution), widen(rhs)
    if gram is None:
        product = x
    elif isinstance(gram, GramParts):
        product = x
        for bonds, part in zip(gram.bonds, gram.parts):
            product = _along(product, bonds, partial(_multiply, part))
    else:
        x, right = x.reshape(len(x), -1), right.reshape(len(x), -1)
        product = _multiply(gram, x)
    rest = 2.0 * right - product
    if isinstance(x, np.ndarray):
        return float(np.vdot(x, rest).real)
    explained: torch.Tensor = (x.conj() * rest).sum().real
    return explained


def contributions_to(gram: Gram, solution: Array) -> Number:
    """Squared norms of what each entry of a core contributes, added up: ``sum |x_j|^2 G_jj``.

    Far more than the squared norm of the whole where entries cancel, and then sums over them have lost as
    many digits. A tensor that nobody has waited for, on torch.
    """
    x = widen(solution)
    squares = (x * x.conj()).real
    if isinstance(gram, GramParts):
        for bonds, part in zip(gram.bonds, gram.parts):
            squares = _along(squares, bonds, partial(_times_diagonal, part))
    elif gram is not None:
        squares = _times_diagonal(gram, squares.reshape(len(x), -1))
    total: Number = squares.sum()
    return float(total) if isinstance(x, np.ndarray) else total


def _times_diagonal(gram: Array, squares: Array) -> Array:
    matrix = widen(gram).reshape(squares.shape[1], -1)
    diagonal = np.diagonal(matrix) if isinstance(matrix, np.ndarray) else matrix.diagonal()
    return squares * diagonal.real


def solve_or_nan(matrices: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solve by Cholesky without a look at the factors; NaN where a matrix is not positive definite.

    Matrices come with their ridges. They are not scaled first: a Cholesky factor does not mind, and each of
    the kernels that scale a batch of small matrices takes as long as its product.
    """
    factor, info = torch.linalg.cholesky_ex(matrices)
    # Not `cholesky_solve`: on a GPU it may wait for the host where there are several matrices.
    half = torch.linalg.solve_triangular(factor, right, upper=False)
    x = torch.linalg.solve_triangular(factor.mH, half, upper=True)
    return torch.where((info == 0)[..., None, None], x, math.nan)


def _solve_parts(gram: GramParts, rhs: Array, ridge: float, careful: bool) -> Array:
    """`solve_for_core` for the product of several matrices: ``X (G x H) = M`` is solved for one at a time."""
    solution = widen(rhs)
    for bonds, part in zip(gram.bonds, gram.parts):
        solution = _along(solution, bonds, partial(solve_for_core, part, ridge=ridge, careful=careful))
    return solution.astype(rhs.dtype, copy=False) if isinstance(rhs, np.ndarray) else solution.to(rhs.dtype)


def _multiply(gram: Array, solution: Array) -> Array:
    return solution @ widen(gram).reshape(solution.shape[1], -1)


def _along(array: Array, bonds: tuple[int, ...], apply: Callable[[Array], Array]) -> Array:
    """Apply a function of matrices along some bonds of a core, whose first axis is its leg."""
    axes = [1 + b for b in bonds]
    order = (*(a for a in range(array.ndim) if a not in axes), *axes)
    moved = array.transpose(order) if isinstance(array, np.ndarray) else array.permute(order)
    out = apply(moved.reshape(-1, math.prod(moved.shape[-len(axes) :]))).reshape(moved.shape)
    back = tuple(sorted(range(array.ndim), key=order.__getitem__))
    return out.transpose(back) if isinstance(array, np.ndarray) else out.permute(back)


def solve_slices(gram: torch.Tensor, rhs: torch.Tensor, ridge: float) -> torch.Tensor:
    """Solve ``G_s x_s = m_s`` for a batch of Hermitian positive semi-definite matrices.

    As `solve_normal`: unit diagonals, `ridge` added, Cholesky; the pseudo-inverse where that fails. Where
    nobody looks, see `solve_or_nan`.
    """
    diagonal = gram.diagonal(dim1=1, dim2=2).real.clamp_min(0.0)
    scale = (diagonal + (diagonal.amax(1, keepdim=True) * 1e-20 + 1e-300)).rsqrt()
    scaled = (gram * scale[:, :, None]).mul_(scale[:, None, :])
    scaled.diagonal(dim1=1, dim2=2).add_(ridge)
    right = (rhs * scale)[:, :, None]
    factor, info = torch.linalg.cholesky_ex(scaled)
    x = torch.cholesky_solve(right, factor)
    if bool(info.any()):
        for s in info.nonzero()[:, 0].tolist():
            x[s] = _pseudo_solve(scaled[s], right[s], is_single(gram.dtype))
    return x[:, :, 0] * scale


def _solve_numpy(gram: Array | None, rhs: Array, ridge: float) -> Array:
    """`solve_for_core` for arrays, cheap to dispatch on small systems.

    A Cholesky factor does not mind the scales of rows and columns, so the matrix is scaled only for the
    pseudo-inverse.
    """
    if gram is None:
        return rhs.copy()
    working = np.complex128 if rhs.dtype.kind == "c" else np.float64
    flat = rhs.reshape(len(rhs), -1)
    if flat.dtype != working:
        flat = flat.astype(working)
    m = flat.shape[1]
    # X G = M  <=>  G^T X^T = M^T; the transpose of a matrix stored by rows is one stored by columns.
    matrix = gram.astype(working, order="C").reshape(m, m)  # a copy, whatever the order of the axes
    if m == 1:
        # Rounding can make a norm that is nearly zero negative: nothing is known along it.
        value = float(matrix[0, 0].real)
        x = flat * (1.0 / max(value, 1e-300) if value > 0.0 else 0.0)
    else:
        diagonal = matrix.reshape(-1)[:: m + 1]
        most = float(diagonal[diagonal.argmax()].real)
        # So much even where a component has vanished; the sum is written out to save an array.
        least = ridge * (most * 1e-20 + 1e-300)
        x = None
        if most < math.inf:
            diagonal *= 1.0 + ridge
            diagonal += least
            x = _factor_and_solve(matrix, flat)
        if x is None:
            x = _solve_singular(gram.reshape(m, m), flat, ridge, is_single(rhs.dtype))
    return (x if rhs.dtype == working else x.astype(rhs.dtype)).reshape(rhs.shape)


def _solve_singular(gram: Array, flat: Array, ridge: float, single: bool) -> Array:
    """`_solve_numpy` by the pseudo-inverse."""
    matrix = widen(gram).T
    diagonal = np.maximum(matrix.diagonal().real, 0.0)
    scale = 1.0 / np.sqrt(diagonal + (float(diagonal.max()) * 1e-20 + 1e-300))
    scaled = np.ascontiguousarray(matrix * scale * scale[:, None])
    scaled.reshape(-1)[:: len(scaled) + 1] += ridge
    right = torch.from_numpy(flat * scale).T
    return np.asarray(_pseudo_solve(torch.from_numpy(scaled), right, single).numpy().T * scale)


def solve_ridge(design: Array, responses: Array, ridge: float, numerical: float) -> tuple[Array, float]:
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
    d, y = widen(design), widen(responses).T
    rows, width = d.shape
    weight = max(ridge, LEAST_RIDGE) * wide_norm(d) ** 2 / width + 1e-300
    bra = d.conj()
    if width <= rows:
        gram, rhs = d.T @ bra, y @ bra
        x, _ = solve_normal(_penalise(gram, weight), rhs, numerical)
        explained = 2.0 * (x.conj() * rhs).sum().real - ((x @ gram) * x.conj()).sum().real
    else:  # fewer samples than unknowns: the smaller system is the one of the samples
        dual, _ = solve_normal(_penalise(bra @ d.T, weight), y, numerical)
        x = dual @ bra
        explained = wide_norm(y) ** 2 - wide_norm(y - x @ d.T) ** 2
    x = x.astype(design.dtype, copy=False) if isinstance(x, np.ndarray) else x.to(design.dtype)
    return x, float(explained)


def _penalise(gram: Array, weight: float) -> Array:
    if isinstance(gram, np.ndarray):
        out = gram.copy()
        out.reshape(-1)[:: len(out) + 1] += weight
        return out
    out = gram.clone()
    out.diagonal().add_(weight)
    return out


def safe_norm(tensor: torch.Tensor) -> float:
    """Norm in double precision of numbers whose squares may vanish: beside an outlier, others are tiny."""
    wide = wide_dtype(tensor.dtype)
    norm = float(torch.linalg.vector_norm(tensor, dtype=wide))
    if norm > 1e-140 or not tensor.numel():
        return norm
    near, exponent = scale_out(tensor.to(wide))
    return times_power(float(torch.linalg.vector_norm(near)), exponent)


def wide_norm(array: Array) -> float:
    """Norm, accumulated in double precision."""
    flat = widen(array).reshape(-1)
    return math.sqrt(float((flat.conj() @ flat).real))


@lru_cache(maxsize=1)
def lapack_module() -> Any:
    """SciPy's thin LAPACK wrappers where SciPy is installed: ten times cheaper to call on small systems."""
    try:
        from scipy.linalg import lapack
    except ImportError:
        return None
    return lapack


def _factor_and_solve(matrix: Array, right: Array) -> Array | None:
    """Solve ``x matrix = right`` by Cholesky; None when `matrix`, which is overwritten, is not positive."""
    lapack = lapack_module()
    if lapack is not None:
        solver = lapack.zposv if matrix.dtype.kind == "c" else lapack.dposv
        # Positions: lower triangle, overwrite the matrix. Keywords take longer than a small system.
        _, x, info = solver(matrix.T, right.T, 0, 1)
        return x.T if info == 0 else None
    factor, info = torch.linalg.cholesky_ex(torch.from_numpy(matrix.T))
    return None if int(info) else torch.cholesky_solve(torch.from_numpy(right).T, factor).T.numpy()


@lru_cache(maxsize=64)
def _upper(size: int) -> Array:
    """Ones on and above the diagonal."""
    return np.triu(np.ones((size, size)))


def thin_qr(matrix: Array) -> tuple[Array, Array]:
    """``Q R`` of an array with no fewer rows than columns."""
    lapack = lapack_module()
    if lapack is None or matrix.dtype not in (np.float64, np.complex128):
        q, r = np.linalg.qr(matrix)
        return q, r
    factor, expand = (
        (lapack.zgeqrf, lapack.zungqr) if matrix.dtype.kind == "c" else (lapack.dgeqrf, lapack.dorgqr)
    )
    packed, tau, _, _ = factor(matrix)
    r = packed[: matrix.shape[1]] * _upper(matrix.shape[1])
    return expand(packed, tau, overwrite_a=1)[0], r


def small_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """``U``, singular values and ``V^H`` of a square array."""
    lapack = lapack_module()
    if lapack is not None and matrix.dtype in (np.float64, np.complex128):
        u, s, vh, info = (lapack.zgesdd if matrix.dtype.kind == "c" else lapack.dgesdd)(matrix)
        if info == 0:
            return u, s, vh
    u, s, vh = np.linalg.svd(matrix)
    return u, s, vh


def _pseudo_solve(matrix: torch.Tensor, right: torch.Tensor, single: bool) -> torch.Tensor:
    """Solve by the pseudo-inverse; where the matrix overflowed, NaN: a failed sweep to solvers."""
    if not bool(torch.isfinite(matrix).all()):
        return torch.full_like(right, math.nan)
    values, vectors = torch.linalg.eigh(matrix)
    # Directions below this share count as singular: a little above the rounding of the entries.
    keep = values > values[-1] * (1e-6 if single else 1e-13)
    basis = vectors[:, keep]
    solution: torch.Tensor = (basis / values[keep]) @ (basis.mH @ right)
    return solution


def on_host(cores: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Cores where their decompositions are computed fastest: small ones on the CPU, in one transfer."""
    if cores[0].device.type == "cpu" or sum(c.numel() for c in cores) > HOST_ENTRIES:
        return list(cores)
    flat = torch.cat([c.reshape(-1) for c in cores]).cpu()
    parts = torch.split(flat, [c.numel() for c in cores])
    return [p.reshape(c.shape) for p, c in zip(parts, cores)]


def at_least(number: Number, least: float) -> Number:
    """The larger of two numbers, without waiting for one on a device."""
    return number.clamp_min(least) if isinstance(number, torch.Tensor) else max(number, least)


def is_single(dtype: Any) -> bool:
    """Whether a NumPy or torch dtype is single precision, real or complex."""
    if isinstance(dtype, torch.dtype):
        return dtype in (torch.float32, torch.complex64)
    return np.dtype(dtype).char in "fF"


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Double precision, real or complex."""
    return torch.complex128 if dtype.is_complex else torch.float64


def single_dtype(dtype: torch.dtype) -> torch.dtype:
    """Single precision, real or complex."""
    return torch.complex64 if dtype.is_complex else torch.float32
