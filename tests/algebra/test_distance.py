"""Norms of combinations of networks without squares, and networks as trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.algebra.distance import as_train, factor_plan, joint_factor
from tests.oracles import dense, random_network

DIMS = (3, 2, 4, 2)
GRAPHS = {
    "train": tg.Structure.tensor_train(DIMS, 2),
    "ring": tg.Structure.tensor_ring(DIMS, 3),
    "star": tg.Structure.tucker(DIMS, 2),
    "tree": tg.Structure.hierarchical_tucker(DIMS, 2),
    "apart": tg.Structure(DIMS, {(0, 2): 2}),
    "internal": tg.Structure(DIMS, {(0, 4): 2, (4, 5): 3, (5, 2): 2, (0, 1): 2}, num_nodes=7),
}


@pytest.mark.parametrize("first", GRAPHS)
@pytest.mark.parametrize("second", ["ring", "internal"])
def test_inner_products_are_those_of_the_tensors(first, second, double):
    networks = [random_network(GRAPHS[g], n, double) for n, g in enumerate((first, second))]
    factor = joint_factor([(n.structure, n.cores) for n in networks]).numpy()
    columns = np.stack([dense(n.structure, n.cores).ravel() for n in networks], 1)
    np.testing.assert_allclose(factor.conj().T @ factor, columns.conj().T @ columns, rtol=1e-10)
    combination = np.array([2.0, -0.5])
    assert np.linalg.norm(factor @ combination) == pytest.approx(np.linalg.norm(columns @ combination))


def test_differences_far_below_the_root_of_rounding_are_seen():
    network = random_network(GRAPHS["ring"], 0)
    cores = [network.cores[0] * (1 + 1e-12), *network.cores[1:]]
    factor = joint_factor([(network.structure, c) for c in (network.cores, cores)])
    relative = float((factor[:, 0] - factor[:, 1]).norm() / factor[:, 0].norm())
    assert relative == pytest.approx(1e-12, rel=1e-2)


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_network_is_a_train(graph, double):
    network = random_network(GRAPHS[graph], 3, double)
    structure, cores = as_train(network.structure, network.cores)
    assert max(map(len, structure.neighbours)) <= 2 and structure.num_nodes == len(DIMS)
    expected = dense(network.structure, network.cores)
    np.testing.assert_allclose(dense(structure, cores), expected, atol=1e-12 * np.linalg.norm(expected))


def test_plans_follow_the_graph():
    train = tg.Structure.tensor_train((2,) * 60, 8)
    plan = factor_plan((train, train))
    assert plan.peak_entries <= 2 * 16 * 16  # rows by columns of both, one leg
    assert sorted(plan.order) == list(range(60))
    assert torch.isfinite(joint_factor([(train, random_network(train, 0).cores)])).all()
