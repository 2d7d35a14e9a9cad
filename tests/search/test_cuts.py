from __future__ import annotations

import math
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.experiments.targets import planted_tensor, random_graph
from tensorgrow.search import CutBounds
from tests.oracles import random_network
from tests.strategies import seeds, structures


def matricized(x: np.ndarray, mask: int) -> np.ndarray:
    inside = [k for k in range(x.ndim) if mask >> k & 1]
    outside = [k for k in range(x.ndim) if not mask >> k & 1]
    return x.transpose(*inside, *outside).reshape(math.prod(x.shape[k] for k in inside), -1)


def rank_for(x: np.ndarray, mask: int, max_error: float) -> int:
    """Smallest rank whose truncated SVD has at most this relative error, by NumPy."""
    s = np.linalg.svd(matricized(x, mask), compute_uv=False)
    for rank in range(len(s)):
        if np.linalg.norm(s[rank:]) <= max_error * np.linalg.norm(s):
            return max(rank, 1)
    return len(s)


def capacity(structure: Structure, mask: int) -> int:
    """Smallest product of ranks over all cuts that separate the legs in `mask` from the others."""
    added = structure.num_nodes - structure.order
    best = None
    for placed in product((0, 1), repeat=added):
        side = [mask >> k & 1 for k in range(structure.order)] + list(placed)
        value = math.prod(r for (i, j), r in structure.ranks.items() if side[i] != side[j])
        best = value if best is None else min(best, value)
    return best


def masks(order: int) -> range:
    return range(1, (1 << order) - 1)


def dense(structure: Structure, seed: int, dtype: torch.dtype = torch.float64) -> np.ndarray:
    return random_network(structure, seed, dtype).to_dense().numpy()


small = structures(min_order=2, max_order=4, min_dim=2, max_dim=3, max_internal=2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@given(structure=structures(min_order=2, max_order=5, max_dim=4), seed=seeds)
def test_needed_rank_is_the_matrix_rank_of_exact_targets(dtype, structure, seed):
    x = dense(structure, seed, dtype)
    assume(np.linalg.norm(x) > 1e-6)
    bounds = CutBounds(torch.from_numpy(x), 1e-9)
    for mask in masks(x.ndim):
        matrix = matricized(x, mask)
        s = np.linalg.svd(matrix, compute_uv=False)
        assume(not ((s > 1e-11 * s[0]) & (s < 1e-7 * s[0])).any())  # no doubtful singular value
        assert bounds.needed_rank(mask) == np.linalg.matrix_rank(matrix, tol=1e-9 * s[0])


@pytest.mark.parametrize("max_error", [0.01, 0.2, 0.6, 0.99, 1.0, 3.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_needed_rank_of_noisy_targets(max_error, dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 2, 5)) * 0.7 ** np.arange(5)
    x = (x + 1j * rng.standard_normal(x.shape) if dtype is np.complex128 else x).astype(dtype)
    bounds = CutBounds(torch.from_numpy(x), 0.1)
    for mask in masks(4):
        assert bounds.needed_rank(mask, max_error) == rank_for(x, mask, max_error)
        assert bounds.needed_rank(mask) == rank_for(x, mask, 0.1)
        assert bounds.needed_rank(mask) == bounds.needed_rank(15 ^ mask)


@given(structure=small, seed=seeds, max_error=st.sampled_from([1e-9, 0.05, 0.3, 0.7]))
def test_admits_against_brute_force(structure, seed, max_error):
    x = np.random.default_rng(seed).standard_normal(structure.dims)
    bounds = CutBounds(torch.from_numpy(x), max_error)
    expected = all(capacity(structure, m) >= rank_for(x, m, max_error) for m in masks(x.ndim))
    assert bounds.admits(structure) == expected


@given(structure=small, seed=seeds)
@settings(max_examples=25)
def test_every_network_that_reaches_an_error_is_admitted(structure, seed):
    """The bounds are true: whatever a fit achieves, they do not call it impossible."""
    x = np.random.default_rng(seed).standard_normal(structure.dims)
    fitted = tg.fit(x, structure, random_state=seed, max_sweeps=20)
    bounds = CutBounds(torch.from_numpy(x), fitted.relative_error + 1e-10)
    assert bounds.admits(structure)


@given(structure=small, seed=seeds)
def test_the_structure_of_an_exact_target_is_admitted(structure, seed):
    x = dense(structure, seed)
    assume(np.linalg.norm(x) > 1e-6)
    assert CutBounds(torch.from_numpy(x), 1e-9).admits(structure)


@given(structure=small, seed=seeds, max_error=st.sampled_from([1e-9, 0.1, 0.4]))
def test_reducible_edges_are_those_whose_reduction_is_admitted(structure, seed, max_error):
    rng = np.random.default_rng(seed)
    hidden = Structure(
        structure.dims,
        {e: max(1, r - int(rng.integers(0, 2))) for e, r in structure.ranks.items()},
        num_nodes=structure.num_nodes,
    )
    x = dense(hidden, seed)
    assume(np.linalg.norm(x) > 1e-6)
    bounds = CutBounds(torch.from_numpy(x), max_error)
    assert bounds.admits(structure)
    expected = {e for e, r in structure.ranks.items() if bounds.admits(structure.with_rank(*e, r - 1))}
    assert bounds.reducible_edges(structure) == expected
    assert expected >= {e for e, r in structure.ranks.items() if hidden.rank(*e) < r}


@pytest.mark.parametrize(
    "structure",
    [
        Structure.tensor_train((5,) * 5, (2, 4, 4, 2)),
        Structure.tensor_ring((6,) * 5, 2),
        Structure.tensor_ring((7,) * 4, (2, 3, 2, 3)),
        Structure.tucker((5,) * 4, (2, 3, 3, 2)),
        Structure.tucker((4,) * 5, 2),
        Structure.hierarchical_tucker((4,) * 4, (2, 3, 3, 2, 3, 3)),
        Structure.complete((8,) * 4, 2),
        Structure((6,) * 5, {(0, 1): 3, (1, 2): 2, (2, 0): 2, (2, 3): 1, (3, 4): 4}),
        Structure((5,) * 4, {(0, 4): 2, (1, 4): 2, (4, 5): 3, (2, 5): 2, (3, 5): 2}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_true_structures_are_certified(structure, dtype):
    """Every rank is needed across some cut when no cut is limited by its legs."""
    bounds = CutBounds(torch.from_numpy(dense(structure, 0, dtype)), 1e-8)
    assert bounds.admits(structure)
    assert bounds.reducible_edges(structure) == set()
    for edge, rank in structure.ranks.items():
        assert not bounds.admits(structure.with_rank(*edge, rank - 1))
        assert bounds.reducible_edges(structure.with_rank(*edge, rank + 1)) >= {edge}


@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        (Structure.tensor_ring((2,) * 4, 3), {(0, 1), (1, 2), (2, 3), (0, 3)}),
        (Structure.tensor_train((2, 2, 2), (2, 3)), {(1, 2)}),
        (Structure.tensor_ring((7,) * 5, (2, 3, 4, 5, 5)), set()),  # longer cuts show every rank
    ],
)
def test_ranks_that_the_legs_cannot_show_stay_open(structure, expected):
    bounds = CutBounds(torch.from_numpy(dense(structure, 0)), 1e-8)
    assert bounds.admits(structure)
    assert bounds.reducible_edges(structure) == expected
    x = bounds.target.numpy()
    for edge, rank in structure.ranks.items():
        smaller = structure.with_rank(*edge, rank - 1)
        fits = all(capacity(smaller, m) >= rank_for(x, m, 1e-8) for m in masks(x.ndim))
        assert (edge in expected) == fits


def test_larger_errors_never_need_more_rank():
    x = np.random.default_rng(0).standard_normal((4, 5, 3, 4))
    bounds = CutBounds(torch.from_numpy(x), 0.1)
    for mask in masks(4):
        ranks = [bounds.needed_rank(mask, e) for e in (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0)]
        assert ranks == sorted(ranks, reverse=True)
        assert ranks[-1] == 1


def test_cuts_that_cost_too_much_are_left_out():
    structure = Structure.tensor_train((5,) * 5, (2, 4, 4, 2))
    x = torch.from_numpy(dense(structure, 0))
    whole = CutBounds(x, 1e-8)
    assert whole.is_complete
    assert len(whole.cuts) == 2**4 - 1
    part = CutBounds(x, 1e-8, seconds=2e-5)
    assert not part.is_complete
    assert set(part.cuts) < set(whole.cuts)
    assert part.admits(structure)
    assert part.reducible_edges(structure) >= whole.reducible_edges(structure)
    none = CutBounds(x, 1e-8, seconds=0.0)
    assert none.cuts == []
    assert none.admits(Structure.rank_one((5,) * 5))
    assert none.reducible_edges(structure) == set(structure.edges)


def test_high_orders_and_many_internal_nodes_are_let_through():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2,) * 11))
    bounds = CutBounds(x, 0.1)
    assert bounds.cuts == []
    assert bounds.admits(Structure.rank_one((2,) * 11))
    small_x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 2, 2)))
    many = Structure((2, 2, 2), {(0, 3): 2, (3, 4): 2}, num_nodes=14)
    assert CutBounds(small_x, 0.1).admits(many)
    assert CutBounds(small_x, 0.1).reducible_edges(many) == {(0, 3), (3, 4)}


@pytest.mark.parametrize("shape", [(5,), (1, 1), (1, 4), (3, 1, 3)])
def test_small_shapes(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    bounds = CutBounds(torch.from_numpy(x), 1e-9)
    best = Structure(
        shape, {e: 3 for e in combinations(range(len(shape)), 2) if min(shape[k] for k in e) > 1}
    )
    assert bounds.admits(best)
    assert bounds.reducible_edges(Structure.rank_one(shape)) == set()


def test_cuts_around_pairs_tell_leaves():
    ranks = {(0, 1): 5, (1, 2): 2, (2, 3): 5, (1, 4): 2, (2, 4): 2}
    x = tg.TensorNetwork.random(Structure((7,) * 5, ranks), random_state=0).to_dense()
    bounds = CutBounds(x, 1e-8)
    found = {(i, j): bounds.leaf_rank(i, j) for i in range(5) for j in range(5) if i != j}
    assert {pair: rank for pair, rank in found.items() if rank is not None} == {(0, 1): 5, (3, 2): 5}
    basis = bounds.leg_basis(0)
    assert basis.shape == (7, 5)
    torch.testing.assert_close(basis.mH @ basis, torch.eye(5, dtype=basis.dtype))
    torch.testing.assert_close(torch.tensordot(basis @ basis.mH, x, dims=1), x)

    assert bounds.apart == {(0, 2), (0, 3), (0, 4), (1, 3), (3, 4)}


@pytest.mark.parametrize("seed", range(30))
def test_cuts_part_no_legs_that_an_edge_joins(seed):
    rng = np.random.default_rng(seed)
    order = int(rng.integers(3, 6))
    planted = random_graph(rng.integers(3, 8, order).tolist(), order, rng)
    bounds = CutBounds(planted_tensor(planted, seed), 1e-6)
    assert bounds.apart.isdisjoint(planted.edges)
    for leaf, near in permutations(range(order), 2):
        rank = bounds.leaf_rank(leaf, near)
        if rank is not None:
            assert planted.neighbours[leaf] == (near,) and planted.rank(leaf, near) == rank


def test_where_not_all_cuts_are_known_no_legs_are_apart():
    x = planted_tensor(Structure.tensor_train((7,) * 5, (2, 3, 6, 5)), 0)
    assert CutBounds(x, 1e-6).apart
    few = CutBounds(x, 1e-6, seconds=2e-5)
    assert not few.is_complete and few.apart == frozenset() and few.leaf_rank(0, 1) is None


def test_legs_on_cycles_are_no_leaves():
    ring = Structure.tensor_ring((7,) * 5, (2, 3, 4, 5, 5))
    bounds = CutBounds(tg.TensorNetwork.random(ring, random_state=0).to_dense(), 1e-8)
    assert not any(bounds.leaf_rank(i, j) for i in range(5) for j in range(5) if i != j)
