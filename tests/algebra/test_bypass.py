from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.algebra.bypass import bypass
from tensorgrow.baselines import hosvd
from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.oracles import dense, random_network
from tests.strategies import seeds


def gauged(network: TensorNetwork, seed: int) -> TensorNetwork:
    """The same tensor with random matrices and their inverses along all edges."""
    gen, cores = torch.Generator().manual_seed(seed), list(network.cores)
    for i, j in network.structure.edges:
        rank = network.structure.rank(i, j)
        matrix = torch.eye(rank, dtype=cores[i].dtype)
        matrix = matrix + 0.3 * torch.randn(rank, rank, generator=gen, dtype=cores[i].dtype)
        for node, other, turn in ((i, j, matrix), (j, i, torch.linalg.inv(matrix).mT)):
            axis = network.structure.axis(node, other)
            cores[node] = torch.tensordot(cores[node], turn, ([axis], [0])).movedim(-1, axis)
    return TensorNetwork(network.structure, cores)


def detoured(
    structure: Structure, edge: tuple[int, int], through: int, seed: int, dtype=torch.float64, rank: int = 2
) -> TensorNetwork:
    """A random network in some gauge, and in parallel to one of its edges one that goes through a node."""
    i, j = edge
    extra = structure.num_nodes  # an internal node that does nothing, contracted into `through`
    longer = Structure(
        structure.dims, {**structure.ranks, (i, extra): rank, (j, extra): rank}, num_nodes=extra + 1
    )
    cores = list(random_network(longer, seed, dtype).cores)
    cores[extra] = torch.eye(rank, dtype=dtype).reshape(longer.core_shape(extra))
    return gauged(TensorNetwork(longer, cores).merge_nodes(through, extra), seed)


def distance(network: TensorNetwork, structure: Structure, cores) -> float:
    whole = network.to_dense().numpy()
    return float(np.linalg.norm(dense(structure, cores) - whole) / np.linalg.norm(whole))


# Of a node with a leg, of one with more edges, beside an edge that is there already, and of an internal node.
CASES = [
    (Structure((9, 10, 11), {(0, 1): 2, (1, 2): 3}), (0, 2), 1),
    (Structure((9, 12, 8, 5), {(0, 1): 2, (1, 2): 2, (1, 3): 3}), (0, 2), 1),
    (Structure((12, 12, 12), {(0, 1): 2, (1, 2): 3, (0, 2): 3}), (0, 2), 1),
    (Structure((6, 6, 12), {(0, 3): 2, (1, 3): 3, (2, 3): 5}), (0, 2), 3),
]


@pytest.mark.parametrize("structure, edge, through", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32])
@pytest.mark.parametrize("rank", [2, 3])
def test_what_is_handed_through_gets_an_edge_of_its_own(structure, edge, through, dtype, rank):
    network = detoured(structure, edge, through, 3, dtype, rank)
    expected = structure.with_rank(*edge, structure.rank(*edge) * rank)
    assert network.num_parameters > expected.num_parameters
    move = bypass(network.structure, network.cores, through, *edge)
    assert move is not None
    assert move[0] == expected
    assert all(c.dtype == dtype for c in move[1])
    assert distance(network, *move) < (1e-3 if dtype is torch.float32 else 1e-9)


@given(seeds, st.sampled_from(CASES))
def test_a_bypass_is_found_and_exact_whatever_the_numbers(seed, case):
    structure, edge, through = case
    network = detoured(structure, edge, through, seed)
    assert distance(network, *bypass(network.structure, network.cores, through, *edge)) < 1e-6


@given(seeds, st.sampled_from([(3, 2), (2, 3), (5, 2)]))
def test_ranks_without_a_common_factor_hand_nothing_through(seed, ranks):
    network = random_network(Structure.tensor_train((4, 6, 4), ranks), seed)
    assert bypass(network.structure, network.cores, 1, 0, 2) is None


def test_generic_cores_hand_nothing_through():
    for seed in range(20):
        network = random_network(Structure.tensor_train((5, 4, 5), (4, 4)), seed)
        assert bypass(network.structure, network.cores, 1, 0, 2) is None


def test_cores_that_carry_nothing_are_left_alone():
    network = random_network(Structure.tensor_train((5, 4, 5), (4, 4)), 0)
    cores = [network.cores[0], torch.zeros_like(network.cores[1]), network.cores[2]]
    assert bypass(network.structure, cores, 1, 0, 2) is None
    two = torch.zeros_like(network.cores[1])
    two[:, :2, :2] = network.cores[1][:, :2, :2]
    assert bypass(network.structure, [network.cores[0], two, network.cores[2]], 1, 0, 2) is None


@pytest.mark.parametrize("terms", [4, 9])
def test_a_sum_of_outer_products_is_left_alone(terms):
    """As many solutions as a matrix algebra has, but all of them commute."""
    network = random_network(Structure.tucker((12,) * 3, terms), 0)
    core = torch.zeros(1, terms, terms, terms, dtype=torch.float64)
    core[0, range(terms), range(terms), range(terms)] = 1.0
    cores = [*network.cores[:3], core]
    for turned in (cores, gauged(TensorNetwork(network.structure, cores), 1).cores):
        assert bypass(network.structure, turned, 3, 0, 1) is None


def test_a_tucker_core_tells_of_a_complete_graph():
    """Legs longer than the ranks at their node: every cycle follows from the core, without a fit."""
    hidden = Structure((12,) * 4, {(0, 1): 2, (1, 2): 3, (0, 2): 2, (2, 3): 3, (0, 3): 2, (1, 3): 2})
    planted = random_network(hidden, 1)
    network = hosvd(planted.to_dense(), max_error=1e-12).network
    moves = True
    while moves:
        structure, moves = network.structure, False
        for node, near in enumerate(structure.neighbours):
            for i, j in combinations(near, 2):
                if not moves and (move := bypass(structure, network.cores, node, i, j)) is not None:
                    network, moves = TensorNetwork(*move), True
    # What is left of the centre hands its edges to leg 2 on to all others.
    assert network.num_parameters <= hidden.num_parameters + 12 * 12
    assert distance(planted, network.structure, network.cores) < 1e-9
