from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import GreedyOptions, Step
from tensorgrow import StopReason as Stop
from tensorgrow.callbacks.base import Callback, as_callbacks
from tensorgrow.search import GreedySearch

X = np.random.default_rng(0).standard_normal((4, 4, 4))
OPTIONS = {"max_error": 0.5, "random_state": 0, "options": GreedyOptions(starts=1, certify=False)}


class Recorder:
    """Notes what it is told, in a list that several may share."""

    def __init__(self, name: str, log: list, stop_at: int | None = None) -> None:
        self.name, self.log, self.stop_at = name, log, stop_at

    def on_start(self, search):
        assert isinstance(search, GreedySearch)
        assert search.state.steps == []
        self.log.append((self.name, "start"))

    def on_step(self, search, step):
        assert isinstance(step, Step)
        assert search.state.steps[-1] is step
        assert search.answer is not None
        self.log.append((self.name, step.index))
        return step.index == self.stop_at

    def on_end(self, search):
        self.log.append((self.name, "end"))


def test_a_function_sees_every_step():
    seen = []
    result = tg.decompose(X, callbacks=seen.append, **OPTIONS)
    assert tuple(seen) == result.history
    assert len(seen) > 3
    assert result.stop is Stop.TARGET_REACHED  # list.append returns None: go on


def test_callbacks_do_not_change_the_run():
    plain = tg.decompose(X, **OPTIONS)
    watched = tg.decompose(X, callbacks=[lambda s: None, Recorder("a", [])], **OPTIONS)
    assert watched.structure == plain.structure
    assert watched.relative_error == plain.relative_error


def test_order_of_calls():
    log = []
    result = tg.decompose(X, callbacks=[Recorder("a", log), Recorder("b", log)], **OPTIONS)
    steps = len(result.history)
    expected = [("a", "start"), ("b", "start")]
    expected += [(name, k) for k in range(steps) for name in "ab"]
    expected += [("a", "end"), ("b", "end")]
    assert log == expected


@pytest.mark.parametrize("value", [True, 1, np.True_, "yes"])
def test_a_true_answer_stops(value):
    result = tg.decompose(X, callbacks=lambda step: value if step.index == 2 else None, **OPTIONS)
    assert result.stop is Stop.CALLBACK
    assert len(result.history) == 3
    assert result.num_parameters == result.history[-1].num_parameters
    error = np.linalg.norm(X - result.network.to_dense().numpy()) / np.linalg.norm(X)
    assert result.relative_error == pytest.approx(error)


@pytest.mark.parametrize("value", [False, 0, None, np.False_, ""])
def test_a_false_answer_goes_on(value):
    assert tg.decompose(X, callbacks=lambda step: value, **OPTIONS).stop is Stop.TARGET_REACHED


def test_everyone_is_told_of_the_step_that_stops():
    log = []
    result = tg.decompose(X, callbacks=[Recorder("a", log, stop_at=1), Recorder("b", log)], **OPTIONS)
    assert result.stop is Stop.CALLBACK
    assert log[-4:] == [("a", 1), ("b", 1), ("a", "end"), ("b", "end")]


@pytest.mark.parametrize("error", [RuntimeError, ZeroDivisionError, SystemExit])
def test_on_end_is_called_when_something_fails(error):
    log = []

    def fail(step):
        if step.index == 2:
            raise error("mine")

    with pytest.raises(error, match="mine"):
        tg.decompose(X, callbacks=[Recorder("a", log), fail], **OPTIONS)
    assert log[-2:] == [("a", 2), ("a", "end")]


def test_an_on_end_that_raises_leaves_no_one_out():
    pytest.importorskip("rich")
    log, before = [], threading.active_count()

    class Failing(Recorder):
        def on_end(self, search):
            super().on_end(search)
            raise RuntimeError("mine")

    listeners = [Failing("a", log), Recorder("b", log)]
    with pytest.raises(RuntimeError, match="mine"):
        tg.decompose(X, callbacks=listeners, **OPTIONS | {"progress": True})
    assert log[-2:] == [("a", "end"), ("b", "end")]
    end = time.monotonic() + 5.0
    while threading.active_count() > before and time.monotonic() < end:  # the live line has a thread
        time.sleep(0.01)
    assert threading.active_count() == before


def test_on_end_is_called_when_the_search_fails():
    log = []

    def score(before, after, added):
        raise ArithmeticError("no score")

    options = OPTIONS | {"options": GreedyOptions(edge_score=score)}
    with pytest.raises(ArithmeticError, match="no score"):
        tg.decompose(X, callbacks=Recorder("a", log), **options)
    assert log == [("a", "start"), ("a", 0), ("a", "end")]


def test_ctrl_c_in_a_callback_keeps_the_best():
    log = []

    def press(step):
        if step.index == 2:
            raise KeyboardInterrupt

    result = tg.decompose(X, callbacks=[Recorder("a", log), press], **OPTIONS)
    assert result.stop is Stop.INTERRUPTED
    assert len(result.history) == 3
    assert log[-1] == ("a", "end")


def test_ctrl_c_before_there_is_anything():
    log = []

    class Press(Recorder):
        def on_start(self, search):
            super().on_start(search)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tg.decompose(X, callbacks=Press("a", log), **OPTIONS)


def test_as_callbacks():
    assert as_callbacks(None) == []
    recorder = Recorder("a", [])
    assert as_callbacks(recorder) == [recorder]
    assert isinstance(recorder, Callback)
    both = as_callbacks((recorder, print))
    assert both[0] is recorder
    assert len(both) == 2
    assert all(isinstance(c, Callback) for c in both)
    assert len(as_callbacks(c for c in (print, print))) == 2
    for bad in ("text", [1], [None], [recorder, object()]):
        with pytest.raises(tg.OptionError, match="callback"):
            as_callbacks(bad)
