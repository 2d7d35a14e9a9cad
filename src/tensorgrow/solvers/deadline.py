"""The end of the time that a run has: whoever works long looks at it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..contraction import Array

# Seconds beyond a deadline in which what is under way may come to its end; then it is broken off.
GRACE = 0.5


class OutOfTime(Exception):
    """Breaks off work that is too late to be of use; a search undoes the move, and a solver the sweep."""


def check_time(deadline: float) -> None:
    """Break off where a deadline, a value of ``time.perf_counter()``, is long past."""
    if time.perf_counter() > deadline + GRACE:
        raise OutOfTime


class TimedCores(list[Array]):
    """Cores that a sweep replaces one by one; the one that comes too late is the last."""

    def __init__(self, cores: Iterable[Array], deadline: float) -> None:
        super().__init__(cores)
        self.deadline = deadline

    def __setitem__(self, *item: object) -> None:
        super().__setitem__(*item)  # type: ignore[call-overload]
        check_time(self.deadline)
