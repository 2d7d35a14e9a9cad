"""Commands in a real pseudo-terminal, where the live progress line is on."""

from __future__ import annotations

import os
import re
import select
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import environment
from tests.warm import start, tensorgrow

pty = pytest.importorskip("pty")


@contextmanager
def typed(*arguments: str, folder: Path, width: int = 140) -> Iterator[tuple[BaseProcess, FileIO]]:
    """``tensorgrow`` with these arguments in a terminal; the process, and our end of the terminal."""
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (40, width))
    env = environment(TERM="xterm-256color", COLUMNS=str(width))
    process = start(tensorgrow, *map(str, arguments), folder=folder, out=there, env=env)
    os.close(there)
    with FileIO(here, "r+") as screen:
        try:
            yield process, screen
        finally:
            process.kill()
            process.join()


def read_within(screen: FileIO, seconds: float) -> bytes:
    """What is shown next; nothing at the end, or if nothing comes in time."""
    if not select.select([screen], [], [], max(0.0, seconds))[0]:
        return b""
    try:
        return screen.read(65536) or b""
    except OSError:  # Linux ends a pseudo-terminal without a writer by an error
        return b""


class Screen(NamedTuple):
    """Everything that was shown, without colours and cursor movements, and the exit code."""

    text: str
    code: int


def run_in_terminal(*arguments: str, folder: Path, seconds: float = 120, width: int = 140) -> Screen:
    """Run ``tensorgrow`` with these arguments as if a person had typed them."""
    shown, deadline = b"", time.monotonic() + seconds
    with typed(*arguments, folder=folder, width=width) as (process, screen):
        while part := read_within(screen, deadline - time.monotonic()):
            shown += part
        process.join(max(1.0, deadline - time.monotonic()))
        code = process.exitcode
    assert code is not None, f"it does not end: {shown!r}"
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8", errors="replace"))
    return Screen(text.replace("\r\n", "\n").replace("\r", "\n"), code)
