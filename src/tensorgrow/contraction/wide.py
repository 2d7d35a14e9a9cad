"""Large products on several threads, on NumPy, where its BLAS is held to one.

Threads of a BLAS spin while they wait for each other. On a machine that is busy with something else, a sweep
of a wide graph took 4.8 s with two of them, and 0.35 s with one. Here every thread multiplies some rows or
columns by itself: whoever comes late holds nobody up for longer than that takes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..data.devices import threads_of_run
from ..data.parallel.executor import map_in_order

Numbers = npt.NDArray[np.inexact]

# Multiplications from which threads are worth it: a millisecond of one core; handing out takes 0.1 ms.
MANY = 30_000_000
# Pieces per thread, so that one that is held up leaves some of its share to the others.
PIECES = 2


def is_wide(m: int, k: int, n: int) -> bool:
    """Whether ``(m, k) x (k, n)`` is for `wide_product`."""
    return m * k * n >= MANY


def wide_product(a: Numbers, b: Numbers) -> Numbers:
    """``a @ b``, pieces of the larger side of the result by threads.

    The pieces are the same whether or not other runs keep the threads from being used: so is the result.
    """
    threads, most = threads_of_run()
    if most == 1:
        return np.asarray(a.dot(b))
    out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    by_rows = len(a) >= b.shape[1]
    size = -(-max(out.shape) // (PIECES * most))

    def multiply(first: int) -> None:
        piece = slice(first, first + size)
        if by_rows:
            np.matmul(a[piece], b, out=out[piece])
        else:
            np.matmul(a, b[:, piece], out=out[:, piece])

    for _ in map_in_order(multiply, range(0, max(out.shape), size), threads, lasting=True):
        pass
    return out
