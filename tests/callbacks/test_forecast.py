from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.callbacks.forecast import describe_seconds, outlook, remaining_seconds
from tensorgrow.search import Limits


def steps(errors, sizes, seconds, held_out=False):
    structure = tg.Structure.rank_one((2, 2))
    return [
        tg.Step(k, "grow", (0, 1), n, e, e, e if held_out else None, t, structure)
        for k, (e, n, t) in enumerate(zip(errors, sizes, seconds))
    ]


TIMES = np.arange(1.0, 13.0)


@pytest.mark.parametrize("held_out", [False, True])
@given(power=st.floats(0.2, 2.0), target=st.floats(0.01, 0.05))
def test_errors_that_fall_like_a_power_of_time(held_out, power, target):
    history = steps(TIMES**-power, range(10, 22), TIMES, held_out)
    left = remaining_seconds(history, Limits(max_error=target), 12.0)
    expected = target ** (-1 / power) - 12.0
    assert left is None if expected <= 0 else left == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_sizes_and_steps_and_time():
    history = steps(1 / TIMES, 100 * TIMES.astype(int), TIMES)
    assert remaining_seconds(history, Limits(max_parameters=2000), 12.0) == pytest.approx(8.0)
    assert remaining_seconds(history, Limits(max_steps=15), 12.0) == pytest.approx(3.0)
    assert remaining_seconds(history, Limits(max_seconds=20.0), 12.5) == 7.5
    limits = Limits(max_seconds=20.0, max_parameters=1400)
    assert remaining_seconds(history, limits, 12.0) == pytest.approx(2.0)  # the first limit that is met
    assert remaining_seconds(history, Limits(max_seconds=5.0), 12.0) == 0.0


def test_nothing_is_said_too_early_or_without_progress():
    assert remaining_seconds([], Limits(max_error=0.1), 0.0) is None
    assert remaining_seconds([], Limits(max_seconds=3.0), 1.0) == 2.0
    few = steps([0.9, 0.8, 0.7], [1, 2, 3], [1.0, 2.0, 3.0])
    assert remaining_seconds(few, Limits(max_error=0.1), 3.0) is None
    flat = steps([0.5] * 12, [7] * 12, TIMES)
    assert remaining_seconds(flat, Limits(max_error=0.1, max_parameters=100), 12.0) is None
    assert remaining_seconds(few, Limits(held_out=True), 3.0) is None


def test_only_the_growth_under_way_counts():
    first = steps([0.1] * 6, [500] * 6, np.arange(1.0, 7.0))
    second = [
        tg.Step(**{**s.__dict__, "start": 1, "index": s.index + 6, "seconds": s.seconds + 6})
        for s in steps(1 / TIMES, 100 * TIMES.astype(int), TIMES)
    ]
    second[0] = replace(second[0], kind="start", edge=None)
    left = remaining_seconds([*first, *second], Limits(max_parameters=2000), 18.0)
    assert left == pytest.approx(8.0)


def test_once_the_goal_is_reached_only_a_limit_of_time_is_known():
    history = steps(1 / TIMES, range(10, 22), TIMES)
    assert remaining_seconds(history, Limits(max_error=0.1), 12.0) is None
    met = "target met, making it smaller; Ctrl-C keeps it"
    assert outlook(history, Limits(max_error=0.1), 12.0) == met
    limits = Limits(max_error=0.1, max_seconds=20.0)
    assert (
        outlook(history, limits, 12.0) == "target met, making it smaller; Ctrl-C keeps it, at most 8 s left"
    )
    assert outlook(history, Limits(max_error=0.05), 12.0) == "about 8 s left"
    assert outlook([], Limits(max_error=0.05), 1.0) == ""


def test_runs_that_end_when_the_held_out_error_rises():
    falling = steps(1 / TIMES, range(10, 22), TIMES, held_out=True)
    limits = Limits(held_out=True)
    assert outlook(falling, limits, 12.0, 8) == "at least 8 s left"
    assert outlook(falling[:3], limits, 12.0, 8) == ""
    errors = [*(1 / TIMES[:9]), 0.2, 0.3, 0.4]
    rising = steps(errors, range(10, 22), TIMES, held_out=True)
    assert outlook(rising, limits, 12.0, 8) == "about 5 s left unless it falls again"
    assert outlook(rising, Limits(held_out=True, max_seconds=20.0), 12.0, 8) == "at most 8 s left"
    last = steps([0.1], [10], [13.0])  # fitted to everything, nothing is held out
    assert outlook([*rising, *last], limits, 13.0, 8) == ""


def test_durations_in_words():
    assert [describe_seconds(t) for t in (0.1, 12.4, 80, 100, 4000, 10000, 1e7)] == [
        *("1 s", "12 s", "80 s", "2 min", "67 min", "3 h", "days")
    ]
