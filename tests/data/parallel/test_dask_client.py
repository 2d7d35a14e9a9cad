"""Clusters: the same bits as threads, lost workers, bad chunks, a scheduler that is gone."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import tensorgrow as tg
from tensorgrow.data.parallel.dask_client import gather_in_order

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")

# Few sweeps: every pass waits for a scheduler.
FAST = tg.GreedyOptions.for_effort("fast").replace(sweeps=2, tolerance=0.05)
ARGUMENTS = {"max_error": 0.02, "random_state": 0, "options": FAST}
# Closing clusters leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def stored(tmp_path, tensor):
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=tensor.shape, chunks=(2, 9, 7, 6), dtype="f8")
    array[:] = tensor
    return array


def decompose(x, *, method="stream", client=None, threads=None, **arguments) -> tg.Result:
    return tg.decompose(tg.Blocks(x, method=method, client=client, threads=threads), **arguments)


def same(a: tg.Result, b: tg.Result) -> bool:
    cores = zip(a.network.cores, b.network.cores)
    return a.structure == b.structure and all(bool((x == y).all()) for x, y in cores)


def test_a_cluster_gives_the_bits_of_threads_and_the_path_of_dense(client, stored, tensor):
    import dask.array as da

    arguments = ARGUMENTS | {"max_steps": 2, "memory_limit": 2.2e5}
    threads = decompose(stored, threads=1, **arguments)
    remote = decompose(stored, **arguments)
    assert threads.info["blocks"] > 1
    assert same(remote, threads)
    assert remote.relative_error == threads.relative_error
    chunks = da.from_zarr(stored)
    assert same(
        decompose(chunks, **arguments),
        decompose(chunks, threads=1, **arguments),
    )
    del arguments["memory_limit"]
    dense = tg.decompose(tensor, **arguments)
    assert [(s.kind, s.edge) for s in dense.history] == [(s.kind, s.edge) for s in remote.history]
    assert remote.relative_error == pytest.approx(dense.relative_error, abs=1e-10)


def test_compression_on_a_cluster(client, stored):
    arguments = ARGUMENTS | {"method": "compress"}
    assert same(
        decompose(stored, **arguments),
        decompose(stored, threads=1, **arguments),
    )


def test_a_worker_killed_in_the_middle_changes_nothing(client, stored):
    arguments = ARGUMENTS | {"max_steps": 4}
    expected = decompose(stored, threads=1, **arguments)
    before = set(client.run(os.getpid).values())
    victim = min(before)

    def kill_soon(step):
        if step.index == 1:
            threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()

    result = decompose(stored, callbacks=kill_soon, **arguments)
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()
    assert same(result, expected)


def kill_holder(client, future):
    """Kill the worker that has a result, and wait until the client knows that the result is lost."""
    (holder,) = client.who_has(future)[future.key]
    os.kill(client.run(os.getpid, workers=[holder])[holder], signal.SIGKILL)
    for _ in range(500):
        if future.status == "lost":
            return
        time.sleep(0.02)
    raise AssertionError(f"the future is {future.status}")


def slow_square(x):
    time.sleep(0.5)  # the loss is seen before it is computed again
    return x * x


def test_a_result_that_is_lost_before_it_is_fetched_is_computed_again(client, monkeypatch):
    futures = client.map(slow_square, [2, 3], pure=False)
    real_wait, killed = distributed.wait, []

    def wait_and_kill(some, timeout):
        done = real_wait(some, timeout=timeout)
        if not killed:
            kill_holder(client, some[0])
            killed.append(some[0])
        return done

    monkeypatch.setattr(distributed, "wait", wait_and_kill)
    assert list(gather_in_order(client, lambda: futures, lambda k, error: error)) == [4, 9]
    assert killed
    client.wait_for_workers(2, timeout=60)


def test_a_damaged_chunk_is_named_by_a_cluster(client, stored, tmp_path):
    (tmp_path / "x.zarr" / "c" / "1" / "0" / "0" / "0").write_bytes(b"damaged")
    with pytest.raises(tg.DataError, match="chunk c/1/0/0/0"):
        decompose(stored, **ARGUMENTS)
    import dask.array as da

    with pytest.raises(tg.DataError, match=r"chunk \(1, 0, 0, 0\)"):
        decompose(da.from_zarr(stored), **ARGUMENTS)


def fail(block, error):
    raise error


FAULTS = {
    "OSError": (OSError("the disk is away"), r"chunk \(.*OSError: the disk is away"),
    "FileNotFoundError": (FileNotFoundError(2, "no such file"), r"chunk \(.*FileNotFoundError"),
    "TimeoutError": (TimeoutError("the store was slow"), r"chunk \(.*TimeoutError: the store was slow"),
    "ConnectionError": (ConnectionResetError("the store hung up"), r"chunk \(.*ConnectionResetError"),
    "ValueError": (ValueError("odd numbers"), r"chunk \(.*ValueError: odd numbers"),
    "complex": (None, "imaginary part would be lost"),
}


@pytest.mark.parametrize("where", ["threads", "cluster"])
@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_chunk_does_wrong_is_said(fault, where, client, tensor):
    import dask.array as da

    error, words = FAULTS[fault]
    chunks = da.from_array(tensor, chunks=(4, 9, 7, 6))
    if error is None:
        bad = chunks.map_blocks(lambda b: b * (1 + 1j), dtype=float, meta=tensor[:0])
    else:
        bad = chunks.map_blocks(fail, error, dtype=float, meta=tensor[:0])
    chosen = {"threads": 1} if where == "threads" else {"client": client}
    with pytest.raises(tg.DataError, match=words):
        decompose(bad, **chosen, **ARGUMENTS)


def test_a_closed_client_is_an_error_of_its_own(stored):
    with distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address=":0", memory_limit=0
    ) as cluster:
        client = distributed.Client(cluster, set_as_default=False)
        client.close()
        with pytest.raises(tg.ClusterError, match=r"client .* is closed. Connect a new one"):
            decompose(stored, client=client, **ARGUMENTS)


def test_a_scheduler_that_is_gone_is_an_error_with_a_checkpoint(stored, tmp_path):
    checkpoint = tmp_path / "run.safetensors"
    with distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address=":0", memory_limit=0
    ) as cluster:
        client = distributed.Client(cluster, timeout="2s", set_as_default=False)

        def close(step):
            if step.index == 2:
                cluster.close()

        arguments = ARGUMENTS | {"checkpoint": checkpoint}
        with pytest.raises(tg.ClusterError, match="scheduler"):
            decompose(stored, client=client, callbacks=close, **arguments)
        client.close(timeout=1)
    resumed = decompose(stored, threads=1, **arguments)
    straight = decompose(stored, threads=1, **ARGUMENTS)
    assert resumed.info["passes"] < straight.info["passes"]
    assert same(resumed, straight)
