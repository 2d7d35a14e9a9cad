"""Edges on cycles with fewer components."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.algebra.bonds import bond_plan, thin
from tests.oracles import dense, random_network

RING = tg.Structure.tensor_ring((3, 4, 3, 4), 2)


def test_an_open_edge_is_that_of_the_oracle(double):
    network = random_network(RING, 0, double)
    a, b, c, d = (x.numpy() for x in network.cores)
    # Edge (0, 1) open: its ends in cores 0 and 1 have names of their own.
    opened = np.einsum("ixs,jyt,ktu,lsu->xyijkl", a, b, c, d)
    expected = np.einsum("xyijkl,zwijkl->xyzw", opened, opened.conj())
    cores = [network.cores[0].movedim(1, -1), network.cores[1].movedim(1, -1), *network.cores[2:]]
    found = bond_plan(RING, (0, 1), double.is_complex).run(cores)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12 * abs(expected).max())


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_go(copies, double):
    one = random_network(RING, 1, double)
    total = reduce(add, [one] * copies)
    assert total.num_parameters > one.num_parameters
    structure, cores = thin(total.structure, total.cores, 1e-6)
    assert structure == RING
    error = np.linalg.norm(dense(structure, cores) - copies * dense(RING, one.cores))
    assert error < 1e-4 * total.norm()


def test_nothing_goes_where_all_is_needed():
    network = random_network(RING, 2)
    assert thin(RING, network.cores, 1e-6)[0] == RING
    zero = [0 * c for c in network.cores]
    assert thin(RING, zero, 1e-6)[0] == RING
