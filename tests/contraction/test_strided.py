from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.contraction.strided import product_by_runs, runs_of
from tests.strategies import seeds

RUN_SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=2)


@given(st.lists(RUN_SIZES, min_size=3, max_size=3), st.booleans(), seeds)
def test_products_by_runs_equal_products_of_matrices(sizes, summed_first, seed):
    axes = [(summed_first != k % 2, n) for k, run in enumerate(sizes) for n in (2, *run)]
    runs = runs_of(axes)
    assert runs is not None and runs_of(axes[: len(axes) - len(sizes[2]) - 1]) is None
    tensor = torch.from_numpy(np.random.default_rng(seed).standard_normal([n for _, n in axes]))
    order = [k for k, (s, _) in enumerate(axes) if s] + [k for k, (s, _) in enumerate(axes) if not s]
    summed = math.prod(n for s, n in axes if s)
    matrix = torch.from_numpy(np.random.default_rng(seed + 1).standard_normal((3, summed)))
    expected = matrix @ tensor.permute(order).reshape(summed, -1)
    torch.testing.assert_close(product_by_runs(matrix, tensor, runs), expected)
