"""A leaf of a network gets a basis for its core."""

from __future__ import annotations

import torch

from tensorgrow.algebra import moves
from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.oracles import random_network


def test_a_leaf_takes_a_basis_and_its_neighbour_the_rest(double):
    structure = Structure((6, 4, 5), {(0, 1): 2, (1, 2): 3})
    net = random_network(structure, 1, double)
    basis = torch.linalg.qr(random_network(Structure((6, 4), {(0, 1): 4}), 2, double).cores[0])[0]
    after = TensorNetwork(*moves.span_leaf(structure, net.cores, 0, basis))
    assert after.structure.ranks == {(0, 1): 4, (1, 2): 3}
    wanted = torch.tensordot(basis @ basis.mH, net.to_dense(), dims=1)
    torch.testing.assert_close(after.to_dense(), wanted)
