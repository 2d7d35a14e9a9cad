from __future__ import annotations

import signal
import threading
import weakref

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow.callbacks import StopOnSignal
from tensorgrow.callbacks.signals import Interrupts
from tensorgrow.tasks.tensor_data import DenseTensor

X = np.random.default_rng(0).standard_normal((4, 4, 4))
TERM, HUP, INT = signal.SIGTERM, signal.SIGHUP, signal.SIGINT


class Send:
    """Sends signals to this process at some moment of a run."""

    def __init__(self, number: int, *, at_step: int | None = None, at_end: int = 0) -> None:
        self.number, self.at_step, self.at_end = number, at_step, at_end

    def on_start(self, search) -> None:
        pass

    def on_step(self, search, step) -> None:
        if step.index == self.at_step:
            signal.raise_signal(self.number)

    def on_end(self, search) -> None:
        for _ in range(self.at_end):
            signal.raise_signal(self.number)


def handlers() -> list:
    return [signal.getsignal(n) for n in (INT, TERM, HUP)]


@pytest.mark.parametrize("number", [TERM, HUP])
def test_a_signal_ends_a_run_like_ctrl_c(number):
    before = handlers()
    listening = [StopOnSignal(), Send(number, at_step=2, at_end=1)]
    result = tg.decompose(X, max_error=1e-3, random_state=0, callbacks=listening)
    assert result.stop is Stop.INTERRUPTED
    assert len(result.history) == 3
    assert handlers() == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_a_finaliser_is_not_lost():
    class Finalised(Send):
        def on_step(self, search, step) -> None:
            weakref.finalize(Dies(), super().on_step, search, step).atexit = False

    class Dies:
        pass

    result = tg.decompose(X, max_error=1e-3, random_state=0, callbacks=Finalised(INT, at_step=2))
    assert result.stop is Stop.INTERRUPTED
    assert len(result.history) == 3


def test_outside_of_a_run_that_was_interrupted_nothing_more_is_raised():
    with Interrupts() as command:
        result = tg.decompose(X, max_error=1e-3, random_state=0, callbacks=Send(INT, at_step=2))
        signal.raise_signal(INT)  # before the result is written
        assert command.count == 2
    assert result.stop is Stop.INTERRUPTED


def test_only_the_signals_that_were_asked_for():
    with Interrupts() as outer:
        outer.listen(HUP)
        outer.hold()
        callbacks = [StopOnSignal("SIGTERM"), Send(HUP, at_step=1)]
        result = tg.decompose(X, max_error=1e-3, random_state=0, callbacks=callbacks)
        assert outer.count == 1
    assert result.stop is Stop.INTERRUPTED  # the run is within what listens to SIGHUP
    with pytest.raises(tg.OptionError, match=r"SIGNONE.*not a signal"):
        StopOnSignal("SIGNONE")


def test_signals_that_are_ignored_stay_so():
    signal.signal(HUP, signal.SIG_IGN)
    try:
        result = tg.decompose(
            X, max_error=0.5, random_state=0, callbacks=[StopOnSignal(), Send(HUP, at_step=1)]
        )
        assert result.stop is Stop.TARGET_REACHED
    finally:
        signal.signal(HUP, signal.SIG_DFL)


def test_the_users_own_handler_for_ctrl_c_stays():
    seen: list[int] = []
    before = signal.signal(INT, lambda number, _: seen.append(number))
    try:
        result = tg.decompose(X, max_error=0.5, random_state=0, callbacks=Send(INT, at_step=1))
    finally:
        signal.signal(INT, before)
    assert seen == [INT] and result.stop is Stop.TARGET_REACHED


@pytest.mark.parametrize("presses", [1, 2, 5])
def test_ctrl_c_after_the_search_keeps_the_network(presses):
    before = handlers()
    plain = tg.decompose(X, max_error=0.3, random_state=0)
    result = tg.decompose(X, max_error=0.3, random_state=0, callbacks=Send(INT, at_end=presses))
    assert result.stop is Stop.INTERRUPTED
    assert result.structure == plain.structure and result.errors == plain.errors
    assert handlers() == before


def test_ctrl_c_in_the_last_error_keeps_the_network(monkeypatch):
    compute = DenseTensor.error

    def error(self, network):
        signal.raise_signal(INT)
        return compute(self, network)

    monkeypatch.setattr(DenseTensor, "error", error)
    result = tg.decompose(X, max_error=0.3, random_state=0)
    assert result.stop is Stop.INTERRUPTED
    assert result.relative_error <= 0.3


def test_ctrl_c_twice_in_a_completion_skips_the_last_fit():
    mask = np.random.default_rng(1).random(X.shape) < 0.8
    plain = tg.complete(X, mask, max_parameters=40, random_state=0)
    result = tg.complete(X, mask, max_parameters=40, random_state=0, callbacks=Send(INT, at_step=3, at_end=1))
    assert result.stop is Stop.INTERRUPTED
    assert result.history[-1].kind == "refit"
    assert len(result.history) < len(plain.history)


def test_ctrl_c_before_there_is_anything_is_raised():
    class AtStart(Send):
        def on_start(self, search) -> None:
            signal.raise_signal(INT)

    before = handlers()
    with pytest.raises(KeyboardInterrupt):
        tg.decompose(X, max_error=0.3, callbacks=AtStart(INT))
    assert handlers() == before


def test_runs_in_other_threads_leave_signals_alone():
    results: list[tg.Result] = []
    before = handlers()
    limits = {"max_error": 0.5, "random_state": 0, "callbacks": StopOnSignal()}
    run = threading.Thread(target=lambda: results.append(tg.decompose(X, **limits)))
    run.start()
    run.join()
    assert results[0].stop is Stop.TARGET_REACHED
    assert handlers() == before
