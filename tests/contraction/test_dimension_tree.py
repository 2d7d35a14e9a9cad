from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from tensorgrow.contraction.dimension_tree import ALL_SUBSETS_UP_TO, best_tree, leaves
from tensorgrow.structure import Structure
from tests.strategies import structures


def is_binary(tree):
    return isinstance(tree, int) or (len(tree) == 2 and all(is_binary(t) for t in tree))


@given(structures())
def test_best_tree_holds_every_node_once(structure):
    tree = best_tree(structure)
    assert sorted(leaves(tree)) == list(range(structure.num_nodes))
    assert is_binary(tree)


@pytest.mark.parametrize("count", [ALL_SUBSETS_UP_TO, ALL_SUBSETS_UP_TO + 1, 30])
def test_best_tree_on_both_sides_of_the_limit(count):
    tree = best_tree(Structure.tensor_train((2,) * count, 3))
    assert sorted(leaves(tree)) == list(range(count))
    assert is_binary(tree)


@pytest.mark.parametrize("count", [8, 20])
def test_best_tree_halves_a_chain_into_runs(count):
    def runs(tree):
        if not isinstance(tree, int):
            members = sorted(leaves(tree))
            assert members == list(range(members[0], members[-1] + 1))
            for child in tree:
                runs(child)

    shuffled = np.random.default_rng(0).permutation(count)
    chain = Structure((4,) * count, {(int(a), int(b)): 3 for a, b in pairwise(shuffled)})
    place = {int(k): n for n, k in enumerate(shuffled)}

    def rename(tree):
        return place[tree] if isinstance(tree, int) else tuple(rename(t) for t in tree)

    runs(rename(best_tree(chain)))


@pytest.mark.parametrize("make", [Structure.rank_one, lambda dims: Structure.tensor_train(dims, 2)])
def test_trees_of_a_thousand_nodes(make):
    """All intervals of the nodes would take gigabytes."""
    tree = best_tree(make((2,) * 1030))
    assert sorted(leaves(tree)) == list(range(1030))
    deepest, level = 0, [tree]
    while level := [child for node in level if not isinstance(node, int) for child in node]:
        deepest += 1
    assert deepest <= 11
