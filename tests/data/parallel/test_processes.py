"""Processes that end before they have an answer."""

from __future__ import annotations

import os

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
