from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.contraction import clear_plans, sweep_plan
from tensorgrow.contraction.cache import PlanCaches, bytes_of, plans
from tensorgrow.nn.layer import plans as layer_plans
from tensorgrow.structure import Structure


def listing(most=20_000):
    """Caches, a function in them that returns a bytes object of 1,000, and the arguments it ran with."""
    caches, ran = PlanCaches(most), []

    @caches.cached
    def text(number, *, scale=1):
        ran.append((number, scale))
        return bytes(1_000 * scale)

    return caches, text, ran


def test_a_hit_returns_what_was_made_and_makes_nothing():
    caches, text, ran = listing()
    first = text(3)
    assert text(3) is first
    assert text(3, scale=2) is text(3, scale=2) is not first
    assert ran == [(3, 1), (3, 2)]
    assert len(caches) == 2


def test_bytes_are_bounded_over_all_functions():
    caches, text, _ = listing()
    other = caches.cached(lambda number: bytes(2_000))
    for k in range(300):
        text(k)
        other(k)
        assert 0 < caches.bytes <= 20_000
    assert 5 <= len(caches) <= 20


def test_what_was_not_asked_for_longest_goes_first():
    _, text, ran = listing()
    for k in range(300):
        text(k)
        text(0)
    assert ran.count((0, 1)) == 1
    del ran[:]
    text(299)
    text(1)
    assert ran == [(1, 1)]


def test_what_is_larger_than_the_bound_is_not_kept_and_drops_nothing():
    caches = PlanCaches(20_000)
    small, large = caches.cached(lambda k: bytes(100)), caches.cached(lambda k: bytes(100_000))
    kept = small(1)
    assert len(large(1)) == 100_000
    assert len(caches) == 1
    assert small(1) is kept


def test_clear_forgets_everything():
    caches, text, ran = listing()
    text(1)
    caches.clear()
    assert (len(caches), caches.bytes) == (0, 0)
    text(1)
    assert ran == [(1, 1)] * 2


def test_functions_may_call_themselves_and_an_error_is_not_kept():
    caches = PlanCaches(1_000_000)

    @caches.cached
    def fibonacci(n):
        if n < 0:
            raise ValueError(n)
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(80) == 23416728348467685
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            fibonacci(-1)
    assert len(caches) == 81


def test_threads_get_right_answers_within_the_bound():
    caches = PlanCaches(20_000)
    squares = [caches.cached(lambda k, n=n: (k * k + n, bytes(500))) for n in range(3)]

    def work(seed):
        numbers = np.random.default_rng(seed).integers(0, 60, 2_000).tolist()
        return all(squares[k % 3](k)[0] == k * k + k % 3 for k in numbers) and caches.bytes <= 20_000

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)


def test_threads_that_ask_at_once_get_one_object():
    caches = PlanCaches(1_000_000)
    made = []

    @caches.cached
    def slow(k):
        made.append(k)
        while len(made) < 2:  # both threads are in here before either returns
            pass
        return [k]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(slow, (1, 1))
    assert first is second
    assert len(caches) == 1


def test_bytes_are_counted_with_all_that_is_referred_to_once():
    text = "x" * 10_000
    assert 10_000 < bytes_of([text]) < 10_200
    assert bytes_of([text, (text,), {1: text}]) < 10_600
    array = np.zeros((1_000, 3))
    assert 24_000 < bytes_of(tuple(array.T)) < 25_000  # views
    assert 8_000 < bytes_of({"a": torch.zeros(1_000, dtype=torch.float64)}) < 9_500
    assert bytes_of(bytes_of, int, np) == 0
    structure = Structure.tensor_ring((7,) * 5, 5)
    assert 10_000 < bytes_of(structure, sweep_plan(structure, False)) < 60_000


def test_a_plan_function_can_be_sent_elsewhere():
    assert pickle.loads(pickle.dumps(sweep_plan)) is sweep_plan


def test_a_run_stays_within_the_bound_and_finds_the_same(fresh_plans, monkeypatch):
    monkeypatch.setattr(plans, "most", 100_000)
    x = tg.TensorNetwork.random(Structure.tensor_ring((4, 3, 5), 2), random_state=0).to_dense()
    bounded = tg.decompose(x, max_error=1e-6, random_state=0)
    assert 0 < plans.bytes <= 100_000
    monkeypatch.undo()
    free = tg.decompose(x, max_error=1e-6, random_state=0)
    assert bounded.network.structure == free.network.structure
    for a, b in zip(bounded.network.cores, free.network.cores):
        assert torch.equal(a, b)


def test_clear_plans_forgets_those_of_layers_and_of_entries():
    tg.nn.TNLinear(16, 16)
    network = tg.TensorNetwork.random(Structure.tensor_train((2, 3), 2), random_state=0)
    clear_plans()
    network.entries(np.zeros((1, 2), dtype=int))
    layer_plans.dense_plan(tg.nn.TNLinear(16, 16).layout, tg.nn.TNLinear(16, 16).structure)
    assert len(plans) >= 2
    clear_plans()
    assert (len(plans), plans.bytes) == (0, 0)
