"""Drives a search: tells listeners of its steps, and ends it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Protocol

from ..steps import Record, StopReason
from .search import AnySearch


class Listener(Protocol):
    """Hears of a run's start, its steps and its end, however it ends; a true answer to a step stops it."""

    def on_start(self, search: AnySearch) -> None:
        """Before the first step."""

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        """After a step."""

    def on_end(self, search: AnySearch) -> None:
        """After the last step."""


class Signals(Protocol):
    """Signals that ask a run to end: how many came, and a way to hold back those to come."""

    count: int

    def hold(self) -> None:
        """Raise nothing from here on."""


def run(search: AnySearch, listeners: Sequence[Listener], signals: Signals | None = None) -> None:
    """Drive a search to its end; listeners may stop it, and Ctrl-C keeps what there is.

    At its end listeners see a run that can be resumed without a stop reason: that is what a checkpoint saves.
    All of them hear of the end, also where one raises; then the first error is raised.

    Parameters
    ----------
    signals
        Held back once the last step is done: from there on a run must not be interrupted.
    """
    state = search.state
    stop: StopReason | None = None
    started: list[Listener] = []
    try:
        try:
            for listener in listeners:
                listener.on_start(search)
                started.append(listener)
            for step in search:
                # A list, not a generator: all must hear, whatever the first ones answer.
                answers = [listener.on_step(search, step) for listener in listeners]
                if any(answers) and search.wind_down():
                    stop = StopReason.CALLBACK
                    break
                if signals is not None and signals.count:  # raised where Python drops errors: in a finaliser
                    raise KeyboardInterrupt
            if signals is not None:
                signals.hold()
        except KeyboardInterrupt:
            if not search.has_answer:
                raise
            stop = StopReason.INTERRUPTED
    finally:
        stop = stop or state.stop
        if search.hit_limit:
            state.stop = None
        with ExitStack() as ends:  # which calls all, the last one first
            for listener in reversed(started):
                ends.callback(listener.on_end, search)
    state.stop = stop
