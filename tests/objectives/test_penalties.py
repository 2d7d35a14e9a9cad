from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow import priors
from tensorgrow.contraction import RowTree
from tensorgrow.objectives import NO_PRIORS, ObservedLeastSquares, Penalties
from tensorgrow.structure import Structure
from tests.objectives.entry_data import RING, Data
from tests.oracles import random_network, to_numpy

KNOWN = {
    0: (priors.smooth(),),
    1: (priors.periodic(), priors.smooth(0.2, order=2)),
    2: (priors.graph(np.ones((3, 3)), 0.5),),
}


def test_strengths_that_are_open_are_set_together():
    penalties = Penalties(KNOWN, RING.dims, 0.3)
    assert penalties.is_open
    expected = {
        0: 0.3 * KNOWN[0][0].matrix(4).to_dense(),
        1: 0.3 * KNOWN[1][0].matrix(5).to_dense() + 0.2 * KNOWN[1][1].matrix(5).to_dense(),
        2: 0.5 * KNOWN[2][0].matrix(3).to_dense(),
    }
    for node, matrix in expected.items():
        np.testing.assert_allclose(penalties.of(node).coupling.quadratic.to_dense(), matrix)
    assert penalties.of(3) is None and penalties.of(7) is None
    stronger = penalties.at(3.0).of(0).coupling.quadratic.to_dense()
    np.testing.assert_allclose(stronger, 10 * expected[0])
    assert not Penalties({2: KNOWN[2]}, RING.dims).is_open


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_a_core_solves_the_full_system(ridge, double):
    """All unknowns of a core at once, by a dense solver; `explained` is what the data gains."""
    data = Data(RING.dims, 0, double, hold_out=0.0, ridge=ridge, share=0.8)
    objective = data.objective.with_penalties(Penalties(KNOWN, RING.dims, 0.3))
    network = random_network(RING, 1, double)
    arrays = objective.to_arrays(network)
    tree = RowTree(objective.index.entries, RING, arrays)
    for node in KNOWN:
        design = data.design(network, node)
        size, width = RING.leg_dim(node), RING.bond_product(node)
        mean = sum(np.linalg.norm(a) ** 2 for a, _ in design) / (size * width)
        matrix = objective.penalties.of(node).coupling.quadratic.to_dense()
        full = mean * np.kron(matrix, np.eye(width)) + ridge * mean * np.eye(size * width) + 0j
        right = np.concatenate([a.conj().T @ y for a, y in design])
        for s, (a, _) in enumerate(design):
            here = slice(s * width, (s + 1) * width)
            full[here, here] += a.conj().T @ a
        expected = np.linalg.solve(full, right).reshape(size, width)
        source, edges = tree.environment(node), RING.edges_of(node)
        core, explained = objective.solve(node, source, edges, arrays[node], 1e-14)
        found = to_numpy(core).reshape(size, width)
        np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())
        before = sum(np.linalg.norm(y) ** 2 for _, y in design)
        after = sum(np.linalg.norm(y - a @ x) ** 2 for x, (a, y) in zip(found, design))
        assert explained == pytest.approx(before - after, rel=1e-9)


def test_empty_slices_are_what_the_prior_says():
    data = Data((6, 5, 4), 0, hold_out=0.0, ridge=0.1, share=0.9)
    keep = data.indices[:, 0] != 2
    keep &= data.indices[:, 0] < 4
    data.indices, data.values, data.weights = data.indices[keep], data.values[keep], data.weights[keep]
    data.held = data.held[keep]
    pairs = np.zeros((6, 6))
    pairs[2, [1, 3]] = pairs[[1, 3], 2] = 1, 3
    pairs[4, 5] = pairs[5, 4] = 1  # both without entries: nothing is known but the mean
    objective = data.make().with_penalties(Penalties({0: (priors.graph(pairs, 0.1),)}, (6, 5, 4)))
    network = random_network(RING.tensor_train((6, 5, 4), 2), 0)
    arrays = objective.to_arrays(network)
    objective.sweep(network.structure, arrays, 1e-14)
    core = arrays[0]
    torch.testing.assert_close(core[2], (core[1] + 3 * core[3]) / 4, rtol=1e-5, atol=1e-6)
    for s in (4, 5):
        torch.testing.assert_close(core[s], core[:4][[0, 1, 3]].mean(0), rtol=1e-5, atol=1e-6)


def test_priors_take_memory_and_time():
    data = Data(RING.dims, 0)
    tied = data.objective.with_penalties(Penalties(KNOWN, RING.dims))
    assert tied.sweep_flops(RING) > data.objective.sweep_flops(RING)
    wide = RING.tensor_ring(RING.dims, 60)
    assert tied.memory_needed(wide) > data.objective.memory_needed(wide)


# -- signs -------------------------------------------------------------------------------------------------


def test_inner_nodes_have_no_negative_entries_where_no_leg_has():
    every = {k: (priors.nonnegative(),) for k in range(len(RING.dims))}
    inner = Structure(RING.dims, {(k, len(RING.dims)): 2 for k in range(len(RING.dims))})
    whole, some = Penalties(every, RING.dims), Penalties({1: every[1]}, RING.dims)
    assert whole.is_nonnegative and whole.of(len(RING.dims)).nonnegative
    assert whole.nonnegative_nodes(inner) == set(range(inner.num_nodes))
    assert not some.is_nonnegative and some.of(len(RING.dims)) is None
    assert some.nonnegative_nodes(inner) == {1}
    assert not NO_PRIORS.is_nonnegative and not NO_PRIORS.nonnegative_nodes(inner)


@pytest.mark.parametrize("tied", [False, True], ids=["alone", "tied"])
def test_a_core_without_negative_entries_is_the_best_of_them(tied):
    nnls = pytest.importorskip("scipy.optimize").nnls
    data = Data(RING.dims, 0, hold_out=0.0, ridge=0.1, share=0.8)
    known = {k: (*KNOWN[k], priors.nonnegative()) if tied else (priors.nonnegative(),) for k in KNOWN}
    objective = data.objective.with_penalties(Penalties(known, RING.dims, 0.3))
    network = random_network(RING, 1)
    arrays = [c.abs() for c in objective.to_arrays(network)]
    network = type(network)(RING, arrays)
    tree = RowTree(objective.index.entries, RING, arrays)
    for node in KNOWN:
        design = data.design(network, node)
        size, width = RING.leg_dim(node), RING.bond_product(node)
        mean = sum(np.linalg.norm(a) ** 2 for a, _ in design) / (size * width)
        full = 0.1 * mean * np.eye(size * width)
        if tied:
            matrix = objective.penalties.of(node).coupling.quadratic.to_dense()
            full += mean * np.kron(matrix, np.eye(width))
        for s, (a, _) in enumerate(design):
            here = slice(s * width, (s + 1) * width)
            full[here, here] += a.T @ a
        factor = np.linalg.cholesky(full)
        right = np.concatenate([a.T @ y for a, y in design])
        expected = nnls(factor.T, np.linalg.solve(factor, right))[0].reshape(size, width)
        assert (expected == 0).any() and (expected > 0).any()
        source, edges = tree.environment(node), RING.edges_of(node)
        core, explained = objective.solve(node, source, edges, arrays[node], 1e-14)
        found = to_numpy(core).reshape(size, width)
        np.testing.assert_allclose(found, expected, atol=1e-6 * expected.max())
        before = sum(np.linalg.norm(y) ** 2 for _, y in design)
        after = sum(np.linalg.norm(y - a @ x) ** 2 for x, (a, y) in zip(found, design))
        assert explained == pytest.approx(before - after, rel=1e-9)


@pytest.mark.parametrize("tied", [False, True], ids=["alone", "tied"])
def test_a_core_of_zeros_stays_as_it_is(tied):
    """Where the other core has the wrong sign, zero is best, and would be the end of the fit."""
    indices = torch.tensor([[i, j] for i in range(4) for j in range(3)])
    values = torch.ones(12, dtype=torch.float64)
    known = {0: (priors.nonnegative(), priors.smooth(0.1)) if tied else (priors.nonnegative(),)}
    objective = ObservedLeastSquares(indices, values, (4, 3)).with_penalties(Penalties(known, (4, 3)))
    structure = Structure.rank_one((4, 3))
    arrays = [torch.ones(4, dtype=torch.float64), -torch.ones(3, dtype=torch.float64)]
    source = RowTree(objective.index.entries, structure, arrays).environment(0)
    core, explained = objective.solve(0, source, (), arrays[0], 1e-14)
    assert torch.equal(core, arrays[0])
    assert explained == pytest.approx(12 - 12 * 2**2)
    objective.sweep(structure, arrays, 1e-14)
    objective.sweep(structure, arrays, 1e-14)
    torch.testing.assert_close(torch.outer(*arrays), values.reshape(4, 3), atol=0.05, rtol=0)
