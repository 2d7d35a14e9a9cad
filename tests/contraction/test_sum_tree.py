"""Sums over all entries and their environments, beside dense ones."""

import numpy as np
import pytest
from hypothesis import given, settings

from tensorgrow.contraction import SumTree, sum_entries
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


@pytest.mark.parametrize("layers", [1, 2])
@given(structure=structures(min_order=2, max_order=5, max_dim=3), seed=seeds)
@settings(max_examples=25)
def test_sizes_bound_all_that_is_held(layers, structure, seed):
    tree = SumTree(structure, random_network(structure, seed).cores, layers)
    for node in tree.order:
        tree.environment(node)
    assert sum(sums.array.numel() for sums in tree.held) <= tree.entries()
    for edge in structure.ranks:
        grown = structure.with_rank(*edge, structure.rank(*edge) + 1)
        larger = SumTree(grown, random_network(grown, seed).cores, layers)
        larger.root = tree.root
        assert tree.entries(edge) == pytest.approx(larger.entries())


def test_many_variables_with_a_few_cycles_stay_narrow():
    """A tree of 68 edges and 14 more, strewn over 69 nodes: in the order of a walk 2,048 wide."""
    rng = np.random.default_rng(0)
    order = rng.permutation(69)
    edges = {(int(order[k]), int(order[rng.integers(max(0, k - 6), k)])) for k in range(1, 69)}
    while len(edges) < 82:
        a, b = rng.integers(0, 69, 2).tolist()
        if a != b and (b, a) not in edges:
            edges.add((a, b))
    structure = Structure((2,) * 69, dict.fromkeys(edges, 2))
    assert sum_entries(structure, 1) < 10_000
