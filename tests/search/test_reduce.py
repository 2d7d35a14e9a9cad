from __future__ import annotations

from itertools import pairwise, takewhile

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.algebra.spectra import split_weak
from tensorgrow.search import reduce
from tensorgrow.search.problem import Problem
from tensorgrow.search.reduce import merge_internal, prune_once
from tests.oracles import dense, random_network
from tests.search.factories import GROWTH, make_search, noisy, true_error


def test_pruning_is_optional_and_pays():
    x = noisy(seed=3)
    grown = make_search(x, GROWTH.replace(prune=False), max_error=0.25)
    assert {s.kind for s in grown} == {"start", "grow"}
    pruned = make_search(x, GROWTH, max_error=0.25)
    steps = list(pruned)
    assert pruned.answer.size <= grown.answer.size
    for search in (grown, pruned):
        assert true_error(x, search.answer.network) <= 0.25
    for before, after in pairwise(steps):
        if after.kind in ("shrink", "split"):
            assert after.num_parameters < before.num_parameters
            assert after.relative_error <= 0.25


def test_pruning_removes_what_init_has_too_much():
    true = Structure.tensor_train((4,) * 4, 2)
    x = dense(true, random_network(true, 0).cores)
    init = random_network(Structure.tensor_train((4,) * 4, 4), 1)
    result = tg.decompose(x, max_error=1e-6, init=init, edges="chain", random_state=0)
    assert result.structure == true
    assert {s.kind for s in result.history} == {"start", "shrink"}


def test_cycles_that_a_tree_hides_are_found():
    """All ranks of the tree are those that cuts need, and growth alone ends with a node of three edges."""
    ranks = {(0, 3): 2, (0, 4): 3, (1, 3): 2, (2, 3): 3, (2, 4): 2, (3, 4): 3}
    hidden = Structure((7,) * 5, ranks)
    x = tg.TensorNetwork.random(hidden, random_state=233).to_dense()
    result = tg.decompose(x, max_error=1e-6, random_state=233)
    assert result.structure == hidden
    assert result.relative_error <= 1e-6
    tree = [s for s in takewhile(lambda s: s.kind != "grow", result.history) if s.kind != "start"]
    assert [s.kind for s in tree] == ["tree", "bypass", "bypass"]
    for before, after in pairwise(tree):
        assert after.num_parameters < before.num_parameters
        assert after.relative_error < 1e-12
    for options in ({"edges": [e for e in hidden.edges if e != (0, 3)]}, {"split_nodes": False}):
        result = tg.decompose(x, max_error=1e-6, random_state=233, **options)
        assert "bypass" not in {s.kind for s in result.history}


def test_splits_by_the_rule_of_the_paper():
    """A core is split where enough of its singular values lie below the threshold, whatever that costs."""
    hub = Structure((6, 6, 6, 6), {(0, 1): 3, (0, 2): 3, (0, 3): 3})
    gen = np.random.default_rng(0)
    cores = [gen.standard_normal(shape) for shape in hub.core_shapes]
    u, v = gen.standard_normal((6 * 3, 1)), gen.standard_normal((1, 9))
    cores[0] = (u @ v).reshape(6, 3, 3, 3) + 1e-7 * cores[0]  # one singular value, the others near 1e-6
    found = {s.axes: s.rank for s in split_weak([torch.from_numpy(c) for c in cores], 0, 1e-5)}
    assert found[0, 1] == 1
    matrix = cores[0].reshape(18, 9)
    assert (np.linalg.svd(matrix, compute_uv=False) >= 1e-5).sum() == 1
    assert not list(split_weak([torch.from_numpy(c) for c in cores], 0, 1e-9))


def test_merging_keeps_cores_without_negative_entries():
    """A node that must not be negative takes in no node that may be, unless that must not be either."""
    hub = Structure((3, 3, 3), {(0, 3): 2, (1, 3): 2, (2, 3): 2})  # the inner node is worth merging
    network = random_network(hub, 0)
    assert merge_internal(network).structure.num_nodes == 3
    for kept in ({0}, {0, 1, 2}):
        merged = merge_internal(network, kept)
        assert merged.structure.num_nodes == (3 if kept == {0} else 4)
        assert np.allclose(dense(merged.structure, merged.cores), dense(hub, network.cores))
        changed = {k for k in range(3) if not np.array_equal(merged.cores[k].abs(), network.cores[k].abs())}
        assert len(changed) <= 1 and not changed & kept
    everywhere = type(network)(network.structure, [c.abs() for c in network.cores])
    merged = merge_internal(everywhere, set(range(4)))
    assert merged.structure.num_nodes == 3 and all((c >= 0).all() for c in merged.cores)


def test_what_bounds_rule_out_is_not_fitted(monkeypatch):
    search = make_search(noisy(seed=3), GROWTH.replace(prune=False), max_error=0.25)
    list(search)
    monkeypatch.setattr(Problem, "admits", lambda self, structure: False)
    monkeypatch.setattr(reduce, "refit", None)  # not called
    assert prune_once(search.problem, search.answer) is None


def test_merged_structures_are_those_of_merged_networks():
    structure = Structure((3, 4, 3), {(0, 3): 2, (1, 4): 3, (2, 4): 2, (3, 4): 2, (0, 5): 2, (3, 5): 2})
    net = random_network(structure, 0, torch.float64)
    merged = merge_internal(net)
    assert merged.structure == reduce.merged_structure(structure)
    assert merged.num_parameters < net.num_parameters
    np.testing.assert_allclose(merged.to_dense(), dense(structure, net.cores), atol=1e-12)


def test_certified_targets_are_not_split(monkeypatch):
    hidden = Structure((5,) * 5, {(0, 1): 3, (1, 2): 2, (2, 3): 3, (1, 4): 2, (2, 4): 2})
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense()
    monkeypatch.setattr(reduce, "propose_splits", None)  # nobody calls it
    result = tg.decompose(x, max_error=1e-8, random_state=0, progress=False)
    assert result.num_parameters == hidden.num_parameters


def test_thick_edges_lose_ranks_that_cost_nothing_at_once():
    x = np.random.default_rng(0).standard_normal((30, 2)) @ np.random.default_rng(1).standard_normal((2, 60))
    init = random_network(Structure.tensor_train((30, 20, 3), (24, 3)), 0)
    search = tg.decompose(x.reshape(30, 20, 3), max_error=1e-6, init=init, edges="chain", random_state=0)
    shrinks = [s for s in search.history if s.kind == "shrink"]
    assert search.structure.rank(0, 1) == 2
    assert len(shrinks) < 22
    assert all(s.relative_error <= 1e-6 for s in shrinks)
