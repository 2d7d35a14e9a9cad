from __future__ import annotations

import pytest

from tensorgrow.contraction import (
    paths,
    sweep_plan,
)
from tensorgrow.contraction.paths import find_path, size_class
from tensorgrow.structure import Structure


def assert_path_is_complete(path, count):
    used = [k for pair in path for k in pair]
    assert len(path) == count - 1
    assert sorted(used) == list(range(2 * count - 2))
    for n, pair in enumerate(path):
        assert max(pair) < count + n


@pytest.mark.parametrize("count", [1, 2, 3, 6, 10, 11, 25])
def test_paths_use_every_operand_once(path_finder, count):
    chain = [(k, k + 1) for k in range(count)]
    assert_path_is_complete(find_path(chain, (0, count), lambda leg: 3), count)
    # Nothing in common, and everything in common with one operand.
    assert_path_is_complete(find_path([(k,) for k in range(count)], range(count), lambda leg: 2), count)
    hub = [tuple(range(count - 1)), *((k,) for k in range(count - 1))]
    assert_path_is_complete(find_path(hub, (), lambda leg: 2 + leg % 3), count)


def test_a_matrix_chain_gets_the_optimal_order(path_finder):
    sizes = [40, 2, 40, 2, 40]  # the cheapest order multiplies (1, 2) first
    path = find_path([(k, k + 1) for k in range(4)], (0, 4), lambda leg: sizes[leg])
    assert sorted(path[0]) == [1, 2]


def test_size_classes_are_half_octaves():
    assert [size_class(s) for s in (1, 2, 3, 4, 6, 8, 16, 1024)] == [0, 2, 3, 4, 5, 6, 8, 20]
    assert all(size_class(a) <= size_class(a + 1) for a in range(1, 200))


def test_growth_within_a_size_class_searches_no_new_path(fresh_plans, monkeypatch):
    searched = []
    rust = paths.rust_finder
    monkeypatch.setattr(paths, "rust_finder", lambda: searched.append(1) or rust())
    sweep_plan(Structure.tensor_ring((7,) * 5, 5), False)
    first = len(searched)
    assert first > 0
    sweep_plan(Structure.tensor_ring((7,) * 5, 6), False)
    assert len(searched) == first
    sweep_plan(Structure.tensor_ring((7,) * 5, 16), False)
    assert len(searched) > first
