"""Which tensorisation suits an array: a few candidates, each judged by the size of a network for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .axes import Order, Padding, Tensorization
from .digits import arrange, even_digits

# Sizes of digits to try. Interleaved modes make the best trains, and for networks over all edges the order of
# the modes does not matter. Grouped modes made networks of photographs larger.
BASES = (2, 4, 8, 16)
# More modes than this make a search slow.
MOST_MODES = 12
# Relative error at which the candidates are judged by default.
DEFAULT_ERROR = 0.1
# Share of the train that a network over all edges takes, by the number of modes: with two they are the same.
# About the medians of 22 pictures, tables and functions at errors of 0.1 and 0.2.
SHARES = {1: 1.0, 2: 1.0, 3: 1 / 2}
SHARE = 1 / 3


def even(shape: Sequence[int], order: Order, base: int | None, padding: Padding = "edge") -> Tensorization:
    """Cut axes into digits of about `base`; None leaves them whole."""
    digits = tuple((n,) if base is None else even_digits(n, base) for n in shape)
    return Tensorization(tuple(shape), digits, arrange(digits, order), order, padding)


def for_missing(shape: Sequence[int], order: Order | None = None, padding: Padding = "edge") -> Tensorization:
    """Return the tensorisation for arrays with missing entries, which have no spectra to judge by.

    Digits of about 8: few, large modes leave few ranks to find, and neighbouring entries share them.
    """
    return even(shape, order or "grouped", 8, padding)


def choose(
    x: torch.Tensor,
    order: Order | None,
    padding: Padding = "edge",
    max_error: float = DEFAULT_ERROR,
    edges: object = "all",
) -> Tensorization:
    """Choose the candidate with the smallest network at a relative error, as far as trains tell.

    The array as it is is one of them. Unless it may have all `edges`, the network is about as large as a
    train.
    """
    measure = network_size if edges == "all" else train_size
    recipes: list[tuple[Order, int | None]] = [*((order or "interleaved", base) for base in BASES)]
    recipes.append((order or "C", None))
    block = _block(x)
    best: tuple[float, Tensorization] | None = None
    for name, base in recipes:
        candidate = even(tuple(x.shape), name, base, padding)
        if len(candidate.dims) > max(MOST_MODES, x.dim()):
            continue
        size = measure(even(tuple(block.shape), name, base, padding).apply(block), max_error)
        if best is None or size < best[0]:
            best = (size, candidate)
    assert best is not None  # the array as it is is always judged
    return best[1]


def _block(x: torch.Tensor) -> torch.Tensor:
    """At most 2^20 entries from the middle, in single precision; the longest axes are cut first."""
    sizes = list(x.shape)
    while math.prod(sizes) > 1 << 20:
        longest = sizes.index(max(sizes))
        sizes[longest] = (sizes[longest] + 1) // 2
    first = [(n - m) // 2 for n, m in zip(x.shape, sizes)]
    block = x[tuple(slice(a, a + m) for a, m in zip(first, sizes))]
    block = block.to(torch.complex64 if block.is_complex() else torch.float32)
    return block / (block.abs().max().clamp_min(torch.finfo(torch.float32).tiny))


def network_size(tensor: torch.Tensor, max_error: float) -> float:
    """Estimate the parameters of a network over all edges at a relative error, from those of a train.

    A train of many modes carries what distant modes share through all ranks between them, which a matrix need
    not: without this, a picture as it is seemed smaller than its digits, whose network had half the size.
    What does not compress gains nothing.
    """
    size = train_size(tensor, max_error)
    share = SHARES.get(tensor.dim(), SHARE)
    return size * (share + (1.0 - share) * min(1.0, size / tensor.numel()))


def train_size(tensor: torch.Tensor, max_error: float) -> int:
    """Count the parameters of the tensor train that nested SVDs give at a relative error."""
    left = tensor.reshape(1, -1)
    cut = float(tensor.norm()) * max_error / math.sqrt(max(1, tensor.dim() - 1))
    size, rank = 0, 1
    for d in tensor.shape[:-1]:
        matrix = left.reshape(rank * d, -1)
        # Gram matrices are cheap, and squared singular values do for errors far above rounding.
        tall = matrix.shape[0] > matrix.shape[1]
        gram = matrix.mH @ matrix if tall else matrix @ matrix.mH
        # In double: in single precision LAPACK has returned NaN for matrices that are mostly zero.
        values, vectors = torch.linalg.eigh(gram.to(torch.complex128 if gram.is_complex() else torch.float64))
        values, vectors = values.to(tensor.real.dtype), vectors.to(tensor.dtype)
        values, vectors = values.clamp_min(0.0).flip(0), vectors.flip(1)
        tails = values.flip(0).cumsum(0).flip(0)  # energy from the k-th largest on
        next_rank = max(1, int((tails > cut**2).sum()))
        values, vectors = values[:next_rank], vectors[:, :next_rank]
        # The rows that are left: U^H M, which for M = U S V^H is also S V^H.
        left = values.sqrt()[:, None].to(vectors.dtype) * vectors.mH if tall else vectors.mH @ matrix
        size += rank * d * next_rank
        rank = next_rank
    return size + left.numel()
