"""The contract of the ordered map: results in order, bounded lookahead, errors when their turn comes."""

from __future__ import annotations

import threading
import time
from itertools import cycle

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.parallel.executor import map_in_order

WAYS = [
    {"threads": 0},
    {"threads": 1},
    {"threads": 3},
    {"threads": 2, "lasting": True},
    {"threads": 3, "lasting": True},
]
ways = pytest.mark.parametrize("way", WAYS, ids=str)


def none_alive(workers: set[threading.Thread]) -> bool:
    return not any(w.is_alive() for w in workers - {threading.main_thread()})


@ways
def test_results_come_in_order_whatever_takes_long(way):
    pauses = np.random.default_rng(0).uniform(0.0, 0.002, 30)

    def work(k: int) -> int:
        time.sleep(pauses[k])
        return k * k

    assert list(map_in_order(work, range(30), **way)) == [k * k for k in range(30)]
    assert list(map_in_order(work, [], **way)) == []


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_slots_are_not_used_twice_at_once(slots):
    held: list[int | None] = [None] * slots
    started, lock = [], threading.Lock()
    pauses = np.random.default_rng(0).uniform(0.0, 0.002, 20)

    def work(given: tuple[int, int]) -> tuple[int, int]:
        slot, item = given
        with lock:
            started.append(item)
        held[slot] = item
        time.sleep(pauses[item])
        return slot, item

    seen = []
    for slot, item in map_in_order(work, zip(cycle(range(slots)), range(20)), slots):
        time.sleep(pauses[-item])
        assert held[slot] == item  # nobody wrote there while it was in use
        assert max(started) <= item + slots - 1
        seen.append(item)
    assert seen == list(range(20))


@ways
def test_an_error_comes_when_its_turn_has_come_and_ends_the_work(way):
    workers, started = set(), []

    def work(item: int) -> int:
        started.append(item)
        workers.add(threading.current_thread())
        if item == 3:
            raise tg.DataError("chunk 3 cannot be read")
        return item

    seen = []
    with pytest.raises(tg.DataError, match="chunk 3"):
        for item in map_in_order(work, range(100), **way):
            seen.append(item)
    assert seen == [0, 1, 2]
    assert max(started) <= 3 + 2 * way["threads"]
    if not way.get("lasting"):
        assert none_alive(workers)


@ways
def test_closing_and_interrupts_end_the_work(way):
    workers, started = set(), []

    def work(item: int) -> int:
        started.append(item)
        workers.add(threading.current_thread())
        return item

    results = map_in_order(work, range(1000), **way)
    assert next(results) == 0
    results.close()
    with pytest.raises(KeyboardInterrupt):
        for item in map_in_order(work, range(1000), **way):
            if item == 2:
                raise KeyboardInterrupt
    assert len(started) < 40
    if not way.get("lasting"):
        assert none_alive(workers)
    assert list(map_in_order(work, range(5), **way)) == list(range(5))  # lasting threads go on


@ways
def test_an_interrupt_of_the_work_itself_comes_through(way):
    def work(item: int) -> int:
        if item == 2:
            raise KeyboardInterrupt
        return item

    with pytest.raises(KeyboardInterrupt):
        list(map_in_order(work, range(10), **way))
