"""Commands that are asked to end, by Ctrl-C, SIGTERM and SIGHUP, with and without a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from io import FileIO
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.files import read_file
from tests.cli.conftest import environment
from tests.cli.terminal import read_within, typed
from tests.warm import start, tensorgrow

for package in ("typer", "rich"):
    pytest.importorskip(package)

# A search that ends by itself only after minutes, on data that takes no time to read.
COMMAND = ("decompose", "noise.npy", "-e", "1e-3", "--effort", "thorough", "--max-seconds", "300")
BEGUN = ", grow"


@pytest.fixture
def noise(folder: Path) -> None:
    np.save(folder / "noise.npy", np.random.default_rng(0).standard_normal((6, 6, 6, 6)))


def read_until(screen: FileIO, words: str, seconds: float = 60.0) -> str:
    """What is shown until some words, or the end."""
    shown, end = b"", time.monotonic() + seconds
    while words.encode() not in shown and (part := read_within(screen, end - time.monotonic())):
        shown += part
    return shown.decode("utf-8", errors="replace")


def assert_saved(folder: Path) -> None:
    result = tg.load(folder / "noise.safetensors")
    assert result.stop is tg.StopReason.INTERRUPTED
    assert len(result.history) >= 2
    assert not list(folder.glob("*.tmp*")) and not list(folder.glob(".*tmp*"))


def end_code(process: BaseProcess) -> int | None:
    process.join(60)
    return process.exitcode


def test_the_best_network_is_saved(noise, folder):
    with typed(*COMMAND, folder=folder) as (process, screen):
        assert BEGUN in read_until(screen, BEGUN)
        for _ in range(2):  # the second one changes nothing
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.01)
        shown = read_until(screen, "no such words")
        assert end_code(process) == 130
    assert "the best network so far is saved (noise.safetensors)" in shown.replace("\r\n", " ")
    assert "Traceback" not in shown
    assert_saved(folder)


def test_a_terminal_that_is_closed(noise, folder):
    with typed(*COMMAND, folder=folder) as (process, screen):
        assert BEGUN in read_until(screen, BEGUN)
        screen.close()
        os.kill(process.pid, signal.SIGHUP)  # what the kernel sends to the owner of a terminal
        assert end_code(process) == 128 + signal.SIGHUP
    assert_saved(folder)


def num_steps(file: Path) -> int:
    return len(read_file(file, ("checkpoint",))[0]["state"]["steps"])


def test_without_a_terminal(noise, folder):
    file = folder / "state.safetensors"
    arguments = (*COMMAND, "--checkpoint", file.name)
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = start(tensorgrow, *arguments, folder=folder, out=out.fileno(), err=err.fileno())
    try:
        while process.is_alive() and not (file.exists() and num_steps(file) > 1):
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        code = end_code(process)
    finally:
        process.kill()
    errors = (folder / "err").read_text()
    assert code == 143, errors
    assert "nterrupted" in (folder / "out").read_text()
    assert "Traceback" not in errors
    assert_saved(folder)


@pytest.mark.parametrize("seconds", [0.6, 1.5])
def test_the_first_seconds_end_with_one_line(noise, folder, seconds):
    """While torch is loaded: not in a process that has it already."""
    here, there = os.openpty()
    command = [sys.executable, "-m", "tensorgrow", *COMMAND]
    env = environment(TERM="xterm", COLUMNS="120")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), there)
    with (
        FileIO(here, "r+") as screen,
        subprocess.Popen(command, **streams, cwd=folder, env=env, start_new_session=True) as process,
    ):
        os.close(there)
        try:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            shown = read_until(screen, "no such words")
            code = process.wait(timeout=60)
        finally:
            process.kill()
    assert "Traceback" not in shown
    assert code == 130
    assert "interrupted" in shown
