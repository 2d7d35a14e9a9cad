"""Clusters: the same bits as threads, lost workers, bad chunks, a scheduler that is gone; many runs."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.parallel.many import map_runs

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")

# Few sweeps: every pass waits for a scheduler.
FAST = tg.GreedyOptions.for_effort("fast").replace(sweeps=2, tolerance=0.05)
ARGUMENTS = {"max_error": 0.02, "random_state": 0, "options": FAST, "method": "stream"}
# Closing clusters leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def tensor():
    hidden = tg.Structure.tensor_ring((8, 9, 7, 6), (2, 3, 2, 3))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense().numpy()
    return x + 0.01 * np.random.default_rng(0).standard_normal(x.shape)


@pytest.fixture
def stored(tmp_path, tensor):
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=tensor.shape, chunks=(2, 9, 7, 6), dtype="f8")
    array[:] = tensor
    return array


def same(a: tg.Result, b: tg.Result) -> bool:
    cores = zip(a.network.cores, b.network.cores)
    return a.structure == b.structure and all(bool((x == y).all()) for x, y in cores)


def test_a_cluster_gives_the_bits_of_threads_and_the_path_of_dense(client, stored, tensor):
    import dask.array as da

    arguments = ARGUMENTS | {"max_steps": 2, "memory_limit": 2.2e5}
    threads = tg.distributed.decompose(stored, threads=1, **arguments)
    remote = tg.distributed.decompose(stored, **arguments)
    assert threads.info["blocks"] > 1
    assert same(remote, threads)
    assert remote.relative_error == threads.relative_error
    chunks = da.from_zarr(stored)
    assert same(
        tg.distributed.decompose(chunks, **arguments),
        tg.distributed.decompose(chunks, threads=1, **arguments),
    )
    del arguments["method"], arguments["memory_limit"]
    dense = tg.decompose(tensor, **arguments)
    assert [(s.kind, s.edge) for s in dense.history] == [(s.kind, s.edge) for s in remote.history]
    assert remote.relative_error == pytest.approx(dense.relative_error, abs=1e-10)


def test_compression_on_a_cluster(client, stored):
    arguments = ARGUMENTS | {"method": "compress"}
    assert same(
        tg.distributed.decompose(stored, **arguments),
        tg.distributed.decompose(stored, threads=1, **arguments),
    )


def test_a_worker_killed_in_the_middle_changes_nothing(client, stored):
    arguments = ARGUMENTS | {"max_steps": 4}
    expected = tg.distributed.decompose(stored, threads=1, **arguments)
    before = set(client.run(os.getpid).values())
    victim = min(before)

    def kill_soon(step):
        if step.index == 1:
            threading.Timer(0.05, os.kill, (victim, signal.SIGKILL)).start()

    result = tg.distributed.decompose(stored, callbacks=kill_soon, **arguments)
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()
    assert same(result, expected)


def test_a_damaged_chunk_is_named_by_a_cluster(client, stored, tmp_path):
    (tmp_path / "x.zarr" / "c" / "1" / "0" / "0" / "0").write_bytes(b"damaged")
    with pytest.raises(tg.DataError, match="chunk c/1/0/0/0"):
        tg.distributed.decompose(stored, **ARGUMENTS)
    import dask.array as da

    with pytest.raises(tg.DataError, match=r"chunk \(1, 0, 0, 0\)"):
        tg.distributed.decompose(da.from_zarr(stored), **ARGUMENTS)


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
            tg.distributed.decompose(stored, client=client, callbacks=close, **arguments)
        client.close(timeout=1)
    resumed = tg.distributed.decompose(stored, threads=1, **arguments)
    straight = tg.distributed.decompose(stored, threads=1, **ARGUMENTS)
    assert resumed.info["passes"] < straight.info["passes"]
    assert same(resumed, straight)


# -- many runs -----------------------------------------------------------------------------------------


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


def test_failing_cases_are_named():
    for where in (None, 1):
        with pytest.raises(ZeroDivisionError) as caught:
            map_runs(divmod_by, [{"x": 1, "y": 2}, {"x": 1, "y": 0}], map=where)
        assert any("'y': 0" in note for note in caught.value.__notes__)
    for wrong in (0, True, "two"):
        with pytest.raises(tg.OptionError, match="map="):
            map_runs(pow, [{"base": 2, "exp": 1}], map=wrong)


def divmod_by(x: int, y: int) -> tuple[int, int]:
    return divmod(x, y)
