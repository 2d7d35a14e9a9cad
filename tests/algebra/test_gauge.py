from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.algebra.gauge import balance, balance_edge, edge_spectra, equalise_norms, scale_edge
from tensorgrow.structure import Structure
from tests.oracles import TOLERANCE, assert_close, dense, random_network, to_numpy
from tests.strategies import networks, structures

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))


def unfolding(structure, cores, node, neighbour):
    core = np.moveaxis(to_numpy(cores[node]), structure.axis(node, neighbour), -1)
    return core.reshape(-1, core.shape[-1])


def ill_scaled(network, exponents):
    cores = [c * 10.0**e for c, e in zip(network.cores, exponents)]
    return type(network)(network.structure, cores)


@given(st.data())
def test_balancing_leaves_the_tensor_unchanged(double, data):
    net = data.draw(networks(double))
    cores = balance(net.structure, net.cores)
    assert [tuple(c.shape) for c in cores] == list(net.structure.core_shapes)
    assert_close(dense(net.structure, cores), dense(net.structure, net.cores), 1e-11)


def test_balancing_in_every_precision(dtype, device):
    net = random_network(RING, 0, dtype)
    cores = balance(RING, net.to(device).cores)
    assert {(c.dtype, c.device.type) for c in cores} == {(dtype, device)}
    assert_close(dense(RING, cores), dense(RING, net.cores), TOLERANCE[dtype])


@given(st.data())
def test_all_norms_become_equal(double, data):
    net = data.draw(networks(double))
    norms = [np.linalg.norm(to_numpy(c)) for c in balance(net.structure, net.cores)]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)


@given(st.data())
def test_both_ends_of_an_edge_get_the_root_of_its_spectrum(double, data):
    net = data.draw(networks(double, min_order=2))
    s = net.structure
    for i, j in s.edges:
        balanced = balance_edge(s, net.cores, (i, j))
        # A rank that an end cannot carry has no square gauge.
        assert (balanced is None) == (s.rank(i, j) > s.useful_rank(i, j))
        if balanced is None:
            continue
        cores = list(net.cores)
        cores[i], cores[j], spectrum = balanced
        joined = unfolding(s, net.cores, i, j) @ unfolding(s, net.cores, j, i).T
        expected = np.linalg.svd(joined, compute_uv=False)[: s.rank(i, j)]
        assert_close(spectrum, expected, 1e-11)
        for a, b in ((i, j), (j, i)):
            values = np.linalg.svd(unfolding(s, cores, a, b), compute_uv=False)
            np.testing.assert_allclose(values**2, expected, atol=1e-10 * expected[0])
            # The components themselves are orthogonal: component r has norm spectrum[r]^(1/2).
            gram = unfolding(s, cores, a, b).conj().T @ unfolding(s, cores, a, b)
            np.testing.assert_allclose(gram, np.diag(expected), atol=1e-10 * expected[0])
        assert_close(dense(s, cores), dense(s, net.cores), 1e-11)


@given(st.data())
def test_the_edge_balanced_last_has_equal_spectra_at_both_ends(double, data):
    net = data.draw(networks(double, min_order=2, max_rank=2, min_dim=2))
    s = net.structure
    if not s.edges or s.rank(*s.edges[-1]) > s.useful_rank(*s.edges[-1]):
        return
    i, j = s.edges[-1]
    cores = balance(s, net.cores)
    ends = [np.linalg.svd(unfolding(s, cores, a, b), compute_uv=False) for a, b in ((i, j), (j, i))]
    np.testing.assert_allclose(ends[0] / ends[0][0], ends[1] / ends[1][0], atol=1e-7)


def test_a_balanced_matrix_is_its_svd():
    s = Structure((5, 4), {(0, 1): 3})
    net = random_network(s, 0)
    a, b = (to_numpy(c) for c in balance(s, net.cores))
    singular = np.linalg.svd(dense(s, net.cores), compute_uv=False)[:3]
    np.testing.assert_allclose(a.T @ a, np.diag(singular), atol=1e-12)
    np.testing.assert_allclose(b.T @ b, np.diag(singular), atol=1e-12)
    assert_close(edge_spectra(s, [torch.from_numpy(a), torch.from_numpy(b)])[0, 1], singular, 1e-12)


@given(st.data())
def test_edge_spectra_are_singular_values_of_the_joined_cores(double, data):
    net = data.draw(networks(double))
    s = net.structure
    spectra = edge_spectra(s, net.cores)
    assert list(spectra) == list(s.edges)
    for (i, j), found in spectra.items():
        joined = unfolding(s, net.cores, i, j) @ unfolding(s, net.cores, j, i).T
        expected = np.linalg.svd(joined, compute_uv=False)[: s.rank(i, j)]
        assert_close(found, expected[: len(found)], 1e-11, scale=expected[0])
        assert len(found) >= len(expected)


@given(st.lists(st.integers(-100, 100), min_size=4, max_size=4), st.booleans())
def test_ill_scaled_cores_are_handled(exponents, is_complex):
    dtype = torch.complex128 if is_complex else torch.float64
    net = random_network(RING, 1, dtype)
    # The tensor keeps its scale: the last core makes up for the others.
    exponents = [*exponents[:3], -sum(exponents[:3])] if abs(sum(exponents[:3])) <= 100 else [100, -100, 0, 0]
    cores = balance(RING, ill_scaled(net, exponents).cores)
    norms = [np.linalg.norm(to_numpy(c)) for c in cores]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)
    assert 1e-2 < norms[0] < 1e2
    assert_close(dense(RING, cores), dense(RING, net.cores), 1e-10)


def test_one_end_inflated_component_wise_is_repaired():
    # A gauge of condition 1e12 between two cores: what drifting ALS produces.
    s = Structure((6, 6), {(0, 1): 3})
    net = random_network(s, 2)
    drift = torch.diag(torch.tensor([1e6, 1.0, 1e-6], dtype=torch.float64))
    cores = [net.cores[0] @ drift, net.cores[1] @ torch.linalg.inv(drift)]
    fixed = balance(s, cores)
    assert_close(dense(s, fixed), dense(s, net.cores), 1e-8)
    assert np.linalg.cond(to_numpy(fixed[0])) < 1e2


@given(structures(min_order=2, max_dim=2, max_rank=3), st.integers(0, 1000))
def test_ranks_above_what_the_ends_can_carry_do_no_harm(s, seed):
    net = random_network(s, seed)
    overfull = [e for e in s.edges if s.rank(*e) > s.useful_rank(*e)]
    cores = balance(s, net.cores)
    assert_close(dense(s, cores), dense(s, net.cores), 1e-11)
    for edge in overfull:
        assert balance_edge(s, net.cores, edge) is None


def test_lost_rank_keeps_cores_finite(double):
    s = Structure((4, 4, 4), {(0, 1): 3, (1, 2): 2})
    cores = list(random_network(s, 3, double).cores)
    cores[0][:, 2] = cores[0][:, 1]
    fixed = balance(s, cores)
    assert_close(dense(s, fixed), dense(s, cores), 1e-11)
    assert np.linalg.matrix_rank(to_numpy(fixed[0]), tol=1e-3) == 2


def test_a_zero_core_gives_the_zero_tensor(dtype):
    cores = list(random_network(RING, 0, dtype).cores)
    cores[1] = torch.zeros_like(cores[1])
    fixed = balance(RING, cores)
    assert all(bool(torch.isfinite(torch.view_as_real(c) if c.is_complex() else c).all()) for c in fixed)
    assert not dense(RING, fixed).any()


def test_inputs_are_not_changed():
    net = random_network(RING, 0)
    before = [c.clone() for c in net.cores]
    balance(RING, net.cores)
    edge_spectra(RING, net.cores)
    assert all(torch.equal(a, b) for a, b in zip(net.cores, before))


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=5))
def test_equalise_norms_uses_the_geometric_mean(exponents):
    cores = [torch.full((4,), 10.0**e, dtype=torch.float64) for e in exponents]
    scaled = equalise_norms(cores)
    mean = 2 * 10 ** (sum(exponents) / len(exponents))
    for core in scaled:
        assert float(torch.linalg.vector_norm(core)) == pytest.approx(mean, rel=1e-9)
    product = math.prod(float(c[0]) for c in scaled)
    assert product == pytest.approx(math.prod(float(c[0]) for c in cores), rel=1e-9)


# -- signs -------------------------------------------------------------------------------------------------


@given(st.data())
def test_balancing_keeps_signs_where_it_must(data):
    net = data.draw(networks(torch.float64))
    s = net.structure
    kept = data.draw(st.sets(st.sampled_from(range(s.num_nodes))))
    cores = [c.abs() if k in kept else c for k, c in enumerate(net.cores)]
    balanced = balance(s, cores, kept)
    assert all((balanced[k] >= 0).all() for k in kept)
    assert_close(dense(s, balanced), dense(s, cores), 1e-11)
    norms = [np.linalg.norm(to_numpy(c)) for c in balanced]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)


def test_components_are_scaled_and_sorted():
    s = Structure.tensor_train((3, 4), 3)
    one, two = (torch.rand(shape, dtype=torch.float64) for shape in s.core_shapes)
    one = one * torch.tensor([1e-3, 1e5, 0.0])
    left, right = scale_edge(s, [one, two], (0, 1))
    weights = (torch.linalg.vector_norm(one, dim=0) * torch.linalg.vector_norm(two, dim=0)).sort(
        descending=True
    )[0]
    np.testing.assert_allclose(torch.linalg.vector_norm(left, dim=0), weights.sqrt())
    np.testing.assert_allclose(torch.linalg.vector_norm(right, dim=0)[:2], weights.sqrt()[:2])
    assert (left[:, 2] == 0).all()  # what is zero at one end is the last
    assert_close(to_numpy(left @ right.T), to_numpy(one @ two.T), 1e-12)
