"""Rows and columns that span a matrix."""

from __future__ import annotations

import pytest
import torch

from tensorgrow.algebra.pivots import find_pivots, pick_columns


def low_rank(rank: int, dtype=torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    left, right = (torch.randn(n, rank, generator=generator, dtype=dtype) for n in (9, 12))
    return left @ right.T


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("first", [0, 2])
def test_a_cross_through_the_pivots_is_the_matrix(dtype, first):
    x = low_rank(4, dtype)
    rows, columns = find_pivots(x, 1e-10, first=first)
    assert len(set(rows)) == len(set(columns)) == 4
    assert rows[:first] == columns[:first] == list(range(first))
    cross = x[:, columns] @ torch.linalg.solve(x[rows][:, columns], x[rows])
    assert torch.allclose(cross, x)


def test_the_tolerance_says_what_is_zero():
    x = low_rank(2) + 1e-6 * low_rank(3)
    assert len(find_pivots(x, 1e-3)[0]) == 2
    assert len(find_pivots(x, 0.0)[0]) == 5  # rounding is never a pivot


def test_columns_span_the_others():
    x = low_rank(3)
    columns = pick_columns(x, 5, [7])
    assert columns[0] == 7 and len(set(columns)) == 5
    some = x[:, columns[:3]]
    assert torch.allclose(some @ torch.linalg.pinv(some) @ x, x)
    assert len(pick_columns(x, 99)) == 12
