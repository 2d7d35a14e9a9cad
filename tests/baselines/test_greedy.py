"""The paper's preset, and random growth."""

from __future__ import annotations

from itertools import pairwise

import tensorgrow as tg
from tensorgrow import baselines

from .tensors import noise, planted


def test_the_random_walk_grows_edge_by_edge_and_repeats():
    x = planted(tg.Structure.tensor_ring((4,) * 4, 2))
    r, again = (baselines.random_walk(x, max_error=1e-3, max_parameters=150, random_state=4) for _ in "ab")
    assert [s.structure for s in r.history] == [s.structure for s in again.history]
    assert r.history[0].kind == "start"
    assert all(s.kind == "grow" and s.edge is not None for s in r.history[1:])
    errors = [s.relative_error for s in r.history]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(errors))
    edges = {baselines.random_walk(x, max_parameters=24, random_state=k).history[1].edge for k in range(12)}
    assert len(edges) >= 4  # of 6


def test_greedy_is_the_preset_of_the_paper():
    x = planted(tg.Structure.tensor_train((4,) * 4, 2))
    r = baselines.greedy(x, max_error=1e-4, random_state=0)
    same = tg.decompose(x, max_error=1e-4, random_state=0, options=tg.GreedyOptions.paper())
    assert r.structure == same.structure
    assert r.info["options"]["edge_score"] == "drop"


def test_the_random_walk_ends_where_it_outgrows_the_data():
    x = noise(dims=(3, 1, 4, 1, 2))
    r = baselines.random_walk(x, max_error=1e-6, random_state=0)
    assert r.stop == tg.StopReason.FINISHED
    assert max(s.num_parameters for s in r.history) <= x.size
