"""Tensors read block by block: the path of the dense search, from every kind of storage, within a limit."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import (
    is_lazy,
)
from tests.storage import STORAGE, in_dask, in_zarr

FAST = tg.GreedyOptions.for_effort("fast")


def ring(seed: int = 0, noise: float = 0.0, shape=(12, 14, 10, 11)) -> np.ndarray:
    hidden = tg.Structure.tensor_ring(shape, (2, 3, 2, 3))
    x = tg.TensorNetwork.random(hidden, random_state=seed).to_dense().numpy()
    rng = np.random.default_rng(seed)
    return x + noise * np.linalg.norm(x) / math.sqrt(x.size) * rng.standard_normal(x.shape)


def path(result: tg.Result) -> list:
    return [(s.kind, s.edge, s.structure) for s in result.history]


# -- whole runs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FAST, tg.GreedyOptions(certify=False)], ids=["fast", "balanced"])
def test_streaming_takes_the_path_of_the_dense_search(options, monkeypatch):
    x = ring(noise=1e-3, shape=(8, 9, 7, 6))
    arguments = {"max_error": 0.02, "random_state": 0, "options": options}
    dense = tg.decompose(x, **arguments)
    monkeypatch.setattr("tensorgrow.data.blocks.readers.BLOCK_ENTRIES", 1600)
    streamed = tg.decompose(tg.Blocks(x, method="stream"), **arguments)
    assert path(streamed) == path(dense)
    assert streamed.relative_error == pytest.approx(dense.relative_error, abs=1e-10)
    assert streamed.info["blocks"] > 1
    assert streamed.info["method"] == "stream"


@pytest.mark.parametrize("kind", ["float64", "float32", "complex128"])
def test_compressing_finds_what_the_dense_search_finds(kind):
    x = ring(noise=1e-4)
    x = (x + 1j * ring(1) if kind == "complex128" else x).astype(kind)
    big = np.einsum("ijkl,ai->ajkl", x, np.linalg.qr(np.random.default_rng(0).random((90, 12)))[0]).astype(
        kind
    )
    arguments = {"max_error": 0.01, "random_state": 0, "options": FAST}
    dense = tg.decompose(big, **arguments)
    small = tg.decompose(tg.Blocks(big, method="compress"), **arguments)
    assert small.info["passes"] <= 4
    assert small.info["multilinear_ranks"][0] <= 12
    assert small.structure == dense.structure
    error = np.linalg.norm(small.network.to_dense().numpy() - big) / np.linalg.norm(big)
    assert small.relative_error == pytest.approx(error, rel=1e-3)
    assert small.relative_error <= 0.01


def test_bounds_and_trees_hold_in_bases():
    hidden = tg.Structure.tensor_train((60, 7, 8, 55), (3, 4, 2))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense().numpy()
    result = tg.decompose(tg.Blocks(x, method="compress"), max_error=1e-5, random_state=0)
    assert result.num_parameters == hidden.num_parameters
    assert result.relative_error <= 1e-5


def test_what_does_not_compress_is_streamed():
    x = np.random.default_rng(0).standard_normal((70, 60, 50))
    arguments = {"max_steps": 1, "max_error": 0.01, "random_state": 0, "memory_limit": 5e6}
    assert tg.decompose(tg.Blocks(x), **arguments).info["method"] == "stream"
    with pytest.raises(tg.OptionError, match="do not compress"):
        tg.decompose(tg.Blocks(x, method="compress"), **arguments)


def test_scales_zeros_and_whole_numbers():
    x = ring(shape=(5, 6, 4, 3))
    arguments = {"max_error": 1e-3, "random_state": 0, "options": FAST}
    for scale in (1e-20, 1e20):
        huge = (x * scale).astype(np.float32)
        result = tg.decompose(tg.Blocks(huge, method="stream"), **arguments)
        error = np.linalg.norm(result.network.to_dense().double().numpy() / scale - x) / np.linalg.norm(x)
        assert error <= 2e-3
    zero = tg.decompose(tg.Blocks(np.zeros((3, 4))), max_error=0.1)
    assert zero.relative_error == 0.0
    counts = np.arange(24).reshape(2, 3, 4)
    assert tg.decompose(tg.Blocks(counts), max_error=1e-8).network.dtype == torch.float64


def test_bad_input():
    x = np.ones((4, 5, 6))
    x[2, 3, 1] = np.nan
    with pytest.raises(tg.DataError, match=r"block \[2:3"):
        tg.decompose(tg.Blocks(x), max_error=0.1, memory_limit=5e3)
    with pytest.raises(tg.DataError, match="empty"):
        tg.decompose(tg.Blocks(np.ones((3, 0))), max_error=0.1)
    with pytest.raises(tg.OptionError, match="method"):
        tg.Blocks(np.ones((3, 2)), method="magic")
    with pytest.raises(tg.OptionError, match="threads"):
        tg.Blocks(np.ones((3, 2)), threads=0)
    with pytest.raises(tg.DataError, match="cannot be read block by block"):
        tg.Blocks([1.0, 2.0])
    with pytest.raises(tg.MemoryLimitError):
        tg.decompose(tg.Blocks(np.ones((300, 300)), method="stream"), max_error=0.1, memory_limit=2e3)


# -- storage ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    x = ring(noise=1e-3)
    return x, tg.decompose(x, max_error=0.02, max_steps=2, random_state=0, options=FAST)


@pytest.mark.parametrize("store", STORAGE)
def test_every_storage_gives_the_dense_result(store, tmp_path, reference):
    x, dense = reference
    stored = store(tmp_path, x)
    assert is_lazy(stored)
    arguments = {"max_error": 0.02, "max_steps": 2, "random_state": 0, "options": FAST}
    streamed = tg.decompose(tg.Blocks(stored, method="stream"), memory_limit=1.2e6, **arguments)
    assert streamed.info["blocks"] > 1
    assert path(streamed) == path(dense)
    assert streamed.relative_error == pytest.approx(dense.relative_error, abs=1e-10)
    loaded = tg.decompose(stored, **arguments)  # it fits
    assert "method" not in loaded.info
    assert loaded.relative_error == dense.relative_error
    small = tg.decompose(stored, memory_limit=6e5, **arguments)  # it does not
    assert small.info["method"] in ("compress", "stream")
    assert small.structure == dense.structure


def test_a_checkpoint_of_other_blocks_is_refused(tmp_path):
    """Each block has the same norm as before; how the tensor is cut does not matter."""
    x, file = ring(noise=1e-3), tmp_path / "run.safetensors"
    arguments = {"max_error": 0.02, "max_steps": 1, "random_state": 0, "options": FAST}
    first = tg.decompose(tg.Blocks(x, threads=1), checkpoint=file, **arguments)
    other = x.copy()
    other[1:] *= -1
    with pytest.raises(tg.OptionError, match="belongs to another run: its data is"):
        tg.decompose(tg.Blocks(other, threads=1), checkpoint=file, **arguments)
    again = tg.decompose(tg.Blocks(x, threads=2), checkpoint=file, memory_limit=3e6, **arguments)
    assert again.history[0].seconds == first.history[0].seconds


# -- faults ----------------------------------------------------------------------------------------------


def test_a_damaged_chunk_is_named_and_the_checkpoint_goes_on(tmp_path):
    x = ring(noise=1e-3)
    stored = in_zarr(tmp_path, x)
    chunk = tmp_path / "x.zarr" / "c" / "1" / "0" / "1" / "0"
    good = chunk.read_bytes()
    arguments = {"max_error": 0.02, "max_steps": 5, "random_state": 0, "options": FAST}
    arguments |= {"memory_limit": 1.2e6}
    blocks = tg.Blocks(stored, method="stream")

    def damage(step):
        if step.index == 3:
            chunk.write_bytes(good[: len(good) // 2])

    checkpoint = tmp_path / "run.safetensors"
    with pytest.raises(tg.DataError, match=r"chunk c/1/0/1/0 of the zarr array .*x\.zarr cannot be read"):
        tg.decompose(blocks, callbacks=damage, checkpoint=checkpoint, **arguments)
    chunk.write_bytes(good)
    resumed = tg.decompose(blocks, checkpoint=checkpoint, **arguments)
    straight = tg.decompose(blocks, **arguments)
    assert resumed.info["passes"] < straight.info["passes"]
    assert path(resumed) == path(straight)
    assert resumed.relative_error == pytest.approx(straight.relative_error, rel=1e-12)


def test_data_that_changes_during_the_run_is_noticed(tmp_path):
    stored = in_zarr(tmp_path, ring(noise=1e-3))

    def change(step):
        stored[0] = 0.0

    with pytest.raises(tg.DataError, match="changed while it was read"):
        blocks = tg.Blocks(stored, method="compress")
        tg.decompose(blocks, max_error=0.02, random_state=0, options=FAST, callbacks=change)


def test_chunks_larger_than_the_limit_are_refused(tmp_path):
    x = ring()
    with pytest.raises(tg.MemoryLimitError, match="smaller chunks"):
        tg.decompose(in_zarr(tmp_path, x), max_error=0.1, memory_limit=1e5)
    with pytest.raises(tg.MemoryLimitError, match="rechunk"):
        tg.decompose(in_dask(tmp_path, x), max_error=0.1, memory_limit=1e5)


# -- memory ----------------------------------------------------------------------------------------------


UNDER_A_LIMIT = """
import json, os, resource, sys, threading
from concurrent.futures import ThreadPoolExecutor
# Threads take room that Linux counts, before they have any data: as many as have theirs before the limit.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:4])
threading.stack_size(1 << 20)  # Linux counts stacks in full, used or not
import numpy as np, torch
torch.set_num_threads(1)
import tensorgrow as tg
name, limit, *methods = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]

def decompose(x, method, steps):
    limits = {"max_error": 0.02, "max_steps": steps, "memory_limit": limit}
    return tg.decompose(tg.Blocks(x, method=method), **limits, random_state=0, effort="fast")

for method in methods:
    decompose(np.random.default_rng(0).random((50, 50, 50), dtype=np.float32), method, 1)
together = threading.Barrier(4)
def multiply(_):  # libraries take their own buffers, one per thread that computes while others do
    for dtype in (np.float32, np.float64):
        a = np.ones((200, 200), dtype=dtype)
        together.wait()
        for _ in range(150):
            a @ a
            torch.from_numpy(a) @ torch.from_numpy(a)
with ThreadPoolExecutor(4) as pool:
    list(pool.map(multiply, range(4)))
with open("/proc/self/status") as file:
    used = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + limit, used + limit))
x = np.load(name, mmap_mode="r")
try:
    np.ones(2 * limit, dtype=np.uint8)
except MemoryError:
    pass
else:
    sys.exit("the limit does not hold")
for method in methods:
    r = decompose(x, method, 2 if method == "stream" else None)
    print(json.dumps([x.nbytes, r.relative_error, r.info["method"], r.info["blocks"]]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux counts them")
def test_memory_stays_within_the_limit_for_a_tensor_ten_times_larger(tmp_path):
    limit = 16_000_000
    shape = (360, 340, 330)
    rng = np.random.default_rng(0)
    factors = [np.cumsum(rng.standard_normal((n, 4)), 0).astype(np.float32) for n in shape]
    stored = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, shape[0], 50):
        stored[start : start + 50] = np.einsum("ia,ja,ka->ijk", factors[0][start : start + 50], *factors[1:])
    stored.flush()
    del stored
    source = str(Path(tg.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": source}
    methods = ("compress", "stream")
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "x.npy"), str(limit), *methods]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    for method, line in zip(methods, done.stdout.splitlines(), strict=True):
        size, error, used, blocks = json.loads(line)
        assert size >= 10 * limit
        assert used == method
        assert blocks > 10
        assert error < (0.02 if method == "compress" else 1.0)


# -- fits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1e-3, 0.0])
def test_fits_of_lazy_arrays(noise, tmp_path):
    """On the core where that suffices, else on all blocks."""
    x = ring(noise=noise)
    structure = tg.Structure.tensor_ring(x.shape, (2, 3, 2, 3))
    arguments = {"random_state": 0, "max_sweeps": 200}
    stored = in_zarr(tmp_path, x)
    dense = tg.fit(x, structure, **arguments)
    loaded = tg.fit(stored, structure, **arguments)
    assert loaded.relative_error == dense.relative_error
    blockwise = tg.fit(stored, structure, memory_limit=6e5, **arguments)
    assert blockwise.info["passes"] >= 3
    assert blockwise.relative_error <= dense.relative_error * 1.01 + 1e-5
    rest = np.linalg.norm(blockwise.network.to_dense().numpy() - x) / np.linalg.norm(x)
    assert blockwise.relative_error == pytest.approx(rest, rel=1e-6, abs=1e-9)
    with pytest.raises(tg.DataError, match="the structure is for"):
        tg.fit(stored, tg.Structure.tensor_ring((3, 4, 5), 2), memory_limit=6e5)


def test_fits_of_what_does_not_compress():
    x = np.random.default_rng(0).standard_normal((40, 30, 20))
    structure = tg.Structure.tensor_train(x.shape, 3)
    arguments = {"max_sweeps": 5, "tolerance": 0.0, "random_state": 0}
    streamed = tg.fit(tg.Blocks(x), structure, memory_limit=1.2e6, **arguments)
    dense = tg.fit(x, structure, **arguments)
    assert streamed.info["method"] == "stream"
    assert streamed.relative_error == pytest.approx(dense.relative_error, abs=1e-10)
    assert streamed.stop == dense.stop
    zero = tg.fit(tg.Blocks(np.zeros(x.shape)), structure, **arguments)
    assert zero.relative_error == 0.0


@pytest.mark.parametrize("seed", range(40))
def test_complex_tensors_compress(seed):
    rng = np.random.default_rng(seed)
    dims = tuple(int(n) for n in rng.integers(3, 13, int(rng.integers(2, 4))))
    ranks = [int(n) for n in rng.integers(1, 4, len(dims))]

    def draw(*shape):
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)

    x = draw(*ranks)
    for k, n in enumerate(dims):
        x = np.moveaxis(np.tensordot(draw(n, ranks[k]), x, (1, k)), 0, k)
    x += (seed % 2) * 1e-3 * np.abs(x).mean() * draw(*dims)
    x = x.astype(np.complex64 if seed % 4 == 3 else np.complex128)
    result = tg.decompose(tg.Blocks(x), max_error=0.05, options=FAST, random_state=0)
    error = np.linalg.norm(result.network.to_dense().numpy() - x) / np.linalg.norm(x)
    assert result.relative_error == pytest.approx(error, rel=1e-3, abs=1e-6) and error <= 0.05
    lazy = torch.from_numpy(x).conj()  # the conjugate is not written out
    for method in ("compress", "stream"):
        blocks = tg.Blocks(lazy, method=method)
        assert (
            tg.fit(
                blocks, result.structure, init=conjugate(result), max_sweeps=1, random_state=0
            ).relative_error
            <= 0.05
        )


def conjugate(result):
    return tg.TensorNetwork(result.structure, [c.conj() for c in result.network.cores])
