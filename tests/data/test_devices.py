from __future__ import annotations

import math
import os
import threading

import pytest
import torch

import tensorgrow as tg
from tensorgrow.data import devices
from tensorgrow.data.devices import (
    can_limit_threads,
    check_memory,
    choose_device,
    free_memory,
    memory_for,
    one_blas_thread,
    one_thread,
    parse_memory_limit,
    threads_of_run,
    usable_cores,
)

CPU = torch.device("cpu")


# -- threads -------------------------------------------------------------------------------------------


def test_one_thread_and_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            if can_limit_threads():
                from threadpoolctl import threadpool_info

                assert {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"} == {1}
        assert torch.get_num_threads() == 2
        with pytest.raises(RuntimeError, match="stop"), one_thread():
            raise RuntimeError("stop")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_run_that_is_alone_has_the_threads_of_torch_for_its_products():
    before, most = torch.get_num_threads(), min(2, usable_cores())
    torch.set_num_threads(2)
    alone = (most, most) if most > 1 else (0, 1)
    try:
        assert threads_of_run() == (0, 1)  # the BLAS has its own
        with one_blas_thread():
            assert threads_of_run() == alone
        with one_thread():
            assert threads_of_run() == alone
            with one_thread():  # another run beside it
                assert threads_of_run() == (0, most)
        torch.set_num_threads(1)
        with one_thread():
            assert threads_of_run() == (0, 1)
    finally:
        torch.set_num_threads(before)


def test_concurrent_runs_bring_all_threads_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    inside, outside, counts = threading.Barrier(2), threading.Barrier(2), []

    def run() -> None:  # begins within the other's limit, and ends after it
        inside.wait()
        with one_thread(), one_thread():
            outside.wait()
            outside.wait()
        counts.append(torch.get_num_threads())

    other = threading.Thread(target=run)
    other.start()
    try:
        with one_thread():
            inside.wait()
            outside.wait()
        assert torch.get_num_threads() == 2
        outside.wait()
        other.join()
        new = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
        new.start()
        new.join()
        assert counts == [2, 2]
        if can_limit_threads():
            from threadpoolctl import threadpool_info, threadpool_limits

            def blas() -> set[int]:
                return {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}

            with threadpool_limits(2, user_api="blas"):
                most = blas()
                first, second = one_blas_thread(), one_blas_thread()
                first.__enter__()
                second.__enter__()
                first.__exit__(None, None, None)
                assert 1 in blas()  # libraries loaded later than the first limit are not known to it
                second.__exit__(None, None, None)
                assert blas() == most
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system that pins processes")
def test_usable_cores_are_those_the_process_may_run_on():
    before = os.sched_getaffinity(0)
    assert usable_cores() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


# -- memory --------------------------------------------------------------------------------------------


def test_limits_are_the_users_or_what_is_free():
    assert parse_memory_limit(None) is None and parse_memory_limit(5) == 5.0
    assert memory_for(CPU, 1000) == 1000.0 and memory_for(CPU, math.inf) == math.inf
    assert 0 < memory_for(CPU, None) < math.inf
    for wrong in (0, -1, math.nan, "1GB", True):
        with pytest.raises(tg.OptionError, match=r"memory_limit=.* must be a positive number of bytes"):
            memory_for(CPU, wrong)
    check_memory(5, 5.0, "this")
    with pytest.raises(tg.MemoryLimitError, match=r"this needs about 2.00 GB, but the limit is 1.00 GB"):
        check_memory(2 * 10**9, 1e9, "this")


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        (".", ("memory.max", "memory.current", "inactive_file")),
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
    ids=["cgroup 2", "cgroup 1"],
)
def test_containers_limit_what_is_free(folder, names, tmp_path, monkeypatch):
    plain = free_memory(CPU)
    monkeypatch.setattr(devices, "CGROUPS", tmp_path)
    assert free_memory(CPU) == pytest.approx(plain, rel=0.5)  # no such files: no limit
    where = tmp_path / folder
    where.mkdir(exist_ok=True)
    for name, text in zip(names, ("5000", "3000")):
        (where / name).write_text(text)
    (where / "memory.stat").write_text(f"anon 17\n{names[2]} 500\n")
    assert free_memory(CPU) == 2500.0
    monkeypatch.setattr(devices, "_free_in_system", lambda: 1999.0)
    (where / "memory.stat").write_text("not read")  # the container has more left than the system
    assert free_memory(CPU) == 1999.0
    monkeypatch.undo()
    monkeypatch.setattr(devices, "CGROUPS", tmp_path)
    (where / names[0]).write_text("max")
    assert free_memory(CPU) == pytest.approx(plain, rel=0.5)


# -- devices -------------------------------------------------------------------------------------------


def test_where_to_compute(device):
    x = torch.zeros(10, device=device)
    assert choose_device(None, x).type == device and choose_device("cpu", x) == CPU
    assert choose_device("auto", x).type == device  # too small to move
    large = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto", x, flops=1e9).type == large
    for wrong, word in (("tpu", "not known"), (5.5, "not known"), ("meta", "not supported")):
        with pytest.raises(tg.OptionError, match=word):
            choose_device(wrong, x)
