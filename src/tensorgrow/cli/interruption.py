"""Signals on the command line: Ctrl-C, SIGTERM of batch systems, SIGHUP of closed terminals."""

from __future__ import annotations

import os
import signal
import sys
from typing import Self

from ..callbacks.signals import POLITE, Interrupts

LOST = "interrupted; what is not written yet is lost"


class Interruption(Interrupts):
    """All three end a command as Ctrl-C does: with the best network so far, once a run has begun.

    Before that there is nothing to keep, and the process ends at once: an error raised in the midst of an
    import can surface anywhere.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        self.listen(*POLITE)
        self._terminals = [stream for stream in (1, 2) if os.isatty(stream)]
        sys.unraisablehook = _report
        return self

    def __exit__(self, *_: object) -> None:
        """Ignore what still comes: the command is done, and Python about to end."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    @property
    def exit_code(self) -> int:
        """What shells expect of a process that a signal ended: 128 and the signal."""
        return 128 + (self.last or signal.SIGINT)

    def note(self, number: int) -> None:
        super().note(number)
        for stream in self._terminals:
            if not os.isatty(stream):  # it was closed: whoever writes to it would fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)

    def arrive(self, number: int) -> None:
        if not self.has_inner:
            os.write(2, f"error: {LOST}\n".encode())
            os._exit(self.exit_code)
        super().arrive(number)


def _report(error: sys.UnraisableHookArgs) -> None:
    """Report errors that cannot be raised, such as those of finalisers; of Ctrl-C the run knows."""
    if error.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(error)
