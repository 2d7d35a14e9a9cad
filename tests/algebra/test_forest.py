"""Networks without cycles: singular values, truncation, other trees."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.algebra.forest import Forest, is_forest, smallest_tree
from tests.oracles import dense, random_network

DIMS = (3, 2, 4, 3)
TREES = {
    "train": tg.Structure.tensor_train(DIMS, 3),
    "star": tg.Structure.tucker(DIMS, 2),
    "apart": tg.Structure(DIMS, {(0, 2): 2}, num_nodes=5),
    "rank one": tg.Structure.rank_one(DIMS),
}


@pytest.fixture(params=TREES)
def network(request, double) -> tg.TensorNetwork:
    return random_network(TREES[request.param], 0, double)


def tensor(forest: Forest) -> np.ndarray:
    return dense(*forest.network())


def test_graphs_without_cycles():
    assert all(map(is_forest, TREES.values()))
    assert not is_forest(tg.Structure.tensor_ring(DIMS, 2))


def test_the_tensor_stays(network):
    forest, expected = Forest(network.structure, network.cores), dense(network.structure, network.cores)
    np.testing.assert_allclose(tensor(forest), expected, atol=1e-12)
    assert forest.norm == pytest.approx(np.linalg.norm(expected))
    found = smallest_tree(forest, 1e-14, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(tensor(found), expected, atol=1e-11 * forest.norm)
    assert found.num_parameters <= forest.num_parameters
    np.testing.assert_allclose(tensor(forest), expected, atol=1e-12)  # it is a copy that changed


def test_singular_values_are_those_of_the_cuts(network):
    expected = dense(network.structure, network.cores)
    cuts = dict(Forest(network.structure, network.cores).spectra())
    assert len(cuts) >= len(DIMS) - 1
    for mask, values in cuts.items():
        inside = [k for k in range(4) if mask >> k & 1]
        outside = [k for k in range(4) if k not in inside]
        matrix = expected.transpose(*inside, *outside).reshape(math.prod(DIMS[k] for k in inside), -1)
        true = np.linalg.svd(matrix, compute_uv=False)
        count = min(len(true), len(values))
        np.testing.assert_allclose(values.numpy()[:count], true[:count], atol=1e-11 * true[0])


@pytest.mark.parametrize("allowed", [0.1, 0.5])
def test_truncation_stays_within_the_error(network, allowed):
    forest, expected = Forest(network.structure, network.cores), dense(network.structure, network.cores)
    forest.truncate(allowed)
    error = np.linalg.norm(tensor(forest) - expected)
    assert error <= allowed * forest.norm * (1 + 1e-9)
    assert error <= forest.lost * (1 + 1e-9) + 1e-12


def test_the_right_order_of_a_train_is_found():
    """A train of rank 2 with its legs in another order, given as one in the natural order."""
    legs = (0, 3, 1, 2, 6, 5, 4, 7)
    right = tg.Structure((2,) * 8, dict.fromkeys(pairwise(legs), 2))
    tensor = dense(right, random_network(right, 5).cores)
    rest, pieces = tensor.reshape(1, -1), []
    for _ in range(7):
        u, s, vh = np.linalg.svd(rest.reshape(len(rest) * 2, -1), full_matrices=False)
        rank = int((s > 1e-12 * s[0]).sum())
        pieces.append(u[:, :rank].reshape(len(rest), 2, rank))
        rest = s[:rank, None] * vh[:rank]
    pieces.append(rest.reshape(len(rest), 2, 1))
    wrong = tg.Structure.tensor_train((2,) * 8, [p.shape[2] for p in pieces[:-1]])
    cores = [
        torch.from_numpy(p.transpose(1, 0, 2).reshape(wrong.core_shape(k))) for k, p in enumerate(pieces)
    ]
    assert wrong.num_parameters > 2 * right.num_parameters
    found = smallest_tree(Forest(wrong, cores), 1e-12, torch.Generator().manual_seed(0))
    assert found.num_parameters <= right.num_parameters
    np.testing.assert_allclose(dense(*found.network()), tensor, atol=1e-10 * found.norm)
