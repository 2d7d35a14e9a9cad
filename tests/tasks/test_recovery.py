"""Exact structures are found again at their exact size."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tests.oracles import dense, random_network

DIMS = (7,) * 5

PAPER = {
    "train": (Structure.tensor_train(DIMS, (2, 3, 6, 5)), 427),
    "ring": (Structure.tensor_ring(DIMS, (2, 3, 4, 5, 5)), 511),
    "tucker": (Structure.tucker(DIMS, (2, 3, 4, 3, 2)), 242),
    "triangle": (Structure(DIMS, {(0, 1): 5, (1, 2): 2, (2, 3): 5, (1, 4): 2, (2, 4): 2}), 378),
}


def check(structure: Structure, seed: int, dtype: torch.dtype = torch.float64) -> tg.Result:
    x = dense(structure, random_network(structure, seed, dtype).cores)
    result = tg.decompose(x, max_error=1e-6, random_state=seed)
    error = np.linalg.norm(x - dense(result.structure, result.network.cores)) / np.linalg.norm(x)
    assert result.stop is tg.StopReason.TARGET_REACHED
    assert error <= 1e-6
    assert result.relative_error == pytest.approx(error, rel=1e-3, abs=1e-13)
    assert result.num_parameters == sum(c.numel() for c in result.network.cores)
    return result


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PAPER)
def test_targets_of_the_paper(name, seed):
    structure, size = PAPER[name]
    assert structure.num_parameters == size
    result = check(structure, seed)
    assert result.num_parameters == size
    if name != "ring":  # a ring of ranks that its legs cannot show has several structures of this size
        assert sorted(result.structure.ranks.values()) == sorted(structure.ranks.values())


@pytest.mark.parametrize("name", PAPER)
def test_complex_targets_of_the_paper(name):
    structure, size = PAPER[name]
    result = check(structure, 10, torch.complex128)
    assert result.network.dtype == torch.complex128
    assert result.num_parameters == size


def random_graph(seed: int, order: int) -> Structure:
    """A connected graph: a random tree and one to three edges more, ranks 2 and 3."""
    rng = np.random.default_rng(seed)
    edges = {(int(rng.integers(0, k)), k) for k in range(1, order)}
    others = [e for e in combinations(range(order), 2) if e not in edges]
    edges |= {others[int(k)] for k in rng.choice(len(others), int(rng.integers(1, 4)), replace=False)}
    return Structure((6,) * order, {e: int(rng.integers(2, 4)) for e in sorted(edges)})


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_of_order_five(seed):
    structure = random_graph(seed, 5)
    assert check(structure, seed).num_parameters <= structure.num_parameters


def test_a_complex_random_graph():
    structure = random_graph(5, 5)
    assert check(structure, 5, torch.complex128).num_parameters <= structure.num_parameters


@pytest.mark.parametrize("order", [4, 6])
def test_hierarchical_tucker(order):
    structure = Structure.hierarchical_tucker((4,) * order, 2)
    result = check(structure, 0)
    # The root's core has two edges of rank 2 and can be absorbed.
    assert result.num_parameters <= structure.num_parameters - 4
