"""Products of a matrix of few rows with a large one, on NumPy.

BLAS packs both operands of a large product into blocks first. Where one of them has few rows, that takes
longer than the arithmetic. Small products are computed from where the operands lie, so the large one is taken
a piece at a time. One of 100x10,000 with five rows on one core of an EPYC: 0.29 instead of 0.43 ms, stored by
columns 0.30 instead of 0.68; of 40x64,000 stored by columns 2.0 instead of 4.3.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.inexact]

# Multiplications of one piece: BLAS takes products up to a million for small.
PIECE = 400_000
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
    width = min(max(1, PIECE // a.size), columns)
    if by_rows and (not is_narrow or width < len(b)):
        return np.asarray(a.dot(b))
    dtype = np.result_type(a, b)
    out = np.empty((len(a), columns) if is_narrow else (columns, len(a)), dtype)
    if by_rows:
        whole = columns // width * width
        pieces, parts = (x[:, :whole].reshape(len(x), -1, width).transpose(1, 0, 2) for x in (b, out))
        np.matmul(a, pieces, out=parts)
        np.matmul(a, b[:, whole:], out=out[:, whole:])
        return out
    # Its transpose is stored by rows. Of few rows, pieces of the result are transposed while they are in the
    # cache; of more, that takes as long as it saves, so the result is left to whoever reads it.
    small, large = np.ascontiguousarray(a.T), b.T
    room = np.empty((width, len(a)), dtype)
    for first in range(0, columns, width):
        piece = large[first : first + width]
        if is_narrow:
            out[:, first : first + width] = np.matmul(piece, small, out=room[: len(piece)]).T
        else:
            np.matmul(piece, small, out=out[first : first + width])
    return out if is_narrow else out.T
