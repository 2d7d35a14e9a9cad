from __future__ import annotations

import copy
import json
import math
import pickle
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.errors import OptionError, StructureError, TensorgrowError, check_choice
from tensorgrow.structure import Structure
from tests.strategies import structures


def test_docstring_example():
    s = Structure((7, 7, 7), {(0, 1): 2, (1, 2): 3})
    assert s.num_parameters == 7 * 2 + 7 * 2 * 3 + 7 * 3
    assert s.core_shape(1) == (7, 2, 3)
    assert s.order == 3
    assert s.num_entries == 343
    assert s.compression_ratio == 343 / 77


@given(structures())
def test_ranks_of_one_are_the_same_as_no_edge(s):
    explicit = {(i, j): s.rank(i, j) for i, j in combinations(range(s.num_nodes), 2)}
    again = Structure(s.dims, explicit, num_nodes=s.num_nodes)
    assert again == s
    assert hash(again) == hash(s)
    assert all(r > 1 for r in again.ranks.values())


@given(structures())
def test_edge_direction_does_not_matter(s):
    turned = Structure(s.dims, {(j, i): r for (i, j), r in s.ranks.items()}, num_nodes=s.num_nodes)
    assert turned == s
    for (i, j), r in s.ranks.items():
        assert s.rank(i, j) == s.rank(j, i) == r


@given(structures())
def test_shapes_follow_from_ranks(s):
    total = 0
    for k in range(s.num_nodes):
        others = [j for j in range(s.num_nodes) if j != k and s.rank(k, j) > 1]
        leg = s.dims[k] if k < len(s.dims) else 1
        assert s.neighbours[k] == tuple(others)
        assert s.core_shape(k) == (leg, *(s.rank(k, j) for j in others))
        assert s.bond_product(k) == math.prod(s.rank(k, j) for j in others)
        assert s.is_internal(k) == (k >= s.order) == (k in s.internal_nodes)
        for j in others:
            assert s.core_shape(k)[s.axis(k, j)] == s.rank(k, j)
            assert s.bond_product(k, without=j) * s.rank(k, j) == s.bond_product(k)
        total += math.prod(s.core_shape(k))
    assert s.num_parameters == total
    assert list(s.edges) == sorted(s.ranks)


@given(structures(min_order=2), st.data())
def test_growth_cost_is_the_difference_in_parameters(s, data):
    i, j = data.draw(st.sampled_from(list(combinations(range(s.num_nodes), 2))))
    grown = s.with_rank(i, j, s.rank(i, j) + 1)
    assert grown.num_parameters - s.num_parameters == s.growth_cost(i, j)
    assert grown.rank(i, j) == s.rank(i, j) + 1
    assert {e: r for e, r in grown.ranks.items() if e != (i, j)} == {
        e: r for e, r in s.ranks.items() if e != (i, j)
    }
    assert grown.with_rank(j, i, s.rank(i, j)) == s


@given(structures(min_order=2), st.data())
def test_useful_rank_is_what_the_weaker_end_carries(s, data):
    i, j = data.draw(st.sampled_from(list(combinations(range(s.num_nodes), 2))))
    ends = [math.prod(s.with_rank(i, j, 1).core_shape(k)) for k in (i, j)]
    assert s.useful_rank(i, j) == s.useful_rank(j, i) == min(ends)


@given(structures())
def test_plain_data_pickle_and_copies_round_trip(s):
    assert Structure.from_dict(json.loads(json.dumps(s.to_dict()))) == s
    for again in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), copy.copy(s)):
        assert again == s
        assert hash(again) == hash(s)
    assert eval(repr(s), {"Structure": Structure}) == s


@given(structures(), structures())
def test_equality_is_equality_of_the_content(a, b):
    same = (a.dims, a.num_nodes, dict(a.ranks)) == (b.dims, b.num_nodes, dict(b.ranks))
    assert (a == b) is same
    assert a != (a.dims, a.num_nodes)


def test_structures_that_differ_in_one_thing_differ():
    s = Structure((2, 3), {(0, 1): 2})
    assert s != Structure((3, 2), {(0, 1): 2})
    assert s != Structure((2, 3), {(0, 1): 3})
    assert s != Structure((2, 3), {(0, 1): 2}, num_nodes=3)


def test_ranks_cannot_be_written():
    s = Structure((2, 3), {(0, 1): 2})
    with pytest.raises(TypeError):
        s.ranks[0, 1] = 3


@given(structures(min_order=2, max_internal=2), st.randoms())
def test_relabelling_internal_nodes(s, random):
    internal = list(range(s.order, s.num_nodes))
    shuffled = internal[:]
    random.shuffle(shuffled)
    mapping = {k: k for k in range(s.order)} | dict(zip(internal, shuffled))
    renamed = s.relabel(mapping, s.num_nodes)
    for i, j in combinations(range(s.num_nodes), 2):
        assert renamed.rank(mapping[i], mapping[j]) == s.rank(i, j)
    assert renamed.num_parameters == s.num_parameters


# -- formats with a name -------------------------------------------------------------------------------


def test_rank_one():
    s = Structure.rank_one((2, 3, 4))
    assert s.edges == ()
    assert s.num_parameters == 9


def test_tensor_train():
    s = Structure.tensor_train((7,) * 5, (2, 3, 6, 5))
    assert dict(s.ranks) == {(0, 1): 2, (1, 2): 3, (2, 3): 6, (3, 4): 5}
    assert s.num_parameters == 7 * (2 + 6 + 18 + 30 + 5)
    assert Structure.tensor_train((3, 4), 2) == Structure((3, 4), {(0, 1): 2})
    assert Structure.tensor_train((3,), ()) == Structure((3,))


def test_tensor_ring():
    s = Structure.tensor_ring((4, 5, 6), (2, 3, 7))
    assert dict(s.ranks) == {(0, 1): 2, (1, 2): 3, (0, 2): 7}
    assert Structure.tensor_ring((2,) * 6, 3).num_parameters == 6 * 2 * 9


def test_tucker():
    s = Structure.tucker((4, 5, 6), (2, 3, 4))
    assert dict(s.ranks) == {(0, 3): 2, (1, 3): 3, (2, 3): 4}
    assert s.num_nodes == 4
    assert s.internal_nodes == (3,)
    assert s.num_parameters == 8 + 15 + 24 + 24


def test_hierarchical_tucker():
    s = Structure.hierarchical_tucker((4,) * 4, 2)
    assert dict(s.ranks) == {(0, 4): 2, (1, 4): 2, (2, 5): 2, (3, 5): 2, (4, 6): 2, (5, 6): 2}
    assert s.internal_nodes == (4, 5, 6)
    ranks = (2, 3, 4, 5, 6, 7)
    assert Structure.hierarchical_tucker((4,) * 4, ranks).rank(5, 6) == 7


@given(st.integers(2, 12))
def test_hierarchical_tucker_is_a_binary_tree(p):
    s = Structure.hierarchical_tucker((2,) * p, 2)
    assert s.num_nodes == 2 * p - 1
    assert len(s.edges) == s.num_nodes - 1
    reached, frontier = {0}, [0]
    while frontier:
        frontier = [j for k in frontier for j in s.neighbours[k] if j not in reached]
        reached.update(frontier)
    assert len(reached) == s.num_nodes
    degrees = [len(x) for x in s.neighbours]
    assert degrees[:p] == [1] * p
    assert degrees[p:-1] == [3] * (p - 2)
    assert degrees[-1] == 2


def test_complete():
    s = Structure.complete((2, 3, 4, 5), 3)
    assert s.edges == tuple(combinations(range(4), 2))
    assert s.num_parameters == 27 * (2 + 3 + 4 + 5)


@pytest.mark.parametrize(
    ("make", "count"), [(Structure.tensor_train, 2), (Structure.tensor_ring, 3), (Structure.tucker, 3)]
)
def test_numpy_arrays_of_integers_are_understood(make, count):
    s = make(tuple(np.array([3, 4, 5])), np.full(count, 2))
    assert s == make((3, 4, 5), 2)
    assert json.dumps(s.to_dict()) == json.dumps(make((3, 4, 5), 2).to_dict())


@pytest.mark.parametrize("make", [Structure.tensor_train, Structure.tensor_ring, Structure.tucker])
def test_one_numpy_integer_is_a_rank_for_all(make):
    assert make((3, 4, 5), np.int64(2)) == make((3, 4, 5), 2)


def test_internal_nodes_are_added_by_naming_them():
    s = Structure((2, 3), {(0, 4): 2})
    assert s.num_nodes == 5
    assert s.internal_nodes == (2, 3, 4)
    assert s.core_shapes == ((2, 2), (3,), (1,), (1,), (1, 2))


def test_a_mode_of_size_one_is_not_internal():
    s = Structure((1, 3, 1), {(0, 1): 2, (2, 3): 2})
    assert s.leg_dims == (1, 3, 1, 1)
    assert s.internal_nodes == (3,)
    assert [s.is_internal(k) for k in range(4)] == [False, False, False, True]
    assert Structure.rank_one((1,)).internal_nodes == ()


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Structure(()), "empty"),
        (lambda: Structure((0, 2)), "at least 1"),
        (lambda: Structure((2, -1)), "at least 1"),
        (lambda: Structure((2.5, 2)), "whole number"),
        (lambda: Structure((2, 2), {(0, 1): 0}), "rank of edge"),
        (lambda: Structure((2, 2), {(0, 1): 1.5}), "rank of edge"),
        (lambda: Structure((2, 2), {(0, 0): 2}), "different nodes"),
        (lambda: Structure((2, 2), {(-1, 0): 2}), "numbered from 0"),
        (lambda: Structure((2, 2), {(0, 1, 2): 2}), "pair of nodes"),
        (lambda: Structure((2, 2), {(0, 1): 2, (1, 0): 3}), "twice"),
        (lambda: Structure((2, 2), num_nodes=1), "num_nodes=1"),
        (lambda: Structure((2, 2), {(0, 3): 2}, num_nodes=3), "num_nodes=3"),
        (lambda: Structure.tensor_train((2, 2, 2), (2,)), "2 ranks"),
        (lambda: Structure.tensor_ring((2, 2), 2), "at least 3"),
        (lambda: Structure.tensor_ring((2, 2, 2), (2, 2)), "3 ranks"),
        (lambda: Structure.tucker((2, 2), (2,)), "2 ranks"),
        (lambda: Structure.hierarchical_tucker((2,), 2), "at least 2"),
        (lambda: Structure((2, 2)).with_rank(0, 2, 2), "does not exist"),
        (lambda: Structure((2, 2)).with_rank(1, 1, 2), "different nodes"),
        (lambda: Structure((2, 2)).with_rank(0, 1, 0), "rank of edge"),
        (lambda: Structure((2, 2)).useful_rank(0, 7), "does not exist"),
        (lambda: Structure.from_dict({"dims": [2]}), "not a structure"),
        (lambda: Structure.from_dict({"dims": 2, "ranks": [], "num_nodes": 1}), "not a structure"),
        (lambda: Structure.from_dict({"dims": [2, 2], "ranks": [[0, 1]], "num_nodes": 2}), "not a structure"),
        (lambda: Structure.from_dict({"dims": ["x"], "ranks": [], "num_nodes": 1}), "not a structure"),
    ],
)
def test_nonsense_is_refused_with_a_reason(make, words):
    with pytest.raises(StructureError, match=words):
        make()


def test_errors_are_also_the_builtin_kind():
    with pytest.raises(ValueError):
        Structure(())
    with pytest.raises(TensorgrowError):
        Structure(())


def test_check_choice():
    check_choice("effort", "fast", ("fast", "slow"))
    with pytest.raises(OptionError, match=r"effort='quick'.*'fast', 'slow'"):
        check_choice("effort", "quick", ("fast", "slow"))
