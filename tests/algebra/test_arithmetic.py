"""Sums, products and multiples of networks against those of their tensors."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensorgrow.algebra import arithmetic
from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.conftest import DTYPES
from tests.oracles import TOLERANCE, assert_close, dense, magnitude, random_network
from tests.strategies import networks, seeds, structures, trees

TRAIN = Structure.tensor_train((3, 4, 2, 3), 2)
RING = Structure.tensor_ring((3, 4, 2, 3), (2, 3, 2, 3))
TUCKER = Structure.tucker((3, 4, 2, 3), 2)
TREE = Structure.hierarchical_tucker((3, 4, 2, 3), 2)
LONE = Structure((3, 4, 2, 3), {(0, 5): 2, (2, 5): 3}, num_nodes=7)  # nodes that nothing is joined to


@st.composite
def pairs(draw, dtype, kind=structures, **limits):
    """Two networks over the same legs."""
    first = draw(kind(**limits))
    limits |= {"min_order": first.order, "max_order": first.order}
    second = draw(kind(**limits)).with_dims(first.dims)
    return tuple(random_network(s, draw(seeds), dtype) for s in (first, second))


def check(result: TensorNetwork, expected: np.ndarray, size: float) -> None:
    """Equal up to rounding errors of numbers of a size."""
    assert_close(to_array(result), expected, TOLERANCE[result.dtype], size)


def to_array(network: TensorNetwork) -> np.ndarray:
    return dense(network.structure, network.cores)


@settings(max_examples=60)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_sums_differences_and_products_are_those_of_the_tensors(data, dtype):
    x, y = data.draw(pairs(dtype))
    a, b = to_array(x), to_array(y)
    check(x + y, a + b, magnitude(x) + magnitude(y))
    check(x - y, a - b, magnitude(x) + magnitude(y))
    check(x * y, a * b, magnitude(x) * magnitude(y))
    assert {(x + y).dtype, (x * y).dtype} == {dtype}


@given(data=st.data(), large=st.sampled_from([1, 8, 30]))
def test_no_core_need_be_large(data, large):
    x, y = data.draw(pairs(torch.float64))
    a, b = to_array(x), to_array(y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arithmetic, "LARGE_CORE", large)
        check(x + y, a + b, magnitude(x) + magnitude(y))
        check(x * y, a * b, magnitude(x) * magnitude(y))


@given(
    x=networks(torch.complex128),
    factor=st.complex_numbers(min_magnitude=1e-3, max_magnitude=1e3, allow_subnormal=False),
)
def test_multiples(x, factor):
    a, size = to_array(x), magnitude(x)
    check(factor * x, factor * a, abs(factor) * size)
    check(x / factor, a / factor, size / abs(factor))
    check(x + factor, a + factor, size + abs(factor) * a.size)
    check(factor - x, factor - a, size + abs(factor) * a.size)
    check(-x, -a, size)
    check(x.conj(), a.conj(), size)


def test_real_and_complex_networks_of_one_precision_can_be_combined():
    x, y = random_network(RING, 0), random_network(TREE, 1, torch.complex128)
    a, b = to_array(x), to_array(y)
    for result, expected in (
        (x + y, a + b),
        (y - x, b - a),
        (x * y, a * b),
        (x * 2j, 2j * a),
        (x + 1j, a + 1j),
    ):
        assert result.dtype == torch.complex128
        check(result, expected, magnitude(x) * magnitude(y))
    assert (x.to(dtype=torch.float32) * 2j).dtype == torch.complex64


# -- the graph of a result ---------------------------------------------------------------------------------


def joins_all(structure: Structure) -> bool:
    reached = [0]
    for k in reached:
        reached += [j for j in structure.neighbours[k] if j not in reached]
    return len(reached) == structure.num_nodes


@given(data=st.data())
def test_a_sum_has_the_edges_of_both_and_at_most_the_sum_of_their_ranks(data):
    x, y = data.draw(pairs(torch.float64, max_internal=0))
    union = Structure(x.shape, dict.fromkeys((*x.structure.edges, *y.structure.edges), 2))
    assume(joins_all(union))
    total = (x + y).structure
    assert total.edges == union.edges
    raised = []
    for i, j in total.edges:
        ranks = x.structure.rank(i, j), y.structure.rank(i, j)
        assert total.rank(i, j) in (max(ranks), sum(ranks))
        raised += [(i, j)] * (total.rank(i, j) == sum(ranks))
    assert len(raised) == total.order - 1  # a spanning tree
    assert joins_all(Structure(x.shape, dict.fromkeys(raised, 2)))


@given(data=st.data())
def test_hardly_any_other_spanning_tree_makes_a_sum_smaller(data):
    x, y = data.draw(pairs(torch.float64, max_internal=0, min_order=3, max_order=4))
    edges = list(combinations(range(x.ndim), 2))
    ranks = {e: (x.structure.rank(*e), y.structure.rank(*e)) for e in edges}
    union = {e for e, pair in ranks.items() if max(pair) > 1}
    sums = []
    for tree in combinations(edges, x.ndim - 1):
        if joins_all(Structure(x.shape, dict.fromkeys(tree, 2))):
            raised = {e: sum(pair) if e in tree else max(pair) for e, pair in ranks.items()}
            sums.append((len({*tree} - union), Structure(x.shape, raised).num_parameters))
    assert (x + y).num_parameters <= 1.1 * min(sums)[1]  # with as few new edges as possible


@given(x=networks(torch.float64, trees), seed=seeds)
def test_ranks_add_in_a_sum_over_the_same_tree(x, seed):
    total = (x + random_network(x.structure, seed)).structure
    assert total.ranks == {edge: 2 * rank for edge, rank in x.structure.ranks.items()}
    assert total.num_nodes == x.structure.num_nodes


@given(data=st.data())
def test_ranks_multiply_in_a_product(data):
    x, y = data.draw(pairs(torch.float64, max_internal=0))
    product = (x * y).structure
    for i in range(x.ndim):
        for j in range(i + 1, x.ndim):
            assert product.rank(i, j) == x.structure.rank(i, j) * y.structure.rank(i, j)


@pytest.mark.parametrize("structure", [RING, Structure.complete((3, 3, 3, 3), 2)])
def test_one_edge_of_a_cycle_keeps_its_rank(structure):
    x, y = (random_network(structure, k) for k in range(2))
    total = (x + y).structure
    same = [e for e in structure.edges if total.ranks[e] == structure.ranks[e]]
    assert len(same) == len(structure.edges) - structure.order + 1
    whole = structure
    for i, j in structure.edges:
        whole = whole.with_rank(i, j, 2 * structure.rank(i, j))
    assert total.num_parameters < whole.num_parameters


def test_sums_of_rank_one_are_joined_at_their_smallest_cores():
    x, y = (random_network(Structure.rank_one((100, 2, 100, 100)), k) for k in range(2))
    total = x + y
    check(total, to_array(x) + to_array(y), magnitude(x) + magnitude(y))
    assert total.structure.ranks == {(0, 1): 2, (1, 2): 2, (1, 3): 2}
    many = sum(random_network(Structure.rank_one((5,) * 30), k) for k in range(8))
    assert many.num_parameters <= 30 * 5 * 8 * 8  # a train of rank 8


@pytest.mark.parametrize("structure", [TUCKER, TREE])
def test_internal_nodes_that_correspond_become_one(structure):
    renamed = structure.relabel(
        dict(zip(range(structure.num_nodes), (*range(4), *reversed(structure.internal_nodes)))),
        structure.num_nodes,
    )
    x, y = random_network(structure, 0), random_network(renamed, 1)
    total = x + y
    check(total, to_array(x) + to_array(y), magnitude(x) + magnitude(y))
    assert total.structure.ranks == dict.fromkeys(structure.edges, 4)


def test_internal_nodes_that_do_not_are_carried_side_by_side():
    x, y, z = (random_network(s, k) for k, s in enumerate((TUCKER, TREE, LONE)))
    for a, b in ((x, y), (y, z), (z, x), (z, z)):
        check(a + b, to_array(a) + to_array(b), magnitude(a) + magnitude(b))
        assert (a * b).structure.num_nodes == a.structure.num_nodes + b.structure.num_nodes - 4
    assert (x + y).structure.num_nodes == 4 + 1 + 3
    assert not [k for k in (z + z).structure.internal_nodes if not (z + z).structure.neighbours[k]]


def test_the_product_of_wide_trains_does_not_square_their_ranks():
    wide = Structure.tensor_train((2,) * 60, 50)
    x, y = (TensorNetwork.random(wide, random_state=k) for k in range(2))
    product = x * y
    assert product.num_parameters < 3 * wide.num_parameters
    assert math.isclose(float(product.sum()), x.inner(y), rel_tol=1e-9)


# -- numbers -----------------------------------------------------------------------------------------------


def test_cores_of_any_size_take_numbers_of_any_size():
    cores = [1e-200 * torch.ones(2, 2, dtype=torch.float64), 1e200 * torch.ones(2, 2, dtype=torch.float64)]
    x = TensorNetwork(Structure((2, 2), {(0, 1): 2}), cores)
    for y in (x * 1e200 * 1e-200, x / 1e200 / 1e-200, (x * 1e-305) / 1e-305, x / 1e-310 * 1e-310):
        assert_close(to_array(y), np.full((2, 2), 2.0), 1e-9)
    assert_close(to_array(x * 0), np.zeros((2, 2)), 0.0)


@pytest.mark.parametrize("structure", [TRAIN, RING, TUCKER])
def test_a_network_less_itself_is_zero(structure):
    x = random_network(structure, 0)
    assert (x - x).norm() <= 1e-7 * x.norm()
    assert np.abs(to_array(x - x)).max() <= 1e-14 * magnitude(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(dtype):
    first = Structure((2, 1, 2), {(0, 1): 2, (1, 3): 2, (2, 3): 2})
    second = Structure((2, 1, 2), {(0, 2): 2, (0, 1): 2, (1, 2): 2}, num_nodes=4)
    x, y = (random_network(s, k, dtype) for k, s in enumerate((first, second)))

    def compute(factor, *cores):
        a, b = TensorNetwork(first, cores[:4]), TensorNetwork(second, cores[4:])
        return (factor * (a + b) - a * b.conj() / factor).to_dense()

    inputs = [torch.tensor(0.7, dtype=dtype), *x.cores, *y.cores]
    assert torch.autograd.gradcheck(compute, [c.clone().requires_grad_() for c in inputs], fast_mode=True)


def test_operands_stay_as_they_are():
    x, y = random_network(RING, 0), random_network(TREE, 1)
    before = [c.clone() for c in (*x.cores, *y.cores)]
    _ = x + y, x * y, 3 * x, -y, x / 1e9, x.conj()
    assert all(map(torch.equal, before, (*x.cores, *y.cores)))
