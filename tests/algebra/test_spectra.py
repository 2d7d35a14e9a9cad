from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.algebra.spectra import (
    leading_columns,
    leading_pair,
    propose_splits,
    sqrt_and_inverse,
    tail_norms,
)
from tensorgrow.structure import Structure
from tests.oracles import (
    assert_close,
    dense,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import seeds, trees

DOUBLES = st.sampled_from([torch.float64, torch.complex128])


@given(st.integers(1, 6), DOUBLES, seeds)
def test_square_root_and_inverse(n, dtype, seed):
    a = random_array(np.random.default_rng(seed), (n, n + 5), dtype)
    gram = a @ a.mH
    root, inverse = sqrt_and_inverse(gram)
    assert_close(root @ root, gram, 1e-12)
    assert_close(root, root.mH, 1e-12)
    assert_close(root @ inverse, np.eye(n), 1e-9)
    assert (np.linalg.eigvalsh(to_numpy(root)) > 0).all()


@given(DOUBLES, seeds)
def test_root_of_a_singular_matrix_stays_invertible(dtype, seed):
    a = random_array(np.random.default_rng(seed), (5, 2), dtype)
    root, inverse = sqrt_and_inverse(a @ a.mH)
    assert_close(root @ root, a @ a.mH, 1e-12)
    assert_close(root @ inverse, np.eye(5), 1e-6)


def test_root_of_zero_is_finite():
    root, inverse = sqrt_and_inverse(torch.zeros(3, 3, dtype=torch.float64))
    assert_close(root @ inverse, np.eye(3), 1e-12)
    assert float(root.abs().max()) < 1e-100


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=6))
def test_tail_norms(values):
    s = np.sort(np.array(values))[::-1].copy()
    tails = tail_norms(torch.from_numpy(s))
    expected = [float(np.linalg.norm(s[r:])) for r in range(len(s) + 1)]
    assert len(tails) == len(s) + 1
    np.testing.assert_allclose(tails.numpy(), expected, rtol=1e-12, atol=1e-290)
    assert float(tails[-1]) == 0.0


def test_tail_norms_of_single_precision_do_not_underflow():
    tails = tail_norms(torch.tensor([1.0, 1e-30], dtype=torch.float32))
    assert float(tails[1]) == pytest.approx(1e-30, rel=1e-5)


@given(st.integers(1, 5), st.integers(1, 5), DOUBLES, seeds)
def test_leading_pair_converges_to_the_leading_singular_pair(use_numpy, m, n, dtype, seed):
    rng = np.random.default_rng(seed)
    q = [np.linalg.qr(to_numpy(random_array(rng, (k, k), dtype)))[0] for k in (m, n)]
    s = np.array([4.0, 1.0, 0.5, 0.2, 0.1])[: min(m, n)]
    matrix = (q[0][:, : len(s)] * s) @ q[1][: len(s)]
    start = to_numpy(random_array(rng, (n,), dtype))
    args = (matrix, start) if use_numpy else (torch.from_numpy(matrix), torch.from_numpy(start))
    u, v = (to_numpy(x) for x in leading_pair(args[0], 40, args[1]))
    assert np.linalg.norm(u) == pytest.approx(1.0)
    assert_close(np.outer(u, v), 4.0 * np.outer(q[0][:, 0], q[1][0]), 1e-9)


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
def test_leading_pair_of_zero_is_zero(make, name):
    dtype = getattr(np if make is np.zeros else torch, name)
    u, v = leading_pair(make((3, 2), dtype=dtype), 3, make(2, dtype=dtype))
    assert not to_numpy(u).any()
    assert not to_numpy(v).any()


@given(st.data())
def test_proposed_splits_save_what_they_say(data):
    structure = data.draw(trees(max_rank=4))
    net = random_network(structure, data.draw(seeds))
    node = data.draw(st.integers(0, structure.num_nodes - 1))
    threshold = data.draw(st.sampled_from([1e-10, 0.3, 0.8]))
    options = data.draw(st.integers(1, 3))
    proposals = list(propose_splits(structure, net.cores, node, options_per_cut=options, threshold=threshold))
    assert len({(p.axes, p.rank) for p in proposals}) == len(proposals)
    x = dense(structure, net.cores)
    for p in proposals:
        assert p.node == node
        after = net.split_node(node, p.axes, rank=p.rank)
        assert p.saved == net.num_parameters - after.num_parameters > 0
        error = np.linalg.norm(x - dense(after.structure, after.cores)) / np.linalg.norm(x)
        assert p.dropped == pytest.approx(error, abs=1e-6)
        assert options > 1 or p.dropped <= threshold


def test_the_obvious_split_is_proposed():
    structure = Structure.tucker((3, 3, 3, 3), 3)
    rng = np.random.default_rng(0)
    hub = np.einsum("abx,xcd->abcd", rng.standard_normal((3, 3, 2)), rng.standard_normal((2, 3, 3)))
    cores = list(random_network(structure, 0).cores)
    cores[4] = torch.tensor(hub[None])
    proposals = list(propose_splits(structure, cores, 4, threshold=1e-10))
    # The hub has no leg of its own, so either half may keep its number.
    assert {p.axes for p in proposals} <= {(0, 1, 2), (0, 3, 4)}
    assert {(p.rank, p.saved) for p in proposals} == {(2, 81 - 2 * 18)}
    assert not list(propose_splits(structure, cores, 0, threshold=1e-10))


@given(st.integers(1, 4), st.integers(0, 3), DOUBLES, seeds)
def test_leading_columns_span_what_is_large(count, more, dtype, seed):
    gen = np.random.default_rng(seed)
    large = random_array(gen, (9, count), dtype) @ random_array(gen, (count, 5 + more), dtype)
    u, v = leading_columns(large, count, 3)
    assert_close(u.mH @ u, np.eye(count), 1e-10)
    assert_close(u @ v.mT, large, 1e-8, float(torch.linalg.vector_norm(large)))
