from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import random_network
from tensorgrow.errors import OptionError
from tensorgrow.io import read_file
from tensorgrow.results import RESULT_KIND, PathPoint, Result, Step, StopReason, add_to_path, best_on_path
from tensorgrow.structure import Structure


def point(size, error):
    return PathPoint(random_network(Structure((size,)), 0), error)


POINTS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=12)


def make_path(points):
    path = []
    for size, error in points:
        add_to_path(path, point(size, error / 10))
    return path


def make_result(dtype=torch.float64):
    structures = [Structure.rank_one((3, 4)), Structure((3, 4), {(0, 1): 2})]
    networks = [random_network(s, k, dtype) for k, s in enumerate(structures)]
    steps = (
        Step(0, "start", None, 7, 2.0, 0.5, None, 0.0, structures[0]),
        Step(1, "grow", (0, 1), 14, 0.4, 0.1, 0.2, 0.1, structures[1], start=2),
    )
    path = tuple(PathPoint(n, e) for n, e in zip(networks, (0.5, 0.1)))
    return Result(networks[1], 0.1, steps, StopReason.TARGET_REACHED, path, {"seed": 3, "options": None})


@given(POINTS)
def test_the_path_keeps_exactly_the_points_no_other_beats(points):
    path = make_path(points)
    found = [(p.num_parameters, p.relative_error) for p in path]
    unbeaten = {
        (s, e / 10) for s, e in points if not any((a <= s and b <= e) and (a, b) != (s, e) for a, b in points)
    }
    assert found == sorted(unbeaten)


@given(POINTS, st.none() | st.integers(0, 9), st.none() | st.integers(1, 9))
def test_best_on_path(points, max_error, max_parameters):
    path = make_path(points)
    limit = None if max_error is None else max_error / 10
    found = best_on_path(path, limit, max_parameters)
    fitting = [
        (s, e / 10)
        for s, e in points
        if (limit is None or e / 10 <= limit) and (max_parameters is None or s <= max_parameters)
    ]
    if not fitting:
        assert found is None
    elif limit is None:
        assert found.relative_error == min(e for _, e in fitting)
    else:
        assert found.num_parameters == min(s for s, _ in fitting)


def test_at_gives_networks_of_the_path():
    result = make_result()
    assert result.at(max_error=0.5).num_parameters == 7
    assert result.at(max_error=0.2).num_parameters == 14
    assert result.at(max_parameters=10).num_parameters == 7
    assert result.at(max_parameters=100).num_parameters == 14
    with pytest.raises(OptionError, match=r"from 7 parameters \(error 0\.5\) to 14 \(error 0\.1\)"):
        result.at(max_error=0.01)
    with pytest.raises(OptionError, match="max_error or max_parameters"):
        result.at()


def test_at_without_a_path_is_a_clear_error():
    result = make_result()
    bare = Result(result.network, 0.1, (), StopReason.CONVERGED)
    with pytest.raises(OptionError):
        bare.at(max_error=0.5)


def test_steps_round_trip_through_json():
    for step in make_result().history:
        assert Step.from_dict(json.loads(json.dumps(step.to_dict()))) == step


def test_results_come_back_from_a_file(tmp_path, dtype):
    result = make_result(dtype)
    result.save(tmp_path / "run")
    again = Result.unpack(*read_file(tmp_path / "run", (RESULT_KIND,)))
    assert again.history == result.history
    assert again.stop is StopReason.TARGET_REACHED
    assert again.relative_error == result.relative_error
    assert dict(again.info) == dict(result.info)
    networks = [(again.network, result.network)]
    networks += [(a.network, b.network) for a, b in zip(again.path, result.path)]
    assert len(again.path) == 2
    for a, b in networks:
        assert a.structure == b.structure
        assert all(torch.equal(x, y) and x.dtype == dtype for x, y in zip(a.cores, b.cores))
    assert [p.relative_error for p in again.path] == [0.5, 0.1]


def test_properties():
    result = make_result()
    assert result.num_parameters == 14
    assert result.structure == result.network.structure
    assert result.compression_ratio == 12 / 14
    assert "14 parameters" in repr(result)
    assert "TARGET_REACHED" in repr(result)
    assert result.stop.text == StopReason.TARGET_REACHED.value
