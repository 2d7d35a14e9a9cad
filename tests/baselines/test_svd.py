"""TT-SVD, HOSVD and SVDs along trees."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines.svd import interleave

from .tensors import DIMS, noise, planted, true_error


def test_interleaved_orders():
    assert interleave(8) == (0, 4, 1, 5, 2, 6, 3, 7)
    assert sorted(interleave(7)) == list(range(7))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_tt_svd_finds_a_train_in_its_order(dtype):
    hidden = tg.Structure((4,) * 5, {(0, 3): 2, (1, 3): 3, (1, 4): 2, (2, 4): 3})  # 0-3-1-4-2
    x = planted(hidden, dtype=dtype)
    r = baselines.tt_svd(x, order=(0, 3, 1, 4, 2), max_error=1e-8)
    assert r.structure == hidden
    assert baselines.tt_svd(x, max_error=1e-8).num_parameters > r.num_parameters
    best = baselines.tt_svd(x, order="best", tries=30, max_error=1e-8, random_state=0)
    assert r.num_parameters <= best.num_parameters < baselines.tt_svd(x, max_error=1e-8).num_parameters
    assert true_error(best, x) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_hosvd_finds_a_tucker_tensor(dtype):
    hidden = tg.Structure.tucker((4, 5, 4), (2, 3, 2))
    x = planted(hidden, dtype=dtype)
    assert baselines.hosvd(x, max_error=1e-8).structure == hidden


def test_tt_svd_is_no_worse_than_the_best_ranks_allow():
    """The error of a train is at least the largest of what its cuts must drop (Eckart-Young)."""
    x = noise(2)
    r = baselines.tt_svd(x, max_parameters=60)
    bounds = []
    for k in range(1, 4):
        s = np.linalg.svd(x.reshape(math.prod(DIMS[:k]), -1), compute_uv=False)
        bounds.append(np.linalg.norm(s[r.structure.rank(k - 1, k) :]) / np.linalg.norm(s))
    assert max(bounds) <= r.relative_error <= math.sqrt(3) * max(bounds) * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("order", [2, 3, 5, 6])
def test_ht_svd_finds_a_hierarchical_tucker_tensor(dtype, order):
    x = planted(tg.Structure.hierarchical_tucker((4,) * order, 2), dtype=dtype)
    r = baselines.ht_svd(x, max_error=1e-8)
    assert set(r.structure.ranks.values()) == {2}
    assert r.structure.num_nodes == max(order, 2 * order - 2)  # without the root
    assert true_error(r, x) < 1e-8
    assert baselines.ht_svd(x, max_error=1e-8, tree="best").num_parameters <= r.num_parameters


def test_the_best_tree_is_found_whatever_the_order_of_its_modes():
    hidden = tg.Structure((4,) * 5, {(0, 3): 2, (1, 3): 3, (1, 4): 2, (2, 4): 3})  # a train 0-3-1-4-2
    x = planted(hidden)
    assert baselines.ht_svd(x, max_error=1e-8, tree="best").structure == hidden
    star = tg.Structure.tucker((5,) * 3, 2)
    assert baselines.ht_svd(planted(star), max_error=1e-8, tree="best").structure == star


def test_a_truncated_tree_keeps_its_promise():
    """Errors of the cuts add up in squares at most, and each is at least what its cut must drop."""
    x = noise(3)
    for tree in ("balanced", "best"):
        r = baselines.ht_svd(x, max_error=0.5, tree=tree)
        assert true_error(r, x) == pytest.approx(r.relative_error, rel=1e-9)
        assert r.relative_error <= 0.5
    assert baselines.ht_svd(x, max_parameters=50, tree="best").num_parameters <= 50


def test_what_ht_svd_refuses():
    with pytest.raises(tg.OptionError, match="tree='chain' is not known"):
        baselines.ht_svd(noise(), max_error=0.1, tree="chain")
    with pytest.raises(tg.OptionError, match="two axes"):
        baselines.ht_svd(np.ones(4), max_error=0.1)
    with pytest.raises(tg.OptionError, match="up to 10 modes, not 11"):
        baselines.ht_svd(np.ones((2,) * 11), max_error=0.1, tree="best")
