"""Products of a matrix of few rows with a large one, on NumPy.

BLAS packs both operands of a large product into blocks first. Where one of them has few rows, that takes
longer than the arithmetic. Small products are computed from where the operands lie, so the large one is taken
a piece at a time. One of 100x10,000 with five rows on one core of an EPYC: 0.29 instead of 0.43 ms, stored by
columns 0.32 instead of 0.59; of 40x64,000 stored by columns 1.7 instead of 3.4; of 64,000x40, 0.9 instead of
2.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.inexact]

# Multiplications of one piece: BLAS takes products up to a million for small.
PIECE = 400_000
# The same of a long sum, where a piece of the large operand is wider than the result: half as much stays in
# the cache. Five rows by 10,000x100 on one core of an EPYC: 0.51 instead of 0.67 ms.
DEEP_PIECE = PIECE // 2
# Columns whose order matters on a GPU: with 8 of them, a float32 matrix of 2^20 x 1,024 takes an H200 3.0 or
# 1.8 ms. On NumPy packing takes longer for up to twice as many rows where the large operand is stored by
# columns, and for half as many where it is stored by rows, which lie far apart in its pieces.
FEW_COLUMNS = 16


def is_thin(m: int, k: int, n: int) -> bool:
    """Whether ``(m, k) x (k, n)`` is for `thin_product`."""
    return min(m, n) <= 2 * FEW_COLUMNS and m * k * n >= PIECE


def thin_product(a: Numbers, b: Numbers) -> Numbers:
    """``a @ b``, one of which has few rows or columns; in the order of storage that is fastest."""
    if len(a) > b.shape[1]:
        return thin_product(b.T, a.T).T
    columns, is_narrow = b.shape[1], 2 * len(a) <= FEW_COLUMNS
    by_rows = abs(b.strides[1]) <= abs(b.strides[0])
    if by_rows and len(a) * columns * FEW_COLUMNS**2 <= PIECE <= len(a) * columns * len(b) // 2:
        return deep_product(a, b)
    width = min(max(1, PIECE // a.size), columns)
    if by_rows and (not is_narrow or width < len(b)):
        return np.asarray(a.dot(b))
    dtype = np.result_type(a, b)
    if by_rows:
        out = np.empty((len(a), columns), dtype)
        whole = columns // width * width
        pieces, parts = (x[:, :whole].reshape(len(x), -1, width).transpose(1, 0, 2) for x in (b, out))
        np.matmul(a, pieces, out=parts)
        np.matmul(a, b[:, whole:], out=out[:, whole:])
        return out
    large, whole = b.T, columns // width * width  # this is stored by rows
    if is_narrow:
        out = np.empty((len(a), columns), dtype)
        np.matmul(
            a,
            _pieces(large, whole, width).swapaxes(1, 2),
            out=out[:, :whole].reshape(len(a), -1, width).transpose(1, 0, 2),
        )
        np.matmul(a, b[:, whole:], out=out[:, whole:])
        return out
    # Of more rows the transpose is faster to compute, and is left like that to whoever reads it.
    small, turned = np.ascontiguousarray(a.T), np.empty((columns, len(a)), dtype)
    np.matmul(_pieces(large, whole, width), small, out=_pieces(turned, whole, width))
    np.matmul(large[whole:], small, out=turned[whole:])
    return turned.T


def deep_product(a: Numbers, b: Numbers) -> Numbers:
    """``a @ b`` with a small result, from a long sum over what is stored by rows: some terms at a time."""
    width = DEEP_PIECE // (len(a) * b.shape[1])
    whole = len(b) // width * width
    a = np.ascontiguousarray(a)  # read by columns it takes a third longer
    total = np.matmul(_pieces(a.T, whole, width).swapaxes(1, 2), _pieces(b, whole, width)).sum(0)
    if whole < len(b):
        total += a[:, whole:] @ b[whole:]
    return np.asarray(total)


def _pieces(matrix: Numbers, whole: int, width: int) -> Numbers:
    """The first rows of a matrix, so many at a time."""
    return matrix[:whole].reshape(-1, width, matrix.shape[1])
