"""Many runs at once: here, in threads, in processes and on a cluster."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest

import tensorgrow as tg
from tensorgrow.data.parallel.many import map_runs
from tests.warm import forks

FAST = tg.GreedyOptions.for_effort("fast").replace(sweeps=2, tolerance=0.05)
# Closing clusters leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_many_runs_here_in_threads_and_on_a_cluster(client):
    cases = [{"base": 2, "exp": k} for k in range(5)]
    expected = [1, 2, 4, 8, 16]
    with ThreadPoolExecutor(2) as pool:
        for where in (None, client, pool, map, pool.map):
            assert map_runs(pow, cases, map=where) == expected


def test_seeds_on_a_cluster(client, tensor):
    cases = [{"x": tensor, "max_steps": 2, "random_state": k, "options": FAST} for k in range(2)]
    remote = map_runs(tg.decompose, cases, map=client)
    assert [r.relative_error for r in remote] == [r.relative_error for r in map_runs(tg.decompose, cases)]


def test_failing_cases_are_named(monkeypatch):
    quick = forks()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: quick)
    for where in (None, 1):
        with pytest.raises(ZeroDivisionError) as caught:
            map_runs(divmod_by, [{"x": 1, "y": 2}, {"x": 1, "y": 0}], map=where)
        assert any("'y': 0" in note for note in caught.value.__notes__)
    for wrong in (0, True, "two"):
        with pytest.raises(tg.OptionError, match="map="):
            map_runs(pow, [{"base": 2, "exp": 1}], map=wrong)


def divmod_by(x: int, y: int) -> tuple[int, int]:
    return divmod(x, y)
