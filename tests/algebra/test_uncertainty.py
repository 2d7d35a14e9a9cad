"""Errors to expect of a network, from parts that are easy to compute otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow import OptionError, Structure
from tensorgrow.algebra.uncertainty import (
    ErrorModel,
    Uncertainty,
    check_level,
    fit_factors,
    slice_factors,
    summarise,
)
from tests.oracles import random_network

RING = Structure((3, 4, 2), {(0, 1): 2, (1, 2): 3, (0, 2): 2})


def known(scores, count=None):
    scores = torch.as_tensor(scores, dtype=torch.float64)
    return Uncertainty(1.0, scores, len(scores) if count is None else count)


def test_variances_are_those_of_perturbed_cores():
    network = random_network(RING, 0)
    where = torch.cartesian_prod(*map(torch.arange, RING.dims))
    leverage = torch.zeros(len(where), dtype=torch.float64)
    for k, core in enumerate(network.cores):  # the tensor is linear in each number of each core
        for place in np.ndindex(*core.shape):
            unit = torch.zeros_like(core)
            unit[place] = 1.0
            cores = [unit if j == k else c for j, c in enumerate(network.cores)]
            leverage += type(network)(RING, cores).entries(where) ** 2 / 2.0
    factors = (1.0 + where.double()).prod(1)
    model = ErrorModel(
        noise=0.5,
        exponent=0,
        factors=tuple(1.0 + torch.arange(d, dtype=torch.float64) for d in RING.dims),
        precisions=tuple(torch.full(s, 2.0) for s in RING.core_shapes),
    )
    found = model.std(RING, network.cores, where)
    assert found.numpy() == pytest.approx((0.5 * (factors * (1.0 + leverage)).sqrt()).numpy(), rel=1e-6)


def test_factors_of_slices_are_found():
    rng, dims = np.random.default_rng(0), (6, 5)
    true = [torch.tensor([4.0, 1.0, 1.0, 1.0, 1.0, 0.25]).double(), torch.ones(5).double()]
    columns = [torch.from_numpy(rng.integers(0, d, 20_000)) for d in dims]
    squares = slice_factors(true, columns) * torch.from_numpy(rng.standard_normal(20_000) ** 2)
    found = fit_factors(squares, columns, dims)
    assert found[0].numpy() == pytest.approx(true[0].numpy(), rel=0.1)
    assert found[1].numpy() == pytest.approx(true[1].numpy(), rel=0.1)
    few = fit_factors(squares[:3], [c[:3] for c in columns], dims)
    assert max(abs(np.log(f.numpy())).max() for f in few) < np.log(2.0)  # three entries say little


def test_widths_are_the_ranks_that_conformal_prediction_asks_for():
    assert known(np.arange(1.0, 20.0)).halfwidth(0.9) == pytest.approx(18.0)
    assert known(np.arange(1.0, 20.0)).halfwidth(0.5) == pytest.approx(10.0)
    with pytest.raises(OptionError, match=r"needs 99 held-out entries or more, and there were 19.*0\.95"):
        known(np.arange(1.0, 20.0)).halfwidth(0.99)


def test_of_many_scores_a_thousand_are_kept():
    scores = torch.from_numpy(np.random.default_rng(0).exponential(size=50_000))
    kept = summarise(scores)
    assert len(kept) == 1000
    few, all_ = known(kept, 50_000), known(scores.sort().values)
    for level in (0.1, 0.5, 0.9, 0.99):
        assert few.halfwidth(level) == pytest.approx(all_.halfwidth(level), rel=5e-3)


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, float("nan"), True, "0.9", None])
def test_levels_are_shares(level):
    with pytest.raises(OptionError, match=r"interval=.* must lie between 0 and 1"):
        check_level(level)
