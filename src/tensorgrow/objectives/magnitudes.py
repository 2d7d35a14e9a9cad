"""Which modes of a tensor interact, as the magnitudes of some of its entries tell.

Entries whose signs are balanced say nothing of a network through their means: averaged over all modes but
two they vanish. Their magnitudes do not. If no edge joins two modes, the logarithm of a magnitude is nearly
a sum over the modes; where an edge does, entries that share the slices of both are alike beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch

from ..structure import Edge

# Magnitudes below this share of the median count as that share: the logarithm of a zero would count for all.
FLOOR = 1e-2
# Rounds in which the mean of every slice is taken off; random positions need two, and patterns a few more.
ROUNDS = 5


def interactions(indices: torch.Tensor, values: torch.Tensor, dims: Sequence[int]) -> dict[Edge, float]:
    """By how many standard errors entries that share the slices of two modes are alike, for every pair.

    Parameters
    ----------
    indices
        Positions, ``(n, order)``.
    values
        The entries.
    """
    rest = _log_magnitudes(values.detach())
    columns = [indices[:, k] for k in range(len(dims))]
    for _ in range(ROUNDS):
        for column, size in zip(columns, dims, strict=True):
            rest = rest - (_sums(rest, column, size) / _counts(column, size).clamp_min(1.0))[column]
    spread = rest.square().mean().sqrt()
    if not bool(spread > 0.0):
        return dict.fromkeys(combinations(range(len(dims)), 2), 0.0)
    rest = rest / spread
    return {
        (i, j): _alike(rest, columns[i] * dims[j] + columns[j]) for i, j in combinations(range(len(dims)), 2)
    }


def _log_magnitudes(values: torch.Tensor) -> torch.Tensor:
    sizes = values.abs().double()
    known = sizes[sizes > 0.0]
    if not len(known):
        return torch.zeros_like(sizes)
    logs = sizes.clamp_min(FLOOR * float(known.median())).log()
    return logs - logs.mean()


def _alike(rest: torch.Tensor, cells: torch.Tensor) -> float:
    """Sum of products of all pairs in the same cell over its standard deviation for independent numbers."""
    found, cell = torch.unique(cells, return_inverse=True)
    counts = _counts(cell, len(found))
    total = _sums(rest, cell, len(found)).square().sum() - rest.square().sum()
    pairs = float((counts * (counts - 1.0)).sum())
    return float(total) / (2.0 * pairs) ** 0.5 if pairs else 0.0


def _counts(column: torch.Tensor, size: int) -> torch.Tensor:
    return torch.bincount(column, minlength=size).double()


def _sums(values: torch.Tensor, column: torch.Tensor, size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add_(0, column, values)
