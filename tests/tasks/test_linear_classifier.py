"""Linear classifiers as networks, and logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.contraction import product_plan
from tensorgrow.tasks.linear_classifier import (
    LabelledSamples,
    choose_ridge,
    fit_logistic,
    linear_network,
    spanning_tree,
    tree_ranks,
)

pytest.importorskip("sklearn")

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

DOUBLE = torch.float64
CHAIN = [(0, 1), (1, 2), (2, 6), (3, 6), (3, 4), (4, 5)]


@pytest.mark.parametrize("extra", [0, 2])
@pytest.mark.parametrize(
    ("size", "classes", "edges"),
    [
        (2, 2, CHAIN),
        (3, 4, CHAIN),
        (2, 10, CHAIN),
        (2, 3, [(k, 6) for k in range(6)]),
        (2, 4, [(0, 1), (1, 2), (1, 3), (3, 6), (4, 6), (4, 5)]),
        (2, 3, [(0, 6), (1, 6), (1, 2)]),
    ],
)
def test_a_tree_holds_a_linear_classifier(size, classes, edges, extra):
    generator = torch.Generator().manual_seed(0)
    dims = (size,) * 6 + (classes,)
    tree = spanning_tree(dict.fromkeys(edges, 1), 6)
    ranks = tree_ranks(dims, tree, classes - 1)
    assert max(ranks.values()) <= classes
    structure = tg.Structure(dims, {e: r + extra for e, r in ranks.items()})
    weights = torch.randn(classes, 1 + 6 * (size - 1), generator=generator, dtype=DOUBLE)
    network = linear_network(structure, weights, noise=0.0, generator=generator)
    features = torch.randn(20, 6, size, generator=generator, dtype=DOUBLE)
    features[:, :, 0] = 1.0
    joined = {node for node, _ in tree}
    for node in set(range(6)) - joined:
        features[:, node, 1:] = 0.0  # not heard at the classes
    found = product_plan(structure).run(network.cores, features).log_softmax(1)
    exact = features[:, :, 1:].flatten(1) @ weights[:, 1:].T + weights[:, 0]
    assert torch.allclose(found, exact.log_softmax(1), atol=1e-10)


def test_too_small_ranks_hold_the_leading_directions():
    generator = torch.Generator().manual_seed(0)
    structure = tg.Structure((2,) * 6 + (5,), dict.fromkeys(CHAIN, 2))
    weights = torch.randn(5, 2, generator=generator, dtype=DOUBLE) @ torch.ones(2, 7, dtype=DOUBLE)
    network = linear_network(structure, weights, noise=0.0, generator=generator)
    features = torch.randn(20, 6, 2, generator=generator, dtype=DOUBLE)
    features[:, :, 0] = 1.0
    found = product_plan(structure).run(network.cores, features).log_softmax(1)
    exact = features[:, :, 1] @ weights[:, 1:].T + weights[:, 0]  # one direction
    assert torch.allclose(found, exact.log_softmax(1), atol=1e-10)


def test_logistic_regression_agrees_with_scikit_learn():
    x, y = load_iris(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    samples = LabelledSamples(torch.from_numpy(x), torch.from_numpy(y), 3)
    found = fit_logistic(samples, 0.01)
    # A constant feature, since scikit-learn puts no ridge on its own constants.
    theirs = LogisticRegression(C=1 / (2 * 0.01 * 150), fit_intercept=False, tol=1e-10, max_iter=5000)
    theirs.fit(np.column_stack([np.ones(150), x]), y)
    assert np.allclose(found.numpy(), theirs.coef_, atol=1e-3)
    generator = torch.Generator().manual_seed(0)
    assert choose_ridge(samples, generator) < 1.0  # iris can be told apart
    noise = torch.randint(0, 2, (150,), generator=generator)
    assert choose_ridge(LabelledSamples(samples.x, noise, 2), generator) >= 1.0
