from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tensorgrow import Structure
from tensorgrow.search import EdgePolicy
from tests.search.factories import cost, unsaturated


def test_edge_policies():
    assert EdgePolicy.parse("all", 4).pairs is None
    assert EdgePolicy.parse("chain", 4).pairs == {(0, 1), (1, 2), (2, 3)}
    assert EdgePolicy.parse("ring", 4).pairs == {(0, 1), (1, 2), (2, 3), (0, 3)}
    assert EdgePolicy.parse("ring", 2).pairs == {(0, 1)}
    assert EdgePolicy.parse("ring", 1).pairs == EdgePolicy.parse("chain", 1).pairs == set()
    assert EdgePolicy.parse([(2, 0), (0, 2)], 3).pairs == {(0, 2)}


@pytest.mark.parametrize("seed", range(4))
def test_growable_edges_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    ranks = {e: int(rng.integers(1, 5)) for e in combinations(range(5), 2)}
    structure = Structure((2, 3, 4, 2), ranks)
    room = int(rng.integers(5, 200))
    policy = EdgePolicy.parse("all", 4)
    assert policy.growable(structure) == unsaturated(structure)
    assert policy.growable(structure, structure.num_parameters + room) == [
        e for e in unsaturated(structure) if cost(structure, *e) <= room
    ]
