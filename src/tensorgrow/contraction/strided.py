"""Products of a matrix with a large tensor whose axes are not in the order of a matrix, on a GPU.

Putting the axes in order reads the tensor and writes a copy, which is then read again. Where the axes form
three runs, summed over or not in turn, one product per index of the first run reads the tensor once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

# Entries from which a copy takes longer than starting a few more operations, and of one product among many.
LARGE = 1 << 22
LARGE_SLAB = 1 << 14


@dataclass(frozen=True)
class Runs:
    """Sizes of three runs of axes; either the middle one is summed over, or the other two."""

    first: int
    middle: int
    last: int
    sums_middle: bool


def runs_of(axes: Sequence[tuple[bool, int]]) -> Runs | None:
    """Three runs from axes in storage order, each summed over or not and its size; None for more or fewer."""
    runs = [
        (summed, math.prod(n for _, n in run))
        for summed, run in groupby((axis for axis in axes if axis[1] > 1), key=lambda axis: axis[0])
    ]
    if len(runs) != 3:
        return None
    (_, first), (sums_middle, middle), (_, last) = runs
    return Runs(first, middle, last, sums_middle)


def is_worthwhile(rows: int, tensor: torch.Tensor, runs: Runs) -> bool:
    """Whether a product with a matrix of `rows` rows should avoid a copy of the tensor."""
    if not (tensor.is_cuda and tensor.numel() >= LARGE and runs.middle * runs.last >= LARGE_SLAB):
        return False
    # Sums over the first run have as many parts as it has indices: at most a quarter of the tensor.
    return runs.sums_middle or rows <= 0.25 * runs.last


def product_by_runs(matrix: torch.Tensor, tensor: torch.Tensor, runs: Runs) -> torch.Tensor:
    """``matrix @ t``, where ``t`` is the tensor with the axes to sum over first, as a matrix."""
    batch = tensor.reshape(runs.first, runs.middle, runs.last)
    rows = matrix.shape[0]
    if runs.sums_middle:
        return torch.bmm(matrix.expand(runs.first, -1, -1), batch).transpose(0, 1).reshape(rows, -1)
    parts = matrix.reshape(rows, runs.first, runs.last).transpose(0, 1)
    return torch.bmm(parts, batch.transpose(1, 2)).sum(0)
