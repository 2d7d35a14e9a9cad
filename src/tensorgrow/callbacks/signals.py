"""Ctrl-C and other signals that ask a run to end.

The first one is raised where the run is, as a `KeyboardInterrupt`. From then on they are held back: what
unwinds, the last error and the files are brought to their end; only a last fit is interrupted again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from ..errors import OptionError

if TYPE_CHECKING:  # the command line loads this file before anything that takes long
    from ..search import AnySearch
    from ..steps import Record

Handler = Callable[[int, FrameType | None], Any] | int | None

# Those that end a process politely besides Ctrl-C: batch systems send the first, closed terminals the second.
POLITE = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """What signals do while this context lasts; the innermost one decides, all that are open take note.

    In threads other than the main one, which never sees signals, it does nothing; a handler that the user has
    put in the place of Python's own for Ctrl-C stays.

    Attributes
    ----------
    count
        Signals that have come.
    last
        The last one; None while there is none.
    has_inner
        Whether another such context was opened within this one: a run has begun.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: int | None = None
        self.has_inner = False
        self._raises = True
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        if _is_main_thread():
            for outer in _open:
                outer.has_inner = True
            _open.append(self)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self.listen(signal.SIGINT)
        return self

    def __exit__(self, *_: object) -> None:
        if self in _open:
            self.hold()
            for number, handler in self._before.items():
                signal.signal(number, handler)
            _open.remove(self)

    def listen(self, *numbers: int) -> None:
        """Treat signals like Ctrl-C until this context ends, save those that are ignored, as by ``nohup``."""
        if self in _open:
            new = [n for n in numbers if n not in self._before and signal.getsignal(n) != signal.SIG_IGN]
            self._before |= {n: signal.signal(n, _arrive) for n in new}

    def hold(self) -> None:
        """Raise nothing from here on; signals are still counted."""
        self._raises = False

    def note(self, number: int) -> None:
        """Count a signal, whoever reacts to it."""
        self.count, self.last = self.count + 1, number

    def arrive(self, number: int) -> None:
        """React to a signal, in the innermost context."""
        if self._raises:
            for each in _open:  # whatever unwinds now must not be interrupted
                each.hold()
            raise KeyboardInterrupt


_open: list[Interrupts] = []


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _arrive(number: int, frame: FrameType | None) -> None:
    for each in _open:
        each.note(number)
    _open[-1].arrive(number)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise the next signal although they are held back: for a last fit, which may be cut short."""
    inner = _open[-1] if _open and _is_main_thread() else Interrupts()
    inner._raises = True
    try:
        yield
    finally:
        inner.hold()


class StopOnSignal:
    """Callback that ends a run on signals as Ctrl-C does: with the best network so far.

    Until the run has returned its result; then the signals do what they did before. Runs outside the main
    thread never see signals, and go on.

    Parameters
    ----------
    signals
        Names or numbers; by default SIGTERM, which batch systems send before they kill, and SIGHUP, which
        comes when a terminal is closed.

    Examples
    --------
    ``r = tg.decompose(x, max_error=1e-3, callbacks=tg.callbacks.StopOnSignal())``, then
    ``if r.stop is tg.StopReason.INTERRUPTED: ...``
    """

    def __init__(self, *signals: str | int) -> None:
        try:
            self.signals = tuple(
                signal.Signals[s] if isinstance(s, str) else signal.Signals(s) for s in signals
            )
        except (KeyError, ValueError, TypeError) as error:
            raise OptionError(
                f"{error} is not a signal of this system; give names such as 'SIGTERM'"
            ) from error

    def on_start(self, search: AnySearch) -> None:
        if _open and _is_main_thread():
            _open[-1].listen(*(self.signals or POLITE))

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        return None

    def on_end(self, search: AnySearch) -> None:
        """The run itself brings back the handlers, after its result is complete."""
