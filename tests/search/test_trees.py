from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
import torch

from tensorgrow import Structure
from tensorgrow.search import CutBounds
from tensorgrow.search.trees import build_tree, smallest_tree
from tests.oracles import dense as contract
from tests.oracles import random_network


def planted(structure: Structure, seed: int = 0, dtype: torch.dtype = torch.float64) -> np.ndarray:
    x = contract(structure, random_network(structure, seed, dtype).cores)
    return x / np.linalg.norm(x)


def permuted(structure: Structure, order) -> Structure:
    """Legs renamed: leg k becomes ``order[k]``."""
    name = {k: order[k] if k < structure.order else k for k in range(structure.num_nodes)}
    dims = [0] * structure.order
    for k, d in enumerate(structure.dims):
        dims[order[k]] = d
    ranks = {(name[i], name[j]): r for (i, j), r in structure.ranks.items()}
    return Structure(dims, ranks, num_nodes=structure.num_nodes)


def find(x: np.ndarray, max_error: float):
    return smallest_tree(CutBounds(torch.from_numpy(x), max_error))


PLANTED = {
    "train": Structure.tensor_train((4, 5, 4, 5, 4), (2, 3, 3, 2)),
    "train of six": Structure.tensor_train((3,) * 6, (2, 3, 3, 3, 2)),
    "paper's train": Structure.tensor_train((7,) * 5, (2, 3, 6, 5)),
    "tucker": Structure.tucker((5, 6, 5, 6), (2, 3, 2, 3)),
    "paper's tucker": Structure.tucker((7,) * 5, (2, 3, 4, 3, 2)),
    "star with its own leg": Structure((4, 6, 6, 6), {(0, 1): 2, (0, 2): 2, (0, 3): 2}),
    # The root of a binary tree holds no more than one of its children could: it is left out here.
    "hierarchical": Structure((8,) * 4, {(0, 4): 3, (1, 4): 3, (4, 5): 2, (2, 5): 3, (3, 5): 3}),
    "mixed": Structure((5, 4, 6, 5, 4), {(0, 5): 2, (1, 5): 2, (2, 5): 3, (2, 3): 2, (3, 4): 2}),
    "two parts": Structure((4, 4, 5, 5), {(0, 2): 2, (1, 3): 3}),
    "rank one": Structure.rank_one((3, 4, 5)),
}


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_planted_trees_are_found(name, dtype):
    structure = PLANTED[name]
    rng = np.random.default_rng(1)
    for order in [list(range(structure.order)), list(rng.permutation(structure.order))]:
        hidden = permuted(structure, [int(k) for k in order])
        x = planted(hidden, dtype=dtype)
        size, nodes, rank = find(x, 1e-8)
        assert size == structure.num_parameters
        network = build_tree(CutBounds(torch.from_numpy(x), 0.0), nodes, rank)
        assert network.structure.num_parameters == size
        assert np.linalg.norm(contract(network.structure, network.cores) - x) <= 1e-8
        assert len(network.structure.edges) < network.structure.num_nodes  # no cycle


def test_trains_in_every_order():
    structure = Structure.tensor_train((3, 4, 4, 3), (2, 3, 2))
    for order in permutations(range(4)):
        hidden = permuted(structure, order)
        size, *_ = find(planted(hidden), 1e-9)
        assert size == structure.num_parameters


def test_hierarchical_tucker_without_its_root():
    full = Structure.hierarchical_tucker((8,) * 4, (3, 3, 3, 3, 2, 2))
    size, *_ = find(planted(full), 1e-9)
    assert size == full.num_parameters - 2 * 2  # the root's 2 x 2 core goes into a child


# -- brute force -------------------------------------------------------------------------------------------


def _trees(n: int):
    """Edges of every labelled tree on n nodes, from Prüfer sequences."""
    for code in product(range(n), repeat=n - 2):
        degree = [1 + code.count(k) for k in range(n)]
        edges = []
        for k in code:
            leaf = degree.index(1)
            edges.append((leaf, k))
            degree[leaf] -= 1
            degree[k] -= 1
        edges.append(tuple(k for k in range(n) if degree[k] == 1))
        yield edges


def _side(edges, cut, n):
    """Nodes on the first end's side once an edge is cut."""
    reached, grew = {cut[0]}, True
    while grew:
        grew = False
        for i, j in edges:
            if (i, j) != cut and (i in reached) != (j in reached):
                reached |= {i, j}
                grew = True
    return reached


def _smallest_by_brute_force(x: np.ndarray, max_error: float) -> int:
    p = x.ndim
    needed = {}
    for mask in range(1, (1 << p) - 1):
        inside = [k for k in range(p) if mask >> k & 1]
        outside = [k for k in range(p) if not mask >> k & 1]
        s = np.linalg.svd(
            x.transpose(*inside, *outside).reshape(math.prod(x.shape[k] for k in inside), -1),
            compute_uv=False,
        )
        tails = np.sqrt(np.cumsum(s[::-1] ** 2)[::-1])
        needed[mask] = max(1, int((tails > max_error * tails[0]).sum()))
    best = math.inf
    for internal in range(p - 1):  # internal nodes of degree three or more: at most p - 2
        n = p + internal
        for edges in _trees(n):
            size_of = [x.shape[k] if k < p else 1 for k in range(n)]
            for cut in edges:
                mask = sum(1 << k for k in _side(edges, cut, n) if k < p)
                r = needed.get(mask, 1)
                size_of[cut[0]] *= r
                size_of[cut[1]] *= r
            best = min(best, sum(size_of))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_smallest_of_all_trees_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(d) for d in rng.integers(2, 6, 4))
    base = random_network(Structure.tensor_ring(shape, 2), seed).to_dense().numpy()
    noise = rng.standard_normal(shape)
    x = base / np.linalg.norm(base) + 0.2 * noise / np.linalg.norm(noise)
    for max_error in (1e-9, 0.1, 0.4):
        # Each of the at most 2p - 3 truncations gets its share of the error.
        expected = _smallest_by_brute_force(x, max_error / math.sqrt(2 * 4 - 3))
        size, nodes, rank = find(x, max_error)
        assert size == expected
        network = build_tree(CutBounds(torch.from_numpy(x), 0.0), nodes, rank)
        assert network.num_parameters <= size
        error = np.linalg.norm(contract(network.structure, network.cores) - x) / np.linalg.norm(x)
        assert error <= max_error


@pytest.mark.parametrize("max_error", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 3, 3, 4, 2), (2,) * 7, (1, 4, 1, 5, 3)])
def test_built_trees_keep_the_error(shape, dtype, max_error):
    rng = np.random.default_rng(0)
    decay = np.prod(np.meshgrid(*(0.5 ** np.arange(n) for n in shape), indexing="ij"), axis=0)
    x = rng.standard_normal(shape) * decay
    x = (x + 1j * rng.standard_normal(shape) * decay if dtype is np.complex128 else x).astype(dtype)
    size, nodes, rank = find(x, max_error)
    network = build_tree(CutBounds(torch.from_numpy(x), 0.0), nodes, rank)
    assert network.structure.dims == shape
    assert network.num_parameters <= size
    error = np.linalg.norm(contract(network.structure, network.cores) - x) / np.linalg.norm(x)
    assert error <= max_error


def test_high_orders_use_binary_trees():
    structure = Structure.tensor_train((2,) * 9, 2)
    size, nodes, rank = find(planted(structure), 1e-9)
    assert size == structure.num_parameters
    network = build_tree(CutBounds(torch.from_numpy(planted(structure)), 0.0), nodes, rank)
    np.testing.assert_allclose(contract(network.structure, network.cores), planted(structure), atol=1e-10)


def test_no_tree_where_the_cuts_are_unknown():
    x = torch.from_numpy(planted(Structure.tensor_train((3, 4, 5), 2)))
    assert smallest_tree(CutBounds(x, 1e-9)) is not None
    assert smallest_tree(CutBounds(x, 1e-9, seconds=1e-8)) is None
    assert smallest_tree(CutBounds(x[0], 1e-9)) is None  # a matrix has nothing to choose
