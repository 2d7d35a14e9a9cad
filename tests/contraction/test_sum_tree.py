"""Sums over all entries and their environments, beside dense ones."""

import numpy as np
import pytest
from hypothesis import given, settings

from tensorgrow.contraction import SumTree
from tensorgrow.structure import Structure
from tests.oracles import random_network, to_numpy
from tests.strategies import seeds, structures


def dense_total(network, layers):
    dense = to_numpy(network.to_dense())
    return dense.sum() if layers == 1 else (np.abs(dense) ** 2).sum()


@pytest.mark.parametrize("layers", [1, 2])
@given(structure=structures(min_order=1, max_order=5, max_dim=3), seed=seeds)
@settings(max_examples=25)
def test_totals_and_environments(layers, structure, seed):
    network = random_network(structure, seed)
    tree = SumTree(structure, network.cores, layers)
    total = dense_total(network, layers)
    assert float(tree.total()) == pytest.approx(total, rel=1e-9, abs=1e-12)
    for node in tree.order:
        core = random_network(structure, seed + 1).cores[node]
        edges = structure.edges_of(node)
        around = tree.environment(node).arrange([(e, k) for k in range(layers) for e in edges])
        own = core.reshape(len(core), -1)
        own = own.sum(0) if layers == 1 else own.T @ own
        cores = [core if k == node else c for k, c in enumerate(tree.cores)]
        wanted = dense_total(type(network)(structure, cores), layers)
        assert float((own.reshape(-1) * around.reshape(-1)).sum()) == pytest.approx(
            wanted, rel=1e-9, abs=1e-12
        )
        tree.set_core(node, core)
    assert float(tree.total()) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_sizes_are_those_of_the_widest_cut():
    ring = Structure.tensor_ring((2, 2, 2, 2), 2)
    tree = SumTree(ring, random_network(ring, 0).cores, 2)
    assert tree.entries() == (2 * 2) ** 2
    assert tree.entries((0, 1)) == (3 * 2) ** 2
