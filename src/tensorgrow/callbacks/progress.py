"""One live line for people who wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from ..errors import OptionError, needs
from ..search import AnySearch
from ..steps import Record
from .forecast import TARGET_MET, is_reached, outlook


class ProgressBar:
    """One live line: step, size, error, the last move and a guess of what is left."""

    def __init__(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        except ImportError as error:
            raise OptionError(needs("progress=True needs rich", "progress")) from error
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", style="dim"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("fitting rank one", total=None, left="")

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the line for a while."""
        self._bar.start()
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Remove the line; a terminal that was closed meanwhile is no reason for a run to fail."""
        with suppress(OSError):
            self._bar.stop()

    def say(self, text: str, left: str = "") -> None:
        """Replace the text, and what is said about the time that is left."""
        self._bar.update(self._task, description=text, left=left)

    def on_start(self, search: AnySearch) -> None:
        self._bar.start()

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        left = outlook(search.state.steps, search.limits, search.state.elapsed, search.patience)
        text = describe_step(search, step)
        if is_reached(search.state.steps, search.limits):  # first, so that no narrow terminal cuts it off
            text, left = f"{TARGET_MET} ({search.best_size or step.num_parameters:,} parameters)", ""
        self.say(text, left)
        return None

    def on_end(self, search: AnySearch) -> None:
        self.close()


class LogLines:
    """A line of text every few seconds, for runs that nobody watches; short ones say nothing.

    Parameters
    ----------
    say
        Takes the lines.
    every
        Seconds between two lines at least, and before the first.
    """

    def __init__(self, say: Callable[[str], object], every: float = 5.0) -> None:
        self._say, self._every, self._last = say, every, time.monotonic()

    def on_start(self, search: AnySearch) -> None:
        self._last = time.monotonic()

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        if self.is_due:
            left = outlook(search.state.steps, search.limits, search.state.elapsed, search.patience)
            self.note(f"{step.seconds:.0f} s, {describe_step(search, step)}" + (f"; {left}" if left else ""))
        return None

    @property
    def is_due(self) -> bool:
        """Whether the last line is long enough ago."""
        return time.monotonic() - self._last >= self._every

    def note(self, line: str) -> None:
        """Say a line, if it is due."""
        if self.is_due:
            self._last = time.monotonic()
            self._say(line)

    def on_end(self, search: AnySearch) -> None:
        """Whoever runs the search tells of its end."""


def describe_step(search: AnySearch, step: Record) -> str:
    """A step in one line."""
    goal = search.limits.max_error
    name = "loss" if step.relative_error is None else "error"
    if step.validation_error is not None:
        name = "held-out error"
    aim = "" if goal is None else f" (goal {goal:g})"
    best = search.best_size
    size = f"{step.num_parameters:,} parameters" + ("" if best is None else f", best {best:,}")
    return f"step {step.index}: {size}, {name} {step.measure:.4g}{aim}, {step.move()}"


@contextmanager
def live_line(progress: bool | None) -> Iterator[Callable[[str], None]]:
    """A live line for work that is not only a run, where one is wanted; call it with a text to show."""
    bars = progress_callbacks(progress)
    with ExitStack() as stack:
        for bar in bars:
            stack.enter_context(bar.showing())

        def say(text: str) -> None:
            for bar in bars:
                bar.say(text)

        yield say


def progress_callbacks(progress: bool | None) -> list[ProgressBar]:
    """The progress display: on, off, or (None) on when a person watches and rich is installed."""
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return []
    try:
        return [ProgressBar()]
    except OptionError:
        if progress:
            raise
        return []
