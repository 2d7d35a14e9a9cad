"""Commands in a real pseudo-terminal, where the live progress line is on."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import environment

pty = pytest.importorskip("pty")


class Screen(NamedTuple):
    """Everything that was shown, without colours and cursor movements, and the exit code."""

    text: str
    code: int


def run_in_terminal(*arguments: str, folder: Path, seconds: float = 120, width: int = 140) -> Screen:
    """Run ``tensorgrow`` with these arguments as if a person had typed them."""
    here, there = pty.openpty()
    termios.tcsetwinsize(there, (40, width))
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorgrow", *map(str, arguments)],
        stdin=there,
        stdout=there,
        stderr=there,
        cwd=folder,
        env=environment(TERM="xterm-256color", COLUMNS=str(width)),
        start_new_session=True,
    )
    os.close(there)
    deadline = time.monotonic() + seconds
    shown = b""
    try:
        while select.select([here], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                part = os.read(here, 65536)
            except OSError:  # Linux ends a pseudo-terminal without a writer by an error
                break
            if not part:
                break
            shown += part
        code = process.wait(timeout=max(1.0, deadline - time.monotonic()))
    finally:
        process.kill()
        process.wait()
        os.close(here)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode("utf-8", errors="replace"))
    return Screen(text.replace("\r\n", "\n").replace("\r", "\n"), code)
