"""Networks from the cores and factors of other formats."""

from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.baselines.formats import capped_train, cp_network, train_network, tucker_network

from .tensors import DIMS


def test_a_train_in_any_order_is_the_contraction_of_its_cores():
    rng = np.random.default_rng(0)
    order, ranks = (2, 0, 3, 1), (1, 2, 3, 2, 1)
    cores = [rng.standard_normal((ranks[k], DIMS[leg], ranks[k + 1])) for k, leg in enumerate(order)]
    expected = np.einsum("xcp,paq,qdr,rby->abcd", *cores)
    network = train_network(cores, order)
    assert np.allclose(network.to_dense(), expected)
    assert set(network.structure.edges) == {(0, 2), (0, 3), (1, 3)}


def test_a_tucker_network_is_the_product_of_its_factors():
    rng = np.random.default_rng(0)
    core = rng.standard_normal((2, 1, 2, 3))
    factors = [rng.standard_normal((d, r)) for d, r in zip(DIMS, core.shape)]
    expected = np.einsum("pqrs,ap,bq,cr,ds->abcd", core, *factors)
    assert np.allclose(tucker_network(core, factors).to_dense(), expected)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rank", [1, 3])
def test_a_cp_network_is_the_sum_of_rank_one_terms(order, rank):
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, rank)) for d in (3, 4, 2, 5, 2)[:order]]
    letters = "abcde"[:order]
    expected = np.einsum(",".join(f"{k}z" for k in letters) + "->" + letters, *factors)
    assert np.allclose(cp_network(factors).to_dense(), expected)


def test_train_ranks_stay_below_what_a_cut_allows():
    assert dict(capped_train((2, 3, 4), 10).ranks) == {(0, 1): 2, (1, 2): 4}
