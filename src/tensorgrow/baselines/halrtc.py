"""HaLRTC (Liu, Musialski, Wonka, Ye; 2013) and its truncated form LRTC-TNN (Chen, Yang, Sun; 2020).

Both fill an array so that its unfoldings have small nuclear norms. They have no network, hence no `Result`,
and are not among the baselines that `run` calls.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, check_positive, check_whole
from .common import copy_known

Array = NDArray[Any]


def halrtc(
    x: Any,
    mask: Any = None,
    *,
    truncation: float = 0.0,
    penalty: float = 1.0,
    growth: float = 1.05,
    iterations: int = 500,
    tolerance: float = 1e-5,
    max_seconds: float | None = None,
) -> Array:
    """Fill the gaps of an array so that the mean nuclear norm of its unfoldings is small.

    Parameters
    ----------
    x
        Array of real or complex numbers; without `mask`, NaN marks gaps.
    mask
        True where `x` is known.
    truncation
        The share of the singular values of every unfolding, the largest ones, that cost nothing: 0 is HaLRTC,
        more is LRTC-TNN, which has used 0.05 to 0.3 for traffic.
    penalty
        Of differences between the unfoldings at the start, over the largest singular value of the known
        entries: the smaller, the more is cut off at first.
    growth
        Factor of the penalty in every iteration. With 1 and without truncation the answer is the minimum.
    iterations, tolerance
        End after so many iterations, or when one changes the gaps by less than this share of the known
        entries' norm.
    max_seconds
        Start no iteration after this.

    Returns
    -------
    numpy.ndarray
        A copy without gaps; known entries keep their values.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.einsum("i,j,k->ijk", np.ones(6), np.arange(1.0, 7.0), np.ones(6))
    >>> mask = np.random.default_rng(0).random(x.shape) < 0.6
    >>> bool(np.abs(halrtc(x, mask) - x).max() < 1e-2)
    True
    """
    begin = time.perf_counter()
    if not 0.0 <= truncation < 1.0:
        raise OptionError(f"truncation={truncation!r} must be at least 0 and below 1: it is a share")
    check_positive("penalty", penalty)
    if growth < 1.0:
        raise OptionError(f"growth={growth!r} must be at least 1")
    check_whole("iterations", iterations)
    filled, known = copy_known(x, mask)
    size = float(np.linalg.norm(filled[known]))
    gaps, axes = ~known, range(filled.ndim)
    filled[gaps] = filled[known].mean()
    if known.all() or size == 0.0:
        return filled
    largest = max(math.sqrt(float(_squares(_unfold(np.where(known, filled, 0.0), k))[-1])) for k in axes)
    penalty = penalty / largest
    free = [math.ceil(truncation * min(d, filled.size // d)) for d in filled.shape]
    duals: list[Array] = [np.zeros_like(filled) for _ in axes]
    for _ in range(iterations):
        if max_seconds is not None and time.perf_counter() - begin > max_seconds:
            break
        threshold = 1.0 / (filled.ndim * penalty)
        parts = [_shrink(filled - duals[k] / penalty, k, threshold, free[k]) for k in axes]
        before = filled[gaps]
        filled[gaps] = np.mean([(part + dual / penalty)[gaps] for part, dual in zip(parts, duals)], 0)
        for part, dual in zip(parts, duals):
            dual += penalty * (part - filled)
        if np.linalg.norm(filled[gaps] - before) <= tolerance * size:
            break
        penalty *= growth
    return filled


def _unfold(x: Array, axis: int) -> Array:
    return np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)


def _squares(matrix: Array) -> Array:
    """Squared singular values, in ascending order."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return np.asarray(np.linalg.eigvalsh(wide @ wide.conj().T)).clip(0.0)


def _shrink(x: Array, axis: int, threshold: float, free: int) -> Array:
    """Lower the singular values of an unfolding by a threshold, but for the largest ones.

    By the eigenvectors of the smaller Gram matrix: singular values far below rounding are noise that the
    threshold removes anyway, and long unfoldings take milliseconds where an SVD takes seconds.
    """
    matrix = _unfold(x, axis)
    tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if tall else matrix
    squares, vectors = np.linalg.eigh(wide @ wide.conj().T)
    values = np.sqrt(squares.clip(0.0))
    shares = np.zeros_like(values)
    some = values > threshold
    shares[some] = 1.0 - threshold / values[some]
    if free:
        shares[-free:] = 1.0
    kept = shares > 0.0
    basis = vectors[:, kept]
    low = (basis * shares[kept]) @ (basis.conj().T @ wide)
    rest = np.delete(np.array(x.shape), axis)
    return np.moveaxis((low.T if tall else low).reshape(x.shape[axis], *rest), 0, axis)
