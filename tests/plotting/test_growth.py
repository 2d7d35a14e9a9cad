from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.plotting.growth import as_rivals, main_growth, network_at, pick_evenly


def test_rivals_are_checked():
    assert as_rivals({"a": (2, 0.5), "b": [(3, 1), (1, 2)]}) == {
        "a": [(2.0, 0.5)],
        "b": [(1.0, 2.0), (3.0, 1.0)],
    }
    assert as_rivals(None) == {}
    for bad in (3, (1, 2, 3), [(1, math.nan)], "text", [[(1, 2)]], []):
        with pytest.raises(tg.OptionError, match=r"rivals\['x'\]"):
            as_rivals({"x": bad})
    with pytest.raises(tg.OptionError, match="mapping"):
        as_rivals([("x", 1)])


@given(st.integers(1, 300), st.integers(2, 50))
def test_thinning_keeps_the_ends(count, most):
    kept = pick_evenly(range(count), most)
    assert len(kept) == min(count, most)
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert kept == sorted(set(kept))


def test_the_network_of_a_step(grown):
    last = grown.history[-1]
    assert network_at(grown, last).network is grown.network
    for step in grown.history:
        point = network_at(grown, step)
        assert point.num_parameters <= step.num_parameters
        better = point.error <= step.relative_error * (1 + 1e-6)
        assert better or point.num_parameters < step.num_parameters


def test_the_growth_that_led_to_the_result(grown):
    begin, *_, end = grown.history
    worse = dataclasses.replace(end, relative_error=2 * end.relative_error, start=1, index=len(grown.history))
    two = dataclasses.replace(grown, history=(*grown.history, dataclasses.replace(begin, start=1), worse))
    assert main_growth(two) == 0
    assert main_growth(dataclasses.replace(two, errors=tg.Errors(worse.relative_error))) == 1
    assert main_growth(dataclasses.replace(grown, history=())) == 0
