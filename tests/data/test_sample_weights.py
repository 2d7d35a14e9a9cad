from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.sample_weights import SampleWeights


def test_samples_that_differ_stay_as_they_are():
    x = np.random.default_rng(0).standard_normal((7, 2, 3))
    for weights in (None, np.full(7, 0.25)):
        counted = SampleWeights.of([x, np.zeros(7)], weights)
        assert counted.rows.tolist() == list(range(7)) and counted.weights is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_repeated_samples_are_one(dtype):
    x = np.array([[1, 0.0], [2, 5], [1, -0.0], [2, 5], [1, 0]], dtype)
    y = np.array([3, 4, 3, 5, 3])  # the second and the fourth differ in the response
    counted = SampleWeights.of([x, y])
    assert sorted(counted.rows.tolist()) == [0, 1, 3]
    found = dict(zip(counted.rows.tolist(), counted.weights.tolist()))
    assert found == pytest.approx({0: 1.8, 1: 0.6, 3: 0.6})


def test_order_and_copies_do_not_matter():
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((20, 3)), rng.integers(0, 4, 20)
    one = SampleWeights.of([x], weights)
    order = rng.permutation(int(weights.sum()))
    copies = x.repeat(weights, 0)[order]
    other = SampleWeights.of([torch.tensor(copies)])
    assert np.array_equal(x[one.rows], copies[other.rows])
    assert torch.equal(one.weights, other.weights)
    assert len(one.rows) == (weights > 0).sum()
    apart = SampleWeights.of([copies], merge=False)
    assert apart.rows.tolist() == list(range(len(copies))) and apart.weights is None


@pytest.mark.parametrize(
    "weights", [np.ones(3), np.zeros(4), -np.ones(4), np.full(4, np.nan), np.ones((4, 1))]
)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(tg.DataError, match="weights"):
        SampleWeights.of([np.eye(4)], weights)
