from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tensorgrow.algebra import moves, spectra
from tensorgrow.errors import StructureError
from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.oracles import (
    TOLERANCE,
    added_by_slices,
    assert_close,
    dense,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds, structures, trees

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))
TRIANGLE_AND_HUB = Structure(
    (3, 4, 3), {(0, 1): 2, (0, 2): 2, (1, 2): 3, (0, 3): 2, (1, 3): 2, (2, 3): 2, (3, 4): 2, (0, 4): 3}
)


def pairs_of(structure):
    return list(combinations(range(structure.num_nodes), 2))


def zero_slices(structure, i, j, dtype=torch.float64):
    without = structure.with_rank(i, j, 1)
    return [torch.zeros(without.core_shape(k), dtype=dtype) for k in (i, j)]


# -- grow --------------------------------------------------------------------------------------------------


@given(st.data())
def test_proposition_1_zero_slices_change_nothing(data):
    # Small integers: all arithmetic is exact, so equality is to the bit.
    structure = data.draw(structures(min_order=2))
    rng = np.random.default_rng(data.draw(seeds))
    cores = [torch.tensor(rng.integers(-3, 4, s), dtype=torch.float64) for s in structure.core_shapes]
    i, j = data.draw(st.sampled_from(pairs_of(structure)))
    if data.draw(st.booleans()):
        i, j = j, i
    grown, new = moves.grow(structure, cores, i, j, *zero_slices(structure, i, j))
    assert grown == structure.with_rank(i, j, structure.rank(i, j) + 1)
    assert [tuple(c.shape) for c in new] == list(grown.core_shapes)
    assert torch.equal(TensorNetwork(grown, new).to_dense(), TensorNetwork(structure, cores).to_dense())
    for k in range(structure.num_nodes):
        if k not in (i, j):
            assert new[k] is cores[k]


@given(st.data())
def test_growing_adds_the_tensor_of_the_slices(double, data):
    net = data.draw(networks(double, min_order=2))
    s = net.structure
    i, j = data.draw(st.sampled_from(pairs_of(s)))
    rng = np.random.default_rng(data.draw(seeds))
    slices = [random_array(rng, z.shape, double) for z in zero_slices(s, i, j)]
    grown, cores = moves.grow(s, net.cores, i, j, *slices)
    expected = dense(s, net.cores) + added_by_slices(s, net.cores, (i, j), *slices)
    assert_close(dense(grown, cores), expected, 1e-11, scale=np.linalg.norm(expected) + 1.0)
    # Flat vectors, as a slice fit gives them, are as good.
    _, flat = moves.grow(s, net.cores, i, j, *(x.reshape(-1) for x in slices))
    assert all(torch.equal(a, b) for a, b in zip(flat, cores))


@given(st.data())
def test_growing_then_shrinking_gives_the_cores_back(data):
    net = data.draw(networks(torch.float64, min_order=2))
    i, j = data.draw(st.sampled_from(pairs_of(net.structure)))
    grown = net.grow_edge(i, j, noise=1.0, random_state=0)
    rank = net.structure.rank(i, j)
    structure, cores = moves.shrink(grown.structure, grown.cores, i, j, range(rank))
    assert structure == net.structure
    assert all(torch.equal(a, b) for a, b in zip(cores, net.cores))


def test_grow_edge_noise(double):
    net = random_network(RING, 0, double)
    still = net.grow_edge(0, 2, noise=0.0)
    assert still.structure.rank(0, 2) == 2
    assert_close(still.to_dense(), net.to_dense(), 1e-14)
    a, b = (net.grow_edge(0, 1, noise=1e-3, random_state=5) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(a.cores, b.cores))
    new = a.cores[0].select(a.structure.axis(0, 1), 2)
    assert 1e-4 < float(new.abs().mean()) < 1e-2
    other = net.grow_edge(0, 1, noise=1e-3, random_state=6)
    assert not torch.equal(a.cores[0], other.cores[0])
    assert a.dtype == double


def test_grow_keeps_dtype_and_device(dtype, device):
    net = random_network(RING, 0, dtype).to(device)
    grown = net.grow_edge(0, 2, random_state=0).grow_edge(0, 2, random_state=1)
    assert {(c.dtype, c.device.type) for c in grown.cores} == {(dtype, device)}
    assert grown.structure.rank(0, 2) == 3


@pytest.mark.parametrize(("i", "j"), [(0, 4), (1, 1), (-1, 2)])
def test_grow_refuses_nodes_that_do_not_exist(i, j):
    net = random_network(RING, 0)
    with pytest.raises(StructureError):
        net.grow_edge(i, j)


def test_grow_refuses_wrong_slices():
    net = random_network(RING, 0)
    good = zero_slices(RING, 0, 1)
    with pytest.raises(StructureError, match=r"node 1 has shape \(7,\); \(3, 3\) is needed"):
        net.grow_edge(0, 1, slices=(good[0], torch.zeros(7)))


# -- shrink ------------------------------------------------------------------------------------------------


@given(st.data())
def test_shrinking_drops_exactly_the_other_components(double, data):
    net = data.draw(networks(double, min_order=2))
    s = net.structure
    assume(s.edges)
    i, j = data.draw(st.sampled_from(s.edges))
    every = range(s.rank(i, j))
    keep = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    shrunk, cores = moves.shrink(s, net.cores, i, j, keep)
    assert shrunk == s.with_rank(i, j, len(keep))
    assert [tuple(c.shape) for c in cores] == list(shrunk.core_shapes)
    masked = [to_numpy(c) for c in net.cores]
    mask = np.isin(np.array(every), keep)
    masked[i] = np.moveaxis(np.moveaxis(masked[i], s.axis(i, j), -1) * mask, -1, s.axis(i, j))
    expected = dense(s, masked)
    assert_close(dense(shrunk, cores), expected, 1e-11, scale=np.linalg.norm(expected) + 1.0)


def test_shrinking_a_matrix_is_its_truncated_svd(dtype):
    s = Structure((6, 5), {(0, 1): 4})
    net = random_network(s, 0, dtype)
    u, values, vh = np.linalg.svd(dense(s, net.cores))
    expected = (u[:, :2] * values[:2]) @ vh[:2]
    assert_close(net.shrink_edge(0, 1, by=2).to_dense(), expected, TOLERANCE[dtype])
    assert net.shrink_edge(1, 0, by=3).structure.edges == ()


@pytest.mark.parametrize("keep", [(), (0, 0), (2,), (-1,), (0, 5)])
def test_shrink_refuses_components_that_do_not_exist(keep):
    net = random_network(RING, 0)
    with pytest.raises(StructureError, match="components"):
        moves.shrink(RING, net.cores, 0, 1, keep)


@pytest.mark.parametrize(("edge", "by"), [((0, 1), 2), ((0, 1), 0), ((0, 2), 1), ((0, 1), -1)])
def test_shrink_edge_refuses_to_remove_all(edge, by):
    with pytest.raises(StructureError, match="cannot shrink"):
        random_network(RING, 0).shrink_edge(*edge, by=by)


# -- split -------------------------------------------------------------------------------------------------


def draw_cut(data, structure):
    """A node with bonds, and axes of its core that stay."""
    node = data.draw(st.sampled_from([k for k in range(structure.num_nodes) if structure.neighbours[k]]))
    ndim = len(structure.core_shape(node))
    axes = data.draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim - 1, unique=True))
    return node, axes


def assert_is_split(before, after, node, axes):
    new = before.num_nodes
    bonds = before.neighbours[node]
    stay = set(axes) if 0 in axes else set(range(1 + len(bonds))) - set(axes)
    assert after.num_nodes == new + 1
    assert after.dims == before.dims
    for axis, k in enumerate(bonds, start=1):
        assert after.rank(node if axis in stay else new, k) == before.rank(node, k)
        assert after.rank(new if axis in stay else node, k) == 1


@given(st.data())
def test_splitting_without_truncation_leaves_the_tensor_unchanged(double, data):
    net = data.draw(networks(double, min_order=2))
    assume(net.structure.edges)
    node, axes = draw_cut(data, net.structure)
    after, cores, dropped = moves.split(net.structure, net.cores, node, axes)
    assert_is_split(net.structure, after, node, axes)
    assert [tuple(c.shape) for c in cores] == list(after.core_shapes)
    assert dropped <= 1e-12
    assert_close(dense(after, cores), dense(net.structure, net.cores), 1e-10)


@given(st.data())
def test_splitting_in_the_gauge_of_the_environment_leaves_the_tensor_unchanged(double, data):
    net = data.draw(networks(double, min_order=2))
    assume(net.structure.edges)
    node, axes = draw_cut(data, net.structure)
    after = net.split_node(node, axes)
    assert_is_split(net.structure, after.structure, node, axes)
    assert_close(dense(after.structure, after.cores), dense(net.structure, net.cores), 1e-7)


@given(st.data())
def test_truncating_a_plain_split_drops_the_tail_of_the_core(double, data):
    net = data.draw(networks(double, min_order=2))
    s = net.structure
    assume(s.edges)
    node, axes = draw_cut(data, s)
    core = to_numpy(net.cores[node])
    stay = sorted(axes) if 0 in axes else [a for a in range(core.ndim) if a not in axes]
    leave = [a for a in range(core.ndim) if a not in stay]
    matrix = core.transpose(*stay, *leave).reshape(math.prod(core.shape[a] for a in stay), -1)
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = data.draw(st.integers(1, len(values)))
    after, _, dropped = moves.split(s, net.cores, node, axes, rank=rank)
    assert after.rank(node, s.num_nodes) == rank
    assert dropped == pytest.approx(np.linalg.norm(values[rank:]) / np.linalg.norm(values), abs=1e-12)


@given(st.data())
def test_on_trees_the_error_is_what_was_dropped(double, data):
    structure = data.draw(trees())
    net = random_network(structure, data.draw(seeds), double)
    node, axes = draw_cut(data, structure)
    core, inverses = spectra.whiten_core(structure, net.cores, node)
    rank = data.draw(st.integers(1, 4))
    after, cores, dropped = moves.split(
        structure, net.cores, node, axes, rank=rank, inverse_roots=inverses, whitened=core
    )
    x = dense(structure, net.cores)
    error = np.linalg.norm(x - dense(after, cores)) / np.linalg.norm(x)
    assert dropped == pytest.approx(error, abs=1e-6)
    # And no other tensor with this rank across the cut is closer.
    bonds = structure.neighbours[node]
    moved = [bonds[a - 1] for a in range(1, len(bonds) + 1) if (a in axes) != (0 in axes)]
    behind = legs_behind(structure, node, moved)
    rows = [k for k in range(structure.order) if k not in behind]
    unfolded = x.transpose(*rows, *behind).reshape(math.prod(structure.dims[k] for k in rows), -1)
    values = np.linalg.svd(unfolded, compute_uv=False)
    assert dropped == pytest.approx(np.linalg.norm(values[rank:]) / np.linalg.norm(values), abs=1e-6)


def legs_behind(tree, node, first):
    """Data legs reached from `node` through the neighbours `first`."""
    seen, frontier = {node}, list(first)
    while frontier:
        k = frontier.pop()
        seen.add(k)
        frontier += [j for j in tree.neighbours[k] if j not in seen]
    return sorted(k for k in seen if k != node and k < tree.order)


def test_split_finds_the_rank_that_is_there():
    # A core that is a product of two rank-2 pieces falls apart at rank 2.
    rng = np.random.default_rng(0)
    hub = np.einsum("iax,xbc->iabc", rng.standard_normal((3, 4, 2)), rng.standard_normal((2, 4, 4)))
    s = Structure((3, 4, 4, 4), {(0, 1): 4, (0, 2): 4, (0, 3): 4})
    cores = [torch.tensor(hub), *(torch.tensor(rng.standard_normal((4, 4))) for _ in range(3))]
    net = TensorNetwork(s, cores)
    after = net.split_node(0, (0, 1))
    assert after.structure.rank(0, 4) == 2
    assert after.num_parameters < net.num_parameters
    assert_close(after.to_dense(), net.to_dense(), 1e-10)
    loose = net.split_node(0, (0, 1), threshold=0.9)
    assert loose.structure.rank(0, 4) == 1


def test_split_at_the_dangling_leg(double):
    net = random_network(RING, 0, double)
    after = net.split_node(2, (0,))
    assert after.structure.neighbours[2] == (4,)
    assert after.structure.neighbours[4] == (1, 2, 3)
    assert_close(after.to_dense(), net.to_dense(), 1e-10)
    assert after.structure == net.split_node(2, (1, 2)).structure


def test_split_in_every_precision(dtype, device):
    structure = Structure.tucker((5, 5, 5, 5), 3)
    net = random_network(structure, 0, dtype).to(device)
    after = net.split_node(4, (0, 1, 2))
    assert {(c.dtype, c.device.type) for c in after.cores} == {(dtype, device)}
    assert_close(after.to_dense(), dense(structure, net.cores), 10 * TOLERANCE[dtype])


def test_split_with_a_deficient_environment(dtype):
    # Two bonds of one neighbour carry the same vector: its Gram is singular to rounding.
    structure = Structure((4, 4, 4), {(0, 1): 3, (1, 2): 3})
    cores = [c.clone() for c in random_network(structure, 1, dtype).cores]
    cores[0][:, 2] = cores[0][:, 1]
    net = TensorNetwork(structure, cores)
    after = net.split_node(1, (0, 1))
    # Half the digits may go with the root of a singular Gram, but not more.
    tolerance = 5e-3 if TOLERANCE[dtype] > 1e-6 else 1e-6
    assert_close(after.to_dense(), dense(structure, cores), tolerance)


def test_splitting_the_zero_network(dtype):
    zero = TensorNetwork(RING, [torch.zeros(s, dtype=dtype) for s in RING.core_shapes])
    after = zero.split_node(1, (0, 1))
    assert after.structure.rank(1, 4) == 1
    assert not to_numpy(after.to_dense()).any()


@pytest.mark.parametrize("axes", [(), (0, 1, 2), (1, 2, 0), (3,), (0, 5), (-1,), (0, -1)])
def test_split_refuses_axes_that_make_no_sense(axes):
    net = random_network(RING, 0)
    with pytest.raises(StructureError, match="cannot split"):
        net.split_node(1, axes)


def test_split_refuses_other_nonsense():
    net = random_network(RING, 0)
    with pytest.raises(StructureError, match="does not exist"):
        net.split_node(4, (0,))
    with pytest.raises(StructureError):
        net.split_node(-1, (0,))
    with pytest.raises(StructureError):
        net.split_node(1, (0,), rank=0)
    with pytest.raises(StructureError, match="cannot split"):
        random_network(Structure.rank_one((3, 4)), 0).split_node(0, (0,))


# -- merge -------------------------------------------------------------------------------------------------


@given(st.data())
def test_merging_leaves_the_tensor_unchanged(double, data):
    net = data.draw(networks(double, min_order=2, min_nodes=6, max_internal=2))
    s = net.structure
    absorbed = data.draw(st.integers(s.order, s.num_nodes - 1))
    target = data.draw(st.sampled_from([k for k in range(s.num_nodes) if k != absorbed]))
    after, cores = moves.merge(s, net.cores, target, absorbed)
    assert after == moves.merge_structure(s, target, absorbed)
    assert after.num_nodes == s.num_nodes - 1
    assert [tuple(c.shape) for c in cores] == list(after.core_shapes)
    assert_close(dense(after, cores), dense(s, net.cores), 1e-10)


@pytest.mark.parametrize(
    ("target", "absorbed"), [(0, 3), (1, 3), (2, 3), (4, 3), (0, 4), (3, 4), (1, 4), (2, 4)]
)
def test_merging_with_common_neighbours_by_hand(target, absorbed, double):
    net = random_network(TRIANGLE_AND_HUB, 0, double)
    after = net.merge_nodes(target, absorbed)
    assert_close(after.to_dense(), dense(TRIANGLE_AND_HUB, net.cores), 1e-11)
    number = {k: k - (k > absorbed) for k in range(5)}
    for k in range(5):
        if k in (target, absorbed):
            continue
        joint = TRIANGLE_AND_HUB.rank(target, k) * TRIANGLE_AND_HUB.rank(absorbed, k)
        assert after.structure.rank(number[target], number[k]) == joint


@given(st.data())
def test_splitting_then_merging_gives_the_same_network(double, data):
    net = data.draw(networks(double, min_order=2))
    assume(net.structure.edges)
    node, axes = draw_cut(data, net.structure)
    halves, cores, _ = moves.split(net.structure, net.cores, node, axes)
    whole, cores = moves.merge(halves, cores, node, net.structure.num_nodes)
    assert whole == net.structure
    for a, b in zip(cores, net.cores):
        assert_close(a, b, 1e-10)


def test_merge_refuses_data_legs_and_unknown_nodes():
    net = random_network(TRIANGLE_AND_HUB, 0)
    with pytest.raises(StructureError, match=r"holds a leg of the data.*internal nodes are 3\.\.4"):
        net.merge_nodes(0, 1)
    with pytest.raises(StructureError, match="does not exist"):
        net.merge_nodes(0, 5)
    with pytest.raises(StructureError, match="different nodes"):
        net.merge_nodes(3, 3)


def test_no_move_touches_its_input(double):
    net = random_network(TRIANGLE_AND_HUB, 0, double)
    before = [c.clone() for c in net.cores]
    net.grow_edge(0, 4, random_state=0)
    net.shrink_edge(1, 2)
    net.split_node(3, (0, 1))
    net.merge_nodes(0, 3)
    net.balanced()
    assert all(torch.equal(a, b) for a, b in zip(net.cores, before))
    assert net.structure == TRIANGLE_AND_HUB


# -- adding a term -----------------------------------------------------------------------------------------


@given(st.data())
def test_a_term_is_added_along_a_spanning_tree(double, data):
    network = data.draw(networks(double, min_order=2))
    structure = network.structure
    n = structure.num_nodes
    tree = {(data.draw(st.integers(0, k - 1)), k) for k in range(1, n)}
    rng = np.random.default_rng(data.draw(seeds))
    vectors = [random_array(rng, (structure.leg_dim(k),), double) for k in range(n)]
    vectors[structure.order :] = [torch.ones(1, dtype=double)] * (n - structure.order)
    grown, cores = moves.add_term(structure, network.cores, vectors, tree)
    assert {e for e in combinations(range(n), 2) if grown.rank(*e) > structure.rank(*e)} == tree
    term = to_numpy(vectors[0])
    for vector in vectors[1 : structure.order]:
        term = np.multiply.outer(term, to_numpy(vector))
    expected = dense(structure, network.cores) + term
    assert_close(dense(grown, cores), expected, TOLERANCE[double], np.linalg.norm(expected))


def test_several_edges_grow_like_one_after_the_other():
    structure = Structure((2, 3, 2, 3), {(0, 1): 2, (1, 2): 2})
    network = TensorNetwork.random(structure, random_state=0)
    generator = torch.Generator().manual_seed(0)

    def pair(i, j):
        sizes = [structure.leg_dim(a) * structure.bond_product(a, without=b) for a, b in ((i, j), (j, i))]
        return tuple(torch.randn(s, generator=generator, dtype=torch.float64) for s in sizes)

    for edges in ([(0, 1)], [(0, 3)], [(0, 1), (2, 3)]):  # edges without a common node do not meet
        slices = {e: pair(*e) for e in edges}
        one = network
        for e in edges:
            one = one.grow_edge(*e, slices=slices[e])
        together = TensorNetwork(*moves.grow_many(structure, network.cores, slices))
        assert together.structure == one.structure
        assert torch.allclose(together.to_dense(), one.to_dense())
    # At a common node the products of two new slices are left out.
    slices = {(0, 1): pair(0, 1), (1, 2): pair(1, 2), (1, 3): pair(1, 3)}
    together = TensorNetwork(*moves.grow_many(structure, network.cores, slices)).to_dense()
    alone = sum(network.grow_edge(*e, slices=s).to_dense() - network.to_dense() for e, s in slices.items())
    assert torch.allclose(together, network.to_dense() + alone)
    linked = TensorNetwork(*moves.grow_many(structure, network.cores, slices, passing=[0, 1]))
    assert int((linked.cores[1] == 1.0).sum()) == 1  # three grown edges meet here
    assert torch.equal(linked.cores[0], moves.grow_many(structure, network.cores, slices)[1][0])


@given(st.data())
def test_parting_a_component_gives_the_tensor_of_growing(double, data):
    net = data.draw(networks(double, min_order=2))
    s = net.structure
    i, j = data.draw(st.sampled_from(pairs_of(s)))
    rng = np.random.default_rng(data.draw(seeds))
    slices = [random_array(rng, z.shape, double) for z in zero_slices(s, i, j)]
    grown, cores = moves.grow(s, net.cores, i, j, *slices)
    parted, others = moves.part(s, net.cores, i, j, *slices)
    assert parted == grown
    expected = dense(grown, cores)
    assert_close(dense(parted, others), expected, 1e-10, scale=np.linalg.norm(expected) + 1.0)


def test_small_slices_leave_positive_cores_positive():
    s = Structure.tensor_ring((4, 3, 5), 2)
    cores = [c.abs() + 0.1 for c in random_network(s, 0).cores]
    slices = [
        1e-3 * random_array(np.random.default_rng(0), z.shape, torch.float64) for z in zero_slices(s, 0, 1)
    ]
    assert any((x < 0).any() for x in slices)
    _, parted = moves.part(s, cores, 0, 1, *slices)
    assert all((c > 0).all() for c in parted)


def test_zeros_cannot_be_parted():
    s = Structure.tensor_train((3, 4), 2)
    zero = [torch.zeros(shape, dtype=torch.float64) for shape in s.core_shapes]
    slices = [torch.ones(3), torch.ones(4)]
    grown, cores = moves.grow(s, zero, 0, 1, *slices)
    assert all(map(torch.equal, moves.part(s, zero, 0, 1, *slices)[1], cores))
    one = random_network(s, 0).cores
    parted = moves.part(s, one, 0, 1, torch.zeros(3), torch.ones(4))[1]
    assert_close(dense(grown, parted), dense(s, one), 1e-12)
