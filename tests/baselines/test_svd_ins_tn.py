"""SVDinsTN."""

from __future__ import annotations

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines.svd_ins_tn import solve_sparse_diagonal

from .tensors import planted


def test_svd_ins_tn_cuts_the_complete_graph_down_to_the_planted_train():
    hidden = tg.Structure((5,) * 4, {(0, 1): 2, (1, 2): 3, (2, 3): 2})
    r = baselines.svd_ins_tn(planted(hidden, 1), max_error=1e-4, random_state=1)
    assert r.structure == hidden
    assert r.stop == tg.StopReason.TARGET_REACHED
    sizes = [s.num_parameters for s in r.history]
    first = sizes.index(hidden.num_parameters)
    assert sizes[0] < sizes[first]  # from sparse to dense
    assert all(s.relative_error > 1e-4 for s in r.history[first + 2 :])  # nothing between the two weights


def test_svd_ins_tn_starts_small_where_the_complete_graph_is_too_large():
    x = np.random.default_rng(0).random((3,) * 6)
    r = baselines.svd_ins_tn(x, max_rank=3, sparsity=1e-4, iterations=3, polish=False, random_state=0)
    assert r.num_parameters < x.size


def test_the_sparse_diagonal_solves_its_lasso():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8, 4))
    q, b, weight = torch.tensor(a.T @ a), torch.tensor(rng.standard_normal(4)), 0.3
    s = solve_sparse_diagonal(q, b, torch.ones(4, dtype=torch.float64), weight)
    gradient = q @ s - b  # optimality: |gradient| <= weight, equal with the opposite sign where s is not zero
    assert bool((gradient.abs() <= weight + 1e-8).all())
    alive = s != 0
    assert torch.allclose(gradient[alive], -weight * s[alive].sign(), atol=1e-6)
    assert bool((solve_sparse_diagonal(q, b, s, 1e3) == 0).all())
