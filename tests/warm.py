"""Processes that start at once: forks of one that has loaded torch and the library, which takes seconds.

For tests that need a process of its own but not its first seconds: commands in a terminal, runs that are
killed, workers of a cluster. With the first of them a process of pytest starts one to fork from.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

# Nothing among these looks at the environment or the terminal when it is loaded. What is missing is left out.
LOADED = ["torch", "safetensors.torch", "tensorgrow.tasks", "tensorgrow.baselines", "tensorgrow.report"]
LOADED += ["typer", "rich.progress", "PIL.Image", "pandas", "distributed", "dask.dataframe", "pytest"]
# Elsewhere libraries may not survive a fork.
METHOD = "forkserver" if sys.platform == "linux" else "spawn"


def forks() -> BaseContext:
    """The context of such processes; the first call decides what is loaded."""
    context = multiprocessing.get_context(METHOD)
    context.set_forkserver_preload(LOADED)
    return context


class Stream:
    """A file descriptor that a new process inherits."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[[Any], Stream], tuple[Any]]:
        return _inherit, (DupFd(self.number),)


def _inherit(number: Any) -> Stream:
    return Stream(number.detach())


def start(
    work: Callable[..., object],
    *arguments: object,
    folder: Path,
    out: int,
    err: int | None = None,
    env: dict[str, str] | None = None,
) -> BaseProcess:
    """Start a function of a module in a session of its own; it also reads from `out`, as from a terminal."""
    streams = [Stream(n) for n in (out, out, out if err is None else err)]
    arguments = (streams, str(folder), env or dict(os.environ), work, arguments)
    process = forks().Process(target=_begin, args=arguments)
    process.start()
    return process


def _begin(
    streams: list[Stream], folder: str, env: dict[str, str], work: Callable[..., object], arguments: Any
) -> None:
    os.setsid()
    for place, stream in enumerate(streams):
        os.dup2(stream.number, place)
    for stream in streams:
        os.close(stream.number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate(("r", "w", "w")))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    work(*arguments)


def tensorgrow(*arguments: str) -> None:
    """What ``python -m tensorgrow`` does."""
    sys.argv = ["tensorgrow", *arguments]
    runpy.run_module("tensorgrow", run_name="__main__")
