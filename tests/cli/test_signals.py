"""Commands that are asked to end, by Ctrl-C, SIGTERM and SIGHUP, with and without a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tests.cli.conftest import environment

for package in ("typer", "rich"):
    pytest.importorskip(package)
pytest.importorskip("pty")

# A search that ends by itself only after minutes, on data that takes no time to read.
COMMAND = ("decompose", "noise.npy", "-e", "1e-3", "--effort", "thorough", "--max-seconds", "300")
BEGUN = ", grow"


@pytest.fixture
def noise(folder: Path) -> None:
    np.save(folder / "noise.npy", np.random.default_rng(0).standard_normal((6, 6, 6, 6)))


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command in a terminal; the process, and our end of the terminal."""
    here, there = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorgrow", *arguments],
        stdin=there,
        stdout=there,
        stderr=there,
        cwd=folder,
        env=environment(TERM="xterm", COLUMNS="120"),
        start_new_session=True,
    )
    os.close(there)
    try:
        yield process, here
    finally:
        process.kill()
        process.wait()
        if here_is_open(here):
            os.close(here)


def here_is_open(stream: int) -> bool:
    try:
        os.fstat(stream)
    except OSError:
        return False
    return True


def read_until(stream: int, words: str, seconds: float = 60.0) -> str:
    """What is shown until some words, or the end."""
    shown, end = "", time.monotonic() + seconds
    while words not in shown and time.monotonic() < end:
        try:
            part = os.read(stream, 65536)
        except OSError:  # Linux ends a pseudo-terminal without a writer by an error
            break
        shown += part.decode("utf-8", errors="replace")
    return shown


def assert_saved(folder: Path) -> None:
    result = tg.load(folder / "noise.safetensors")
    assert result.stop is tg.StopReason.INTERRUPTED
    assert len(result.history) >= 2
    assert not list(folder.glob("*.tmp*")) and not list(folder.glob(".*tmp*"))


def test_the_best_network_is_saved(noise, folder):
    with running(folder, *COMMAND) as (process, here):
        assert BEGUN in read_until(here, BEGUN)
        for _ in range(2):  # the second one changes nothing
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        shown = read_until(here, "no such words")
        assert process.wait(timeout=30) == 130
    assert "the best network so far is saved (noise.safetensors)" in shown.replace("\r\n", " ")
    assert "Traceback" not in shown
    assert_saved(folder)


def test_a_terminal_that_is_closed(noise, folder):
    with running(folder, *COMMAND) as (process, here):
        assert BEGUN in read_until(here, BEGUN)
        os.close(here)
        process.send_signal(signal.SIGHUP)  # what the kernel sends to the owner of a terminal
        assert process.wait(timeout=30) == 128 + signal.SIGHUP
    assert_saved(folder)


def test_without_a_terminal(noise, folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorgrow", *COMMAND, "--checkpoint", "state.safetensors"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (folder / "state.safetensors").exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert "nterrupted" in out
    assert "Traceback" not in errors
    assert_saved(folder)


@pytest.mark.parametrize("seconds", [0.6, 1.5])
def test_the_first_seconds_end_with_one_line(noise, folder, seconds):
    with running(folder, *COMMAND) as (process, here):
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        shown = read_until(here, "no such words")
        code = process.wait(timeout=30)
    assert "Traceback" not in shown
    assert code == 130
    assert "interrupted" in shown
