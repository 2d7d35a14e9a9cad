"""What every search does: one set of checks over all of them, see `factories.CASES`."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from tensorgrow import StopReason as Stop
from tensorgrow.callbacks.checkpoint import Checkpoint
from tensorgrow.callbacks.progress import ProgressBar
from tensorgrow.callbacks.trackers import TensorBoard
from tensorgrow.search import AnySearch, GreedySearch, NetworkSearch, run
from tests.search.factories import CASES, Case


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def whole() -> dict[int, tuple[AnySearch, int]]:
    """Searches that ran to their end, and how often each called its work, by case."""
    return {}


@pytest.fixture
def undisturbed(case: Case, whole, monkeypatch) -> tuple[AnySearch, int]:
    if id(case) not in whole:
        search = case()
        with monkeypatch.context() as patch:
            counter = Interrupter(patch, case)
            run(search, [])
        whole[id(case)] = search, counter.calls
    return whole[id(case)]


@pytest.fixture
def end(undisturbed) -> AnySearch:
    """The search after a run without any disturbance."""
    return undisturbed[0]


@pytest.fixture
def calls(undisturbed) -> int:
    """How often that run called its work."""
    return undisturbed[1]


def timeless(header: Any) -> Any:
    """A header without what differs from run to run."""
    if isinstance(header, list):
        return [timeless(v) for v in header]
    if isinstance(header, dict):
        return {k: timeless(v) for k, v in header.items() if k not in ("seconds", "elapsed")}
    return header


@pytest.fixture
def assert_same(case: Case) -> Callable[[AnySearch, AnySearch], None]:
    """Bit for bit: steps, networks, random numbers, stop reason."""

    def check(one: AnySearch, other: AnySearch) -> None:
        steps = [[replace(s, seconds=0.0) for s in search.state.steps] for search in (one, other)]
        assert steps[0] == steps[1]
        if isinstance(one, NetworkSearch):
            assert all(map(torch.equal, one.answer.network.cores, other.answer.network.cores))
        if case.packs:
            (header, tensors), (expected, known) = one.pack(), other.pack()
            assert timeless(header) == timeless(expected)
            assert tensors.keys() == known.keys()
            assert all(torch.equal(tensors[name], known[name]) for name in known)

    return check


@pytest.fixture
def packs(case: Case) -> None:
    if not case.packs:
        pytest.skip("it cannot be kept in a file")


class Recorder:
    """Notes what a run tells its listeners."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.log: list[object] = []
        self.stop_at = stop_at

    def on_start(self, search):
        self.log.append("start")

    def on_step(self, search, step):
        assert search.state.steps[-1] is step
        assert search.has_answer
        self.log.append(step.index)
        return step.index == self.stop_at

    def on_end(self, search):
        self.log.append("end")


# -- steps -------------------------------------------------------------------------------------------------


def test_it_ends_with_an_answer_and_a_reason(case, end):
    steps = end.state.steps
    assert isinstance(end.state.stop, Stop)
    assert end.has_answer
    assert (len(steps) > 2) == case.grows
    assert [s.index for s in steps] == list(range(len(steps)))
    assert all(a.seconds <= b.seconds for a, b in pairwise(steps))
    assert steps[-1].seconds <= end.state.elapsed
    assert list(end) == []  # it is over


def test_networks_are_on_the_path_unless_another_one_beats_them(end):
    if not isinstance(end, NetworkSearch):
        pytest.skip("no networks")
    path = end.state.path
    assert all(a.num_parameters < b.num_parameters for a, b in pairwise(path))
    assert all(a.error > b.error for a, b in pairwise(path))
    for step in end.state.steps:
        assert any(p.num_parameters <= step.num_parameters and p.error <= step.measure for p in path)
    assert end.describe() == repr(end.answer.network.structure)


# -- listeners ---------------------------------------------------------------------------------------------


def test_the_same_random_numbers_lead_to_the_same_end_whoever_listens(case, end, assert_same):
    recorder, search = Recorder(), case()
    run(search, [recorder])
    assert recorder.log == ["start", *range(len(end.state.steps)), "end"]
    assert_same(search, end)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_line_in_a_terminal_names_every_step(case, end, monkeypatch, assert_same):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    terminal, search, lines, say = Terminal(), case(), [], ProgressBar.say

    def said(bar, text, *more, **others):
        lines.append(text)
        say(bar, text, *more, **others)

    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(ProgressBar, "say", said)
    run(search, [ProgressBar()])
    assert "fitting" in terminal.getvalue()
    assert_same(search, end)
    assert len(lines) == len(search.state.steps)
    goal = -math.inf if search.limits.max_error is None else search.limits.max_error
    is_met = False
    for line, step in zip(lines, search.state.steps):
        is_met = is_met or step.measure <= goal
        if is_met:  # where a terminal is narrow, that is what must be read
            assert line.startswith("target met, making it smaller; Ctrl-C keeps it (")
        else:
            assert line.startswith(f"step {step.index}: {step.num_parameters:,} parameters")
            assert f"{step.measure:.4g}" in line


def test_trackers(case, end, tmp_path, assert_same):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    search = case()
    run(search, [TensorBoard(tmp_path)])
    assert_same(search, end)
    events = EventAccumulator(str(tmp_path)).Reload()
    for name in search.state.steps[0].metrics():
        values = events.Scalars(f"tensorgrow/{name}")
        assert [v.step for v in values] == [s.index for s in search.state.steps if name in s.metrics()]
    (stop,) = events.Tensors("tensorgrow/stop/text_summary")
    assert stop.tensor_proto.string_val == [search.state.stop.name.encode()]


def test_a_listener_can_stop_it(case, end):
    last = len(end.state.steps) // 2
    search = case()
    run(search, [Recorder(stop_at=last)])
    assert search.state.stop is Stop.CALLBACK
    assert len(search.state.steps) == last + 1


# -- pause and resume --------------------------------------------------------------------------------------


def test_a_paused_search_goes_on(case, end, assert_same):
    search, seen = case(), []
    for count in (1, 2) if case.grows else (1,):
        walk = iter(search)
        seen += [next(walk) for _ in range(count)]
        assert search.state.stop is None or not case.grows
        assert list(search.state.steps) == seen
        assert search.has_answer
        if isinstance(search, GreedySearch):
            assert search.answer.size == seen[-1].num_parameters
        walk.close()
    seen += list(search)
    assert list(search.state.steps) == seen
    assert search.state.stop is end.state.stop
    assert_same(search, end)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_a_file_resumes_to_the_same_end(packs, case, end, share, tmp_path, assert_same):
    file = Checkpoint(tmp_path / "run.ckpt", {"case": "this"})
    first, second = case(), case()
    run(first, [file, Recorder(stop_at=int(share * (len(end.state.steps) - 1)))])
    second.context.generator.manual_seed(99)  # the one in the file counts
    file.load(second)
    run(second, [])
    assert_same(second, end)
    assert [s.seconds for s in second.state.steps] == sorted(s.seconds for s in second.state.steps)


def test_a_finished_run_stays_finished(packs, case, end, tmp_path, assert_same):
    file = Checkpoint(tmp_path / "run.ckpt", {})
    run(case(), [file])
    again, recorder = case(), Recorder()
    file.load(again)
    run(again, [recorder])
    assert recorder.log == ["start", "end"]
    assert_same(again, end)


# -- Ctrl-C ------------------------------------------------------------------------------------------------


class Interrupter:
    """Raises KeyboardInterrupt in one call of a method."""

    def __init__(self, monkeypatch, case: Case, at: int | None = None) -> None:
        owner, name = case.work
        method = getattr(owner, name)
        self.calls = 0

        def call(*args, **kwargs):
            self.calls += 1
            if self.calls == at:
                raise KeyboardInterrupt
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 1.0])
def test_an_interrupted_move_can_be_made_again(
    packs, case, end, calls, share, monkeypatch, tmp_path, assert_same
):
    file, search = Checkpoint(tmp_path / "run.ckpt", {}), case()
    with monkeypatch.context() as patch:
        Interrupter(patch, case, at=max(1, round(share * calls)))
        try:
            run(search, [file])
        except KeyboardInterrupt:  # before there was anything
            assert not search.state.steps
        else:
            assert search.state.stop is Stop.INTERRUPTED
            assert search.has_answer
    resumed = case()
    file.load(resumed)
    assert resumed.state.stop is None
    run(resumed, [])
    if case.undoes:
        assert_same(resumed, end)
    else:
        assert resumed.state.stop is end.state.stop
        assert resumed.state.steps[-1].loss == pytest.approx(end.state.steps[-1].loss, rel=0.01)


def test_an_interrupt_before_there_is_anything_is_raised(case, monkeypatch):
    recorder, search = Recorder(), case()
    Interrupter(monkeypatch, case, at=1)
    with pytest.raises(KeyboardInterrupt):
        run(search, [recorder])
    assert recorder.log == ["start", "end"]


def test_other_errors_are_passed_on(case, monkeypatch, end, assert_same):
    owner, name = case.work
    search = case()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(search, [])
    if case.packs:
        run(search, [])  # the state is as it was
        assert_same(search, end)


# -- limits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 2])
def test_max_steps(packs, case, end, steps, assert_same):
    if not case.grows:
        pytest.skip("it makes one step only")
    search = case(**{**case.limits, "max_steps": steps})
    run(search, [])
    assert search.hit_limit
    assert search.state.stop in (Stop.MAX_STEPS, Stop.TARGET_REACHED)
    assert sum(s.kind != "start" for s in search.state.steps) == steps
    search.limits, search.state.stop = case().limits, None
    run(search, [])
    assert_same(search, end)


def test_max_seconds(case):
    search = case(**{**case.limits, "max_seconds": 0.0})
    run(search, [])
    assert search.hit_limit or not case.packs
    assert search.state.stop is Stop.MAX_SECONDS
    assert len(search.state.steps) == 1
    assert search.has_answer


def test_max_parameters(case, end):
    if case.budget is None:
        pytest.skip("it keeps no budget")
    assert max(s.num_parameters for s in end.state.steps) > case.budget
    search = case(max_parameters=case.budget)
    run(search, [])
    assert max(s.num_parameters for s in search.state.steps) <= case.budget
    assert search.has_answer
