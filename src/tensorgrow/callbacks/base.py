"""Callbacks: what users may hand to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from ..errors import OptionError
from ..search import AnySearch
from ..search.run import Listener
from ..steps import Record


@runtime_checkable
class Callback(Listener, Protocol):
    """An object with ``on_start(search)``, ``on_step(search, step)`` and ``on_end(search)``."""


Callbacks = Callable[[Record], object] | Callback | Iterable[Callable[[Record], object] | Callback] | None
"""One or several callbacks or plain functions of a step."""


class _FromFunction:
    """A plain function of the step as a callback."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        if not callable(function):
            raise OptionError(
                f"a callback is a function of a Step or has on_start, on_step, on_end; not {function!r}"
            )
        self.function = function

    def on_start(self, search: AnySearch) -> None:
        pass

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        return bool(self.function(step))

    def on_end(self, search: AnySearch) -> None:
        pass


def as_callbacks(callbacks: Callbacks) -> list[Callback]:
    """A list of callbacks from one or several callbacks or plain functions of a step."""
    if callbacks is None:
        return []
    if isinstance(callbacks, Callback) or callable(callbacks) or not isinstance(callbacks, Iterable):
        callbacks = [callbacks]
    return [c if isinstance(c, Callback) else _FromFunction(c) for c in callbacks]
