"""One network of a bounded size for the mean of several: what `effort="thorough"` stands for there."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.losses import as_loss
from tensorgrow.search import HeldOutSearch
from tensorgrow.tasks import distillation
from tensorgrow.tasks.entry_task import EntryTask
from tensorgrow.tasks.observation_task import Observed
from tensorgrow.tasks.request import Request
from tensorgrow.tasks.shapes import is_distilled, to_distil

SIZE = 70
QUIET = {"random_state": 0, "progress": False, "max_parameters": SIZE, "max_steps": 7}


def waves():
    """No network of the size is exact."""
    a = np.meshgrid(*[np.linspace(0.0, 1.0, 6)] * 3, indexing="ij")
    return 2.0 + np.sin(3.0 * a[0] * a[1] + 5.0 * a[2]) + np.abs(a[1] - a[2])


@pytest.fixture(scope="module")
def data():
    x = waves()
    return x, np.random.default_rng(0).random(x.shape) < 0.5


@pytest.fixture(scope="module")
def distilled(data):
    x, mask = data
    return tg.complete(np.where(mask, x, 0.0), mask, truth=x, effort="thorough", **QUIET)


def test_it_is_one_network_within_the_budget(distilled):
    assert not distilled.members and distilled.num_parameters <= SIZE
    assert distilled.history[-1].kind == "distil"
    assert distilled.history[-1].num_parameters == distilled.num_parameters
    assert distilled.history[-1].relative_error == pytest.approx(distilled.relative_error)


def test_it_is_better_than_the_networks_it_was_made_from(data, distilled):
    x, mask = data
    committee = tg.complete(np.where(mask, x, 0.0), mask, truth=x, members=3, **QUIET)
    errors = [m.test_error for m in committee.members]
    assert distilled.test_error < np.mean(errors)
    assert distilled.structure in [m.structure for m in committee.members]


def test_its_errors_are_those_of_its_network(data, distilled):
    x, mask = data
    full = distilled.to_array()
    for where, error in ((mask, distilled.relative_error), (~mask, distilled.test_error)):
        assert error == pytest.approx(np.linalg.norm((full - x)[where]) / np.linalg.norm(x[where]), rel=1e-4)


def test_it_is_saved_and_has_intervals(tmp_path, data, distilled):
    x, mask = data
    distilled.save(tmp_path / "d.safetensors")
    loaded = tg.load(tmp_path / "d.safetensors")
    _, low, high = loaded.predict(np.argwhere(~mask), interval=0.9)
    assert ((low <= x[~mask]) & (x[~mask] <= high)).mean() > 0.8


def test_time_is_left_for_it_and_shared_by_its_fits(data, distilled, monkeypatch):
    x, mask = data
    deadlines = []

    def spy(*arguments, deadline, **more):
        deadlines.append(deadline)
        return als(*arguments, deadline=deadline, **more)

    als = distillation.als
    monkeypatch.setattr(distillation, "als", spy)
    begin = time.perf_counter()
    timed = tg.complete(np.where(mask, x, 0.0), mask, effort="thorough", max_seconds=1e4, **QUIET)
    assert np.array_equal(timed.to_array(), distilled.to_array())  # no limit was met
    assert deadlines == sorted(deadlines) and len(deadlines) == 3
    assert deadlines[0] < begin + 4e3 and 1e4 < deadlines[-1] - begin < 1.1e4


def test_a_run_that_is_out_of_time_is_not_distilled(data):
    x, mask = data
    late = tg.complete(x, mask, effort="thorough", max_seconds=1e-9, **QUIET)
    assert late.stop is tg.StopReason.MAX_SECONDS and not late.members
    assert "distil" not in [s.kind for s in late.history]


def test_fits_that_come_too_late_are_left_out(data, monkeypatch):
    """The first fit takes all the time: what it found is taken, as far as that is nearer to the mean."""
    x, mask = data
    calls = []

    class Clock:
        @staticmethod
        def perf_counter():
            return time.perf_counter() + (1e6 if calls else 0.0)

    def slow(*arguments, **more):
        calls.append(arguments)
        return als(*arguments, **more)

    als = distillation.als
    monkeypatch.setattr(distillation, "als", slow)
    monkeypatch.setattr(distillation, "time", Clock)
    result = tg.complete(x, mask, effort="thorough", max_seconds=1e4, **QUIET)
    assert len(calls) == 1
    assert result.num_parameters <= SIZE and not result.members


@pytest.mark.parametrize(
    "change",
    [{"max_parameters": None}, {"validation": False}, {"loss": "absolute"}, {"options": tg.GreedyOptions()}],
)
def test_otherwise_a_thorough_run_is_one_run(data, change):
    x, mask = data
    short = {**QUIET, "effort": "thorough", "max_steps": 1}
    result = tg.complete(x, mask, **{**short, **change})
    assert "distil" not in [s.kind for s in result.history] and not result.members


@pytest.mark.parametrize("more", [{}, {"members": 2}])
def test_options_of_the_user_are_kept(data, more):
    x, mask = data
    mine = tg.GreedyOptions.for_completion("thorough").replace(final_sweeps=7)
    short = {**QUIET, "max_steps": 1, **more}
    result = tg.complete(x, mask, effort="thorough", options=mine, **short)
    for each in (result, *result.members):
        assert each.info["options"] == mine.to_dict() and each.info["effort"] == "custom"


def test_runs_to_distil_have_the_options_of_the_user_or_those_of_balanced_runs(data):
    mine = tg.GreedyOptions.for_completion("thorough").replace(final_sweeps=7)
    for options, expected in ((None, tg.GreedyOptions.for_completion("balanced")), (mine, mine)):
        request = Request.parse(
            "complete",
            HeldOutSearch,
            tg.GreedyOptions.for_completion,
            limited=False,
            effort="thorough",
            options=options,
            max_parameters=SIZE,
        )
        task = EntryTask(Observed(*data, as_loss("squared"), None, 0.1, None), request)
        assert is_distilled(task) == (options is None)
        assert [t.request.options for t in to_distil(task)] == [expected] * 3
        assert task.request.options == request.options  # what was given is not changed


def test_exact_data_is_met_exactly():
    rng = np.random.default_rng(3)
    x = np.einsum("ia,jb,kab->ijk", rng.random((6, 2)), rng.random((7, 2)), rng.random((8, 2, 2)))
    mask = rng.random(x.shape) < 0.7
    result = tg.complete(x, mask, truth=x, effort="thorough", **{**QUIET, "max_steps": 4})
    assert result.test_error < 1e-6


def test_nothing_is_distilled_from_zeros():
    x = np.zeros((4, 5, 6))
    result = tg.complete(x, np.ones(x.shape, dtype=bool), effort="thorough", **QUIET)
    assert result.relative_error == 0.0
