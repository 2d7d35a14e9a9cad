"""Callbacks: progress display and checkpoints. The numerical loop itself prints and writes nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..errors import OptionError
from ..files import read_file, write_file
from ..results import Step
from ..search import Search, SearchState
from .forecast import outlook

__all__ = ["Callback", "Checkpoint", "ProgressBar", "as_callbacks", "listening", "progress_callback"]

CHECKPOINT_KIND = "checkpoint"
# A checkpoint is written when the run has gone on for this many times the cost of the last one.
WORTH_WRITING = 20.0


@runtime_checkable
class Callback(Protocol):
    """Told of every step; a true answer stops the run."""

    def on_start(self, search: Search) -> None:
        """Before the first step."""

    def on_step(self, search: Search, step: Step) -> bool | None:
        """After a step."""

    def on_end(self, search: Search) -> None:
        """After the last step, however the run ended."""


class _FromFunction:
    """A plain function of the step as a callback."""

    def __init__(self, function: Callable[[Step], Any]) -> None:
        self.function = function

    def on_start(self, search: Search) -> None:
        """Nothing to do."""

    def on_step(self, search: Search, step: Step) -> bool | None:
        return bool(self.function(step))

    def on_end(self, search: Search) -> None:
        """Nothing to do."""


def as_callbacks(callbacks: Callable[[Step], Any] | Callback | Iterable[Any] | None) -> list[Callback]:
    """A list of callbacks from one or several callbacks or plain functions of a step."""
    if callbacks is None:
        return []
    if isinstance(callbacks, Callback) or callable(callbacks):
        callbacks = [callbacks]
    out: list[Callback] = []
    if not isinstance(callbacks, Iterable):
        callbacks = [callbacks]
    for c in callbacks:
        if isinstance(c, Callback):
            out.append(c)
        elif callable(c):
            out.append(_FromFunction(c))
        else:
            raise OptionError(
                f"a callback is a function of a Step or has on_start, on_step, on_end; not {c!r}"
            )
    return out


@contextmanager
def listening(run: Any, listeners: Sequence[Any]) -> Iterator[Callable[[Any], bool]]:
    """Tell of a run's start and end, and give a function that tells of a step: does anyone want to stop?"""
    for listener in listeners:
        listener.on_start(run)

    def tell(step: Any) -> bool:
        answers = [listener.on_step(run, step) for listener in listeners]  # all of them are told
        return any(answers)

    try:
        yield tell
    finally:
        for listener in listeners:
            listener.on_end(run)


class Checkpoint:
    """Writes the state of a run to a file, so that a killed run can go on.

    Parameters
    ----------
    path
        The file. It is replaced atomically.
    identity
        What the run depends on; a file with another identity is refused.
    """

    def __init__(self, path: str | Path, identity: dict[str, Any]) -> None:
        self.path = Path(path)
        self.identity = identity
        self._next = 0.0

    def load(self, search: Search) -> None:
        """Continue from the file where it exists."""
        if not self.path.exists():
            return
        header, tensors = read_file(self.path, (CHECKPOINT_KIND,))
        found = header["identity"]
        for name, mine in self.identity.items():
            if found.get(name) != mine:
                raise OptionError(
                    f"the checkpoint {self.path} belongs to another run: its {name} is {found.get(name)!r}, "
                    f"here it is {mine!r}. Use another file, or delete this one to start anew"
                )
        search.state = SearchState.unpack(header["state"], tensors, search.problem.generator)

    def on_start(self, search: Search) -> None:
        """Nothing to do: the front end loads before the run."""

    def on_step(self, search: Search, step: Step) -> bool | None:
        """Write, unless writing would take a sizeable share of the time."""
        if time.perf_counter() >= self._next:
            self._write(search)
        return None

    def on_end(self, search: Search) -> None:
        """Write the last state."""
        self._write(search)

    def _write(self, search: Search) -> None:
        begin = time.perf_counter()
        state, tensors = search.state.pack(search.problem.generator)
        write_file(self.path, CHECKPOINT_KIND, {"identity": self.identity, "state": state}, tensors)
        now = time.perf_counter()
        self._next = now + WORTH_WRITING * (now - begin)


class ProgressBar:
    """One live line: step, size, error, the last move and a guess of what is left."""

    def __init__(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        except ImportError as error:
            raise OptionError("progress=True needs rich: pip install 'tensorgrow[progress]'") from error
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", style="dim"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("fitting rank one", total=None, left="")

    def on_start(self, search: Search) -> None:
        """Show the line."""
        self._bar.start()

    def on_step(self, search: Search, step: Step) -> bool | None:
        """Update it."""
        goal = search.limits.max_error
        held_out = step.validation_error
        error = f"error {step.relative_error:.4g}" if held_out is None else f"held-out error {held_out:.4g}"
        error += "" if goal is None else f" (goal {goal:g})"
        move = step.kind if step.edge is None else f"{step.kind} {step.edge[0]}-{step.edge[1]}"
        best = "" if search.state.best is None else f", best {search.state.best.size:,}"
        self._bar.update(
            self._task,
            description=f"step {step.index}: {step.num_parameters:,} parameters{best}, {error}, {move}",
            left=outlook(
                search.state.steps, search.limits, search.state.elapsed, search.problem.options.patience
            ),
        )
        return None

    def on_end(self, search: Search) -> None:
        """Remove it."""
        self._bar.stop()


def progress_callback(progress: bool | None) -> list[Callback]:
    """The progress display: on, off, or (None) on when a person watches and rich is installed."""
    if progress is False:
        return []
    if progress is None:
        if not sys.stderr.isatty():
            return []
        try:
            return [ProgressBar()]
        except OptionError:
            return []
    return [ProgressBar()]
