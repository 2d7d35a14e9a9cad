from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorgrow import network as network_module
from tensorgrow.errors import DataError, MemoryLimitError, OptionError, StructureError, TensorgrowError
from tensorgrow.network import TensorNetwork, as_generator
from tensorgrow.structure import Structure
from tests.oracles import TOLERANCE, assert_close, dense, random_array, random_network, to_numpy
from tests.strategies import networks, seeds, structures

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))
HUBS = Structure(
    (3, 4, 3, 2), {(0, 4): 2, (1, 4): 3, (4, 5): 2, (2, 5): 2, (3, 5): 2, (0, 3): 2}, num_nodes=7
)


def random_rows(rng, dims, count):
    return np.stack([rng.integers(0, d, count) for d in dims], axis=1)


def chain_entries(cores, rows):
    """Entries of a tensor train by multiplying matrices."""
    values = []
    for row in rows:
        vector = to_numpy(cores[0])[row[0]]
        for core, index in zip(cores[1:-1], row[1:-1]):
            vector = vector @ to_numpy(core)[index]
        values.append(vector @ to_numpy(cores[-1])[row[-1]])
    return np.array(values)


def chain_norm(cores):
    transfer = np.einsum("ia,ib->ab", to_numpy(cores[0]).conj(), to_numpy(cores[0]))
    for core in cores[1:-1]:
        g = to_numpy(core)
        transfer = np.einsum("ab,iac,ibd->cd", transfer, g.conj(), g, optimize=True)
    g = to_numpy(cores[-1])
    return math.sqrt(np.einsum("ab,ia,ib->", transfer, g.conj(), g, optimize=True).real)


@pytest.fixture
def forbid_dense(monkeypatch):
    def refuse(*args):
        raise AssertionError("the dense tensor was formed")

    monkeypatch.setattr(network_module, "dense_plan", refuse)
    monkeypatch.setattr(TensorNetwork, "to_dense", refuse)


# -- making one --------------------------------------------------------------------------------------------


def test_cores_must_have_the_shapes_of_the_structure():
    cores = list(random_network(RING, 0).cores)
    with pytest.raises(StructureError, match="the structure needs"):
        TensorNetwork(RING, cores[:-1])
    with pytest.raises(StructureError, match="the structure needs"):
        TensorNetwork(RING, [c.transpose(0, 1) if k == 0 else c for k, c in enumerate(cores)])


def test_cores_may_be_numpy_arrays():
    net = TensorNetwork(Structure((2, 3), {(0, 1): 2}), [np.eye(2), np.array([[1.0, 2], [3, 4], [5, 6]])])
    np.testing.assert_array_equal(net.to_dense().numpy(), [[1, 3, 5], [2, 4, 6]])


def test_cores_of_mixed_precision_are_refused_or_work():
    cores = [torch.eye(2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float32)]
    try:
        net = TensorNetwork(Structure((2, 3), {(0, 1): 2}), cores)
    except TensorgrowError:
        return
    assert_close(net.to_dense(), np.ones((2, 3)), 0.0)
    assert net.norm() == pytest.approx(math.sqrt(6))


@given(structures(), seeds)
def test_a_seed_reproduces_a_random_network(structure, seed):
    a, b = (TensorNetwork.random(structure, random_state=seed) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.cores, b.cores))
    assert [tuple(c.shape) for c in a.cores] == list(structure.core_shapes)
    other = TensorNetwork.random(structure, random_state=seed + 1)
    assert not torch.equal(a.cores[0], other.cores[0])


def test_random_states_of_all_kinds():
    def first(state):
        return float(TensorNetwork.random(RING, random_state=state).cores[0][0, 0, 0])

    assert first(np.random.default_rng(3)) == first(np.random.default_rng(3))
    assert first(torch.Generator().manual_seed(3)) == first(3) == first(np.int64(3))
    assert first(np.random.default_rng(3)) != first(np.random.default_rng(4))
    assert first(None) != first(None)
    shared = torch.Generator().manual_seed(0)
    assert as_generator(shared) is shared
    assert first(shared) != first(shared)
    with pytest.raises(OptionError, match="64 bits"):
        first(2**64)


def test_random_entries_are_standard_normal(dtype):
    net = TensorNetwork.random(Structure((100, 100), {(0, 1): 50}), random_state=0, dtype=dtype)
    assert net.dtype == dtype
    values = to_numpy(net.cores[0]).ravel()
    assert abs(values.mean()) < 0.05
    assert np.mean(np.abs(values) ** 2) == pytest.approx(1.0, abs=0.05)
    assert np.std(np.abs(values)) > 0.3


def test_random_on_the_device(device):
    a = TensorNetwork.random(RING, random_state=0, device=device)
    assert a.device.type == device
    assert torch.equal(a.cores[0].cpu(), TensorNetwork.random(RING, random_state=0).cores[0])


def test_to_changes_precision_and_device(device):
    net = random_network(RING, 0)
    moved = net.to(device, torch.float32)
    assert (moved.dtype, moved.device.type) == (torch.float32, device)
    assert moved.structure is net.structure
    assert net.to(torch.complex64).dtype == torch.complex64
    assert net.to(torch.complex64).device.type == "cpu"
    assert net.to(dtype=torch.float32).dtype == torch.float32
    assert net.to(device).dtype == torch.float64
    assert_close(moved.to_dense(), dense(RING, net.cores), 1e-5)
    assert net.dtype == torch.float64


def test_properties():
    net = random_network(HUBS, 0, torch.complex64)
    assert net.is_complex
    assert net.num_parameters == sum(c.numel() for c in net.cores)
    assert "complex64" in repr(net)
    assert "Structure((3, 4, 3, 2)" in repr(net)


# -- dense and entries -------------------------------------------------------------------------------------


@given(st.data())
def test_to_dense_is_einsum(dtype, data):
    net = data.draw(networks(dtype))
    result = net.to_dense()
    assert result.dtype == dtype
    assert result.is_contiguous()
    assert_close(result, dense(net.structure, net.cores), TOLERANCE[dtype])


@pytest.mark.parametrize(("legs", "entries"), [(34, "17,179,869,184"), (60, "1,152,921,504,606,846,976")])
def test_what_does_not_fit_is_not_formed(legs, entries, monkeypatch):
    monkeypatch.setattr("tensorgrow.data.devices.free_memory", lambda device: 64e9)
    network = random_network(Structure.rank_one((2,) * legs), 0)
    with pytest.raises(
        MemoryLimitError, match=rf"{entries} entries needs about .* GB, but 64.00 GB are free"
    ):
        network.to_dense()


def test_products_on_the_way_to_the_dense_tensor_need_room_too(monkeypatch):
    network = random_network(Structure.tensor_train((2000, 2, 2000), 2), 0, torch.float32)  # 32 MB
    monkeypatch.setattr("tensorgrow.data.devices.free_memory", lambda device: 32.001e6)
    with pytest.raises(MemoryLimitError, match=r"8,000,000 entries needs about 0.03 GB"):
        network.to_dense()
    monkeypatch.setattr("tensorgrow.data.devices.free_memory", lambda device: 33e6)
    assert network.to_dense().shape == (2000, 2, 2000)


@given(st.data())
def test_writing_into_the_dense_tensor_leaves_the_network_alone(data):
    net = data.draw(networks(torch.float64))
    before = [c.clone() for c in net.cores]
    net.to_dense().fill_(7.0)
    assert all(torch.equal(a, b) for a, b in zip(net.cores, before))


@given(st.data())
def test_entries_are_those_of_the_dense_tensor(double, data):
    net = data.draw(networks(double))
    dims = net.structure.dims
    count = data.draw(st.integers(0, 2 * math.prod(dims)))
    rows = random_rows(np.random.default_rng(data.draw(seeds)), dims, count)
    x = dense(net.structure, net.cores)
    result = net.entries(rows)
    assert tuple(result.shape) == (count,)
    assert result.dtype == double
    assert_close(result, x[tuple(rows.T)], 1e-11, scale=np.linalg.norm(x) * math.sqrt(count))


def test_entries_in_every_precision(dtype, device):
    net = random_network(HUBS, 0, dtype).to(device)
    rows = random_rows(np.random.default_rng(0), HUBS.dims, 20)
    result = net.entries(torch.from_numpy(rows))
    assert (result.dtype, result.device.type) == (dtype, device)
    assert_close(result, dense(HUBS, net.cores)[tuple(rows.T)], TOLERANCE[dtype])


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 22])
def test_entries_in_chunks(chunk, monkeypatch, forbid_dense):
    monkeypatch.setattr(network_module, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(network_module, "CHUNK_ENTRIES", chunk)
    net = random_network(HUBS, 1, torch.complex128)
    rows = random_rows(np.random.default_rng(1), HUBS.dims, 50)
    assert_close(net.entries(rows), dense(HUBS, net.cores)[tuple(rows.T)], 1e-11)


@pytest.mark.parametrize("share", [2, 9, 11])
def test_a_good_part_of_a_small_tensor_comes_from_the_dense_one(share, monkeypatch):
    formed = []
    real = TensorNetwork.to_dense
    monkeypatch.setattr(TensorNetwork, "to_dense", lambda self: formed.append(1) or real(self))
    net = random_network(RING, 3)
    rows = random_rows(np.random.default_rng(3), RING.dims, RING.num_entries // share)
    assert_close(net.entries(rows), dense(RING, net.cores)[tuple(rows.T)], 1e-11)
    assert bool(formed) == (share <= network_module.DENSE_SAVES)


def test_chunks_bound_the_intermediates(monkeypatch, forbid_dense):
    monkeypatch.setattr(network_module, "SMALL_ENTRIES", 0)
    sizes = []
    contract = network_module.opt_einsum.contract

    def spy(equation, *operands, **kwargs):
        sizes.append(len(operands[0]))
        return contract(equation, *operands, **kwargs)

    monkeypatch.setattr(network_module.opt_einsum, "contract", spy)
    monkeypatch.setattr(network_module, "CHUNK_ENTRIES", 60)
    random_network(RING, 0).entries(random_rows(np.random.default_rng(1), RING.dims, 40))
    assert sum(sizes) == 40
    assert max(sizes) <= 60 // 6  # every core has 6 entries per row
    assert len(sizes) > 1


def test_entries_of_a_tensor_far_too_large_to_form(forbid_dense):
    structure = Structure.tensor_train((50,) * 8, 4)
    net = random_network(structure, 0)
    rows = random_rows(np.random.default_rng(0), structure.dims, 300)
    expected = chain_entries(net.cores, rows)
    assert_close(net.entries(rows), expected, 1e-12)
    assert_close(net.entries(rows[:1]), expected[:1], 1e-12)


def test_many_entries_of_a_small_tensor():
    net = random_network(RING, 0)
    rows = random_rows(np.random.default_rng(0), RING.dims, 10_000)
    assert_close(net.entries(rows), dense(RING, net.cores)[tuple(rows.T)], 1e-12)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.uint16, np.int8])
def test_indices_of_any_integer_type(kind):
    net = random_network(RING, 0)
    rows = random_rows(np.random.default_rng(0), RING.dims, 5)
    assert_close(net.entries(rows.astype(kind)), dense(RING, net.cores)[tuple(rows.T)], 1e-12)
    assert_close(net.entries(rows.astype(kind).tolist()), dense(RING, net.cores)[tuple(rows.T)], 1e-12)


@pytest.mark.parametrize("form", ["fortran", "strided", "reversed", "read-only", "broadcast"])
def test_indices_in_any_memory_layout(form):
    net = random_network(RING, 0)
    rows = random_rows(np.random.default_rng(0), RING.dims, 6)
    if form == "fortran":
        rows = np.asfortranarray(rows)
    elif form == "strided":
        rows = rows[::2]
    elif form == "reversed":
        rows = rows[::-1]
    elif form == "read-only":
        rows.flags.writeable = False
    else:
        rows = np.broadcast_to(rows[0], (5, 4))
    torch.set_warn_always(True)  # a warning about the layout is an error each time, not only the first
    try:
        values = net.entries(rows)
    finally:
        torch.set_warn_always(False)
    assert_close(values, dense(RING, net.cores)[tuple(rows.T)], 1e-12)


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([[0, 0, 0]], r"shape \(n, 4\)"),
        ([0, 0, 0, 0], r"shape \(n, 4\)"),
        ([], r"shape \(n, 4\)"),
        ([[0.0, 0.0, 0.0, 0.0]], "integers"),
        ([[True, False, True, False]], "integers"),
        (torch.zeros(2, 4, dtype=torch.complex64), "integers"),
        ([[0, 0, 0, 0], [0, 3, 0, 0]], r"1 of 2 index rows lie outside.*row 1: \[0, 3, 0, 0\]"),
        ([[-1, 0, 0, 0]], "outside"),
        ([[4, 0, 0, 0], [0, 0, 9, 0]], "2 of 2"),
    ],
)
def test_bad_indices_are_refused(indices, words):
    with pytest.raises(DataError, match=words):
        random_network(RING, 0).entries(indices)


# -- inner products ----------------------------------------------------------------------------------------


@given(st.data())
def test_norm_and_inner_against_dense(double, data):
    a = data.draw(networks(double))
    other = data.draw(structures(min_order=a.structure.order, max_order=a.structure.order))
    b = random_network(Structure(a.structure.dims, other.ranks, num_nodes=other.num_nodes), 11, double)
    x, y = dense(a.structure, a.cores), dense(b.structure, b.cores)
    scale = np.linalg.norm(x) * np.linalg.norm(y)
    assert a.norm() == pytest.approx(np.linalg.norm(x), rel=1e-11)
    assert a.inner(b) == pytest.approx(np.vdot(x, y), abs=1e-11 * scale)
    assert isinstance(a.inner(b), complex if double.is_complex else float)


def test_inner_is_conjugate_linear_in_the_first():
    a, b = (random_network(RING, k, torch.complex128) for k in (0, 1))
    turned = TensorNetwork(RING, [1j * a.cores[0], *a.cores[1:]])
    assert turned.inner(b) == pytest.approx(-1j * a.inner(b))
    assert b.inner(turned) == pytest.approx(1j * b.inner(a))
    assert a.inner(b) == pytest.approx(np.conj(b.inner(a)))
    assert a.inner(a).imag == pytest.approx(0.0, abs=1e-10 * abs(a.inner(a)))


def test_inner_of_different_precisions():
    a, b = random_network(RING, 0, torch.float32), random_network(HUBS, 1, torch.complex128)
    b = random_network(Structure(RING.dims, HUBS.ranks, num_nodes=7), 1, torch.complex128)
    expected = np.vdot(dense(RING, a.cores), dense(b.structure, b.cores))
    assert a.inner(b) == pytest.approx(expected, rel=1e-11)
    assert b.inner(a) == pytest.approx(np.conj(expected), rel=1e-11)


def test_norm_on_the_device(dtype, device):
    net = random_network(HUBS, 0, dtype)
    expected = np.linalg.norm(dense(HUBS, net.cores))
    assert net.to(device).norm() == pytest.approx(expected, rel=TOLERANCE[dtype])


def test_inner_refuses_other_shapes():
    with pytest.raises(StructureError, match="inner product"):
        random_network(RING, 0).inner(random_network(HUBS, 0))


def test_norm_of_a_tensor_far_too_large_to_form(forbid_dense):
    net = random_network(Structure.tensor_train((50,) * 8, 4), 0)
    assert net.norm() == pytest.approx(chain_norm(net.cores), rel=1e-11)


# -- long networks -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_chain():
    return random_network(Structure.tensor_train((3,) * 60, 3), 5, torch.complex128)


def test_norm_of_sixty_nodes(long_chain, forbid_dense):
    assert long_chain.norm() == pytest.approx(chain_norm(long_chain.cores), rel=1e-10)


def test_entries_of_sixty_nodes(long_chain, forbid_dense):
    rows = random_rows(np.random.default_rng(0), long_chain.structure.dims, 20)
    assert_close(long_chain.entries(rows), chain_entries(long_chain.cores, rows), 1e-10)


def test_dense_of_sixty_nodes_with_few_legs():
    # Two legs joined by a chain of 58 internal nodes.
    path = [0, *range(2, 60), 1]
    structure = Structure((3, 4), dict.fromkeys(pairwise(path), 2))
    net = random_network(structure, 0)
    matrix = to_numpy(net.cores[0])
    for before, k, after in zip(path, path[1:-1], path[2:]):
        core = np.moveaxis(to_numpy(net.cores[k]), structure.axis(k, before), 0)
        assert structure.axis(k, after) in (1, 2)
        matrix = matrix @ core.reshape(2, 2)
    matrix = matrix @ to_numpy(net.cores[1]).T
    assert_close(net.to_dense(), matrix, 1e-10)
    assert net.norm() == pytest.approx(np.linalg.norm(matrix), rel=1e-10)
    assert_close(net.entries([[2, 3], [0, 1]]), [matrix[2, 3], matrix[0, 1]], 1e-10)


# -- export and methods ------------------------------------------------------------------------------------


@given(st.data())
def test_einsum_export_is_understood_by_numpy_and_torch(double, data):
    net = data.draw(networks(double))
    equation, operands = net.einsum()
    assert operands is net.cores
    expected = dense(net.structure, net.cores)
    result = np.einsum(equation, *(to_numpy(c) for c in operands), optimize="greedy")
    assert_close(result, expected, 1e-11)
    assert_close(torch.einsum(equation, *operands), expected, 1e-11)


def test_balanced_is_the_same_tensor(double):
    net = random_network(HUBS, 0, double)
    balanced = net.balanced()
    assert_close(balanced.to_dense(), dense(HUBS, net.cores), 1e-11)
    norms = [float(torch.linalg.vector_norm(c)) for c in balanced.cores]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)


@settings(max_examples=15)
@given(st.data())
def test_methods_work_on_conjugated_cores(data):
    net = data.draw(networks(torch.complex128))
    lazy = TensorNetwork(net.structure, [c.conj() for c in net.cores])
    x = dense(net.structure, net.cores).conj()
    assert_close(lazy.to_dense(), x, 1e-11)
    assert lazy.norm() == pytest.approx(np.linalg.norm(x), rel=1e-11)
    rows = random_rows(np.random.default_rng(0), net.structure.dims, 3)
    assert_close(lazy.entries(rows), x[tuple(rows.T)], 1e-11, scale=np.linalg.norm(x))
    assert_close(lazy.balanced().to_dense(), x, 1e-11)


def test_gradients_flow_through_dense_and_entries():
    net = random_network(RING, 0)
    cores = [c.clone().requires_grad_() for c in net.cores]
    live = TensorNetwork(RING, cores)
    weights = random_array(np.random.default_rng(0), RING.dims, torch.float64)
    (live.to_dense() * weights).sum().backward()
    rows = np.stack(np.unravel_index(np.arange(100), RING.dims), axis=1)
    again = [c.clone().requires_grad_() for c in net.cores]
    picked = weights.reshape(-1)[:100]
    (TensorNetwork(RING, again).entries(rows) * picked).sum().backward()
    # The network is linear in each core: the gradient contracted with the core is the value itself.
    value = float((to_numpy(weights) * dense(RING, net.cores)).sum())
    part = float((to_numpy(weights) * dense(RING, net.cores)).ravel()[:100].sum())
    for a, b in zip(cores, again):
        assert float((a.grad * a.detach()).sum()) == pytest.approx(value, rel=1e-10)
        assert float((b.grad * b.detach()).sum()) == pytest.approx(part, rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32])
def test_norms_and_inner_products_at_any_scale(dtype):
    net = TensorNetwork.random(Structure.tensor_ring((3, 4, 2), 2), random_state=0, dtype=dtype)
    most = 100 if dtype == torch.float32 else 1000
    for exponent in (-most, most):
        other = net.times_power(exponent)
        assert torch.equal(other.times_power(-exponent).to_dense(), net.to_dense())
        assert other.norm() == pytest.approx(net.norm() * 2.0**exponent, rel=1e-5)
        assert other.inner(net) == pytest.approx(net.inner(net) * 2.0**exponent, rel=1e-5)
    uneven = [net.cores[0] * 2.0**most, net.cores[1] * 2.0**-most, net.cores[2]]
    assert TensorNetwork(net.structure, uneven).norm() == pytest.approx(net.norm(), rel=1e-5)


def test_norms_of_very_high_order():
    train = Structure.tensor_train((2,) * 1100, 2)
    cores = [torch.full(shape, 0.5, dtype=torch.float64) for shape in train.core_shapes]
    net = TensorNetwork(train, cores)  # every entry is 0.5^1100 2^1099: the norm is 2^550 / 2
    assert net.norm() == pytest.approx(2.0**549)
    assert net.times_power(-100).norm() == pytest.approx(2.0**449)
    assert train.compression_ratio == math.inf


def test_networks_are_arrays_to_numpy():
    net = random_network(RING, 0)
    array = np.asarray(net)
    assert_close(array, dense(RING, net.cores), 1e-12)
    assert np.asarray(net, dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.array(net, copy=True), array)
    lazy = TensorNetwork(RING, [c.conj() for c in random_network(RING, 0, torch.complex128).cores])
    assert np.asarray(lazy).dtype == np.complex128
    with pytest.raises(ValueError, match="without a copy"):
        np.array(net, copy=False)


def test_networks_too_large_are_refused_with_their_size():
    with pytest.raises(MemoryLimitError, match=r"4,611,686,018,427,387,907 parameters"):
        TensorNetwork.random(Structure.tensor_train((2**62, 3), 1))
    with pytest.raises(MemoryLimitError, match=r"1,152,921,504,606,846,976 entries"):
        np.asarray(TensorNetwork.random(Structure.tensor_train((2,) * 60, 2)))


def test_there_may_be_no_node_to_absorb():
    with pytest.raises(StructureError, match="there are no internal nodes"):
        TensorNetwork.random(Structure.rank_one((2, 3)), random_state=0).merge_nodes(0, 1)
