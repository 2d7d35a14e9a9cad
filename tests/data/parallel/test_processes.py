"""Processes that end before they have an answer, or whose parent does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tensorgrow as tg
from tensorgrow.data.parallel.processes import process_pool
from tests.warm import forks


def test_a_process_that_ends_says_what_to_do():
    with pytest.raises(tg.ClusterError, match="__main__"), process_pool(1, forks()) as pool:
        pool.submit(os._exit, 1).result()


def test_errors_of_calls_stay_what_they_are():
    with pytest.raises(ZeroDivisionError), process_pool(1, forks()) as pool:
        pool.submit(divmod, 1, 0).result()


KILLED = """
import multiprocessing, os, time
from tensorgrow.data.parallel.processes import process_pool

with process_pool(1, multiprocessing.get_context("fork")) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes of Linux")
def test_processes_end_with_the_one_that_began_them():
    parent = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = Path("/proc") / parent.stdout.readline().strip()
        assert child.exists()
        parent.kill()
    late = time.monotonic() + 60.0
    while child.exists() and "\nState:\tZ" not in (child / "status").read_text():
        assert time.monotonic() < late
        time.sleep(0.05)
