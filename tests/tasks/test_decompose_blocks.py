"""Tensors read block by block: against the dense objective, from every kind of storage, within a limit."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import (
    ArraySource,
    Form,
    ThreadReducer,
    is_lazy,
)
from tensorgrow.objectives import BlockedLeastSquares, CompressedLeastSquares, DenseLeastSquares
from tensorgrow.objectives.block_kernels import dots, largest_of, norms_squared, sum_of_squares
from tensorgrow.solvers import ALSSettings, als
from tests.oracles import (
    TOLERANCE,
    assert_close,
    node_equations,
    pair_gradient,
    random_array,
    random_network,
    to_numpy,
)
from tests.storage import STORAGE, in_dask, in_zarr

SHAPE = (6, 7, 5, 4)
STRUCTURE = tg.Structure(SHAPE, {(0, 1): 2, (2, 3): 3, (0, 4): 2, (1, 4): 2, (2, 4): 2}, num_nodes=5)
PAIRS = list(combinations(range(5), 2))
FAST = tg.GreedyOptions.for_effort("fast")


def blocked(x: torch.Tensor, max_entries: int = 30, device: str | None = None, threads: int = 1):
    source = ArraySource(x)
    form = Form(str(x.dtype).removeprefix("torch."), device)
    return BlockedLeastSquares(ThreadReducer(source, source.boxes(max_entries), form, threads))


def ring(seed: int = 0, noise: float = 0.0, shape=(12, 14, 10, 11)) -> np.ndarray:
    hidden = tg.Structure.tensor_ring(shape, (2, 3, 2, 3))
    x = tg.TensorNetwork.random(hidden, random_state=seed).to_dense().numpy()
    rng = np.random.default_rng(seed)
    return x + noise * np.linalg.norm(x) / math.sqrt(x.size) * rng.standard_normal(x.shape)


def path(result: tg.Result) -> list:
    return [(s.kind, s.edge, s.structure) for s in result.history]


# -- blocks --------------------------------------------------------------------------------------------


def test_sums_of_squares_and_largest_entries(dtype):
    x = random_array(np.random.default_rng(0), (3, 1025), dtype)
    expected = float((np.abs(to_numpy(x)) ** 2).sum())
    parts = to_numpy(x)
    largest = max(abs(parts.real).max(), abs(parts.imag).max())
    for array in (x, x.numpy()):
        assert sum_of_squares(array) == pytest.approx(expected, rel=1e-6)
        assert largest_of(array) == pytest.approx(largest, rel=1e-6)
    rows = torch.view_as_real(x).reshape(3, -1) if x.is_complex() else x
    assert float(dots(rows)) == pytest.approx(expected, rel=1e-6)
    assert float(norms_squared(rows)) == pytest.approx(expected, rel=1e-6)
    x[1, 3] = math.nan
    assert math.isnan(largest_of(x)) and math.isnan(largest_of(x.numpy()))


# -- the objective -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [None, "cpu"], ids=["numpy", "torch"])
@pytest.mark.parametrize("most", [30, 160])
def test_blockwise_equals_dense(dtype, form, most):
    x = random_array(np.random.default_rng(1), SHAPE, dtype)
    network = random_network(STRUCTURE, 2, dtype)
    dense, blocks = DenseLeastSquares(x), blocked(x, most, form)
    tolerance = TOLERANCE[dtype]
    assert blocks.norm == pytest.approx(dense.norm, rel=tolerance)
    assert blocks.dims == dense.dims
    a, b = dense.to_arrays(network), blocks.to_arrays(network)
    assert blocks.loss(STRUCTURE, b) == pytest.approx(dense.loss(STRUCTURE, a), rel=tolerance)
    ours, theirs = node_equations(blocks, network), node_equations(dense, network)
    for node in range(STRUCTURE.num_nodes):
        for mine, other in zip(ours[node], theirs[node]):
            assert_close(mine, other, tolerance)
    for edge in PAIRS:
        assert_close(pair_gradient(blocks, network, edge), pair_gradient(dense, network, edge), tolerance)
    rest, same = dense.residual(network), blocks.residual(network)
    assert same.norm == pytest.approx(rest.norm, rel=tolerance)
    assert_close(pair_gradient(same, network, (0, 2)), pair_gradient(rest, network, (0, 2)), tolerance)


def test_sweeps_and_slices_equal_dense(double):
    x = random_array(np.random.default_rng(1), SHAPE, double)
    network = random_network(STRUCTURE, 2, double)
    dense, blocks = DenseLeastSquares(x, use_numpy=True), blocked(x)
    a, b = dense.to_arrays(network), blocks.to_arrays(network)
    for _ in range(3):
        assert blocks.sweep(STRUCTURE, b, 1e-14) == pytest.approx(dense.sweep(STRUCTURE, a, 1e-14), rel=1e-9)
    for ours, theirs in zip(b, a):
        assert_close(ours, theirs, 1e-7)
    for ours, theirs in zip(
        blocks.pair_problems(STRUCTURE, b, PAIRS), dense.pair_problems(STRUCTURE, a, PAIRS)
    ):
        assert ours.edge == theirs.edge
        assert_close(ours.gradient, theirs.gradient, 1e-7)
        for way, arguments in (("fit", (None, 2)), ("fit_separable", ())):
            found, expected = getattr(ours, way)(*arguments), getattr(theirs, way)(*arguments)
            assert found.explained == pytest.approx(expected.explained, rel=1e-5)


@pytest.mark.parametrize("form", [None, "cpu"], ids=["numpy", "torch"])
@pytest.mark.parametrize("seed", [0, 1])
def test_losses_of_single_precision_are_those_of_the_residual(form, seed):
    """Smooth data makes Gram matrices ill-conditioned; a sweep gains less than their rounding would cost."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.standard_normal((24, 3, 3)).cumsum(0) for _ in range(3))
    x = np.einsum("ipq,jqr,krp->ijk", a, b, c)
    x = (x / abs(x).max() + 1e-3 * rng.standard_normal(x.shape)).astype(np.float32)
    structure = tg.Structure(x.shape, {(0, 1): 3, (1, 2): 3, (0, 2): 2})
    objective = blocked(torch.from_numpy(x), 2500, form)
    start = random_network(structure, 0, torch.float32)
    fit = als(objective, start, ALSSettings(max_sweeps=30, tolerance=0.0, accelerate=True))
    arrays = objective.to_arrays(fit.network)
    for _ in range(5):
        squared = objective.sweep(structure, arrays, 1e-14)
        assert math.sqrt(squared) == pytest.approx(objective.loss(structure, arrays), rel=1e-4)
    assert all(a.dtype == b.dtype for a, b in zip(arrays, objective.to_arrays(fit.network)))


def test_passes_are_as_few_as_promised():
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    blocks = blocked(x)
    network = random_network(STRUCTURE, 2)
    arrays = blocks.to_arrays(network)
    count = blocks.reducer.passes
    assert blocks.norm > 0
    for call, passes in (
        (lambda: blocks.norm, 1),
        (lambda: blocks.sweep(STRUCTURE, arrays, 1e-14), 3),
        (lambda: blocks.loss(STRUCTURE, arrays), 4),
        (lambda: blocks.pair_problems(STRUCTURE, arrays, PAIRS), 5),
        (lambda: node_equations(blocks, network), 7),
    ):
        call()
        assert blocks.reducer.passes - count == passes


def test_threads_give_the_same_bits():
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    network = random_network(STRUCTURE, 2)
    found = []
    for threads in (1, 4):
        objective = blocked(x, threads=threads)
        found.append(als(objective, network, ALSSettings(max_sweeps=3)))
    assert found[0].losses == found[1].losses
    for a, b in zip(found[0].network.cores, found[1].network.cores):
        assert torch.equal(a, b)


def test_a_core_in_bases_stands_for_the_whole_tensor(double):
    rng = np.random.default_rng(3)
    bases = [torch.linalg.qr(random_array(rng, (n, r), double))[0] for n, r in zip(SHAPE, (3, 4, 2, 3))]
    core = random_array(rng, (3, 4, 2, 3), double)
    x = torch.einsum("abcd,ia,jb,kc,ld->ijkl", core, *bases)
    outside = random_array(rng, SHAPE, double)
    for k, u in enumerate(bases):  # what is left has no part in the bases
        inside = torch.tensordot(u @ u.mH, outside.movedim(k, 0), dims=1).movedim(0, k)
        outside = outside - inside
    dense = DenseLeastSquares(x + outside)
    small = CompressedLeastSquares(core, bases, float(torch.linalg.vector_norm(outside)))
    assert small.norm == pytest.approx(dense.norm)
    network = random_network(STRUCTURE, 2, double)
    a, b = dense.to_arrays(network), small.to_arrays(network)
    for _ in range(2):  # from the second sweep on all cores lie in the bases
        ours, theirs = small.sweep(STRUCTURE, b, 1e-14), dense.sweep(STRUCTURE, a, 1e-14)
    fitted = small.to_network(STRUCTURE, b)
    assert small.loss(STRUCTURE, b) == pytest.approx(dense.loss(STRUCTURE, dense.to_arrays(fitted)))
    assert ours == pytest.approx(theirs, rel=0.5)
    for problem in small.pair_problems(STRUCTURE, b, PAIRS):
        left, right, explained = problem.fit(None, 2)
        grown = fitted.grow_edge(*problem.edge, slices=(torch.as_tensor(left), torch.as_tensor(right)))
        after = dense.loss(grown.structure, dense.to_arrays(grown)) ** 2
        assert after == pytest.approx(small.loss(STRUCTURE, b) ** 2 - explained, rel=1e-6)
    assert small.residual(fitted).norm == pytest.approx(small.loss(STRUCTURE, b))


# -- whole runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FAST, tg.GreedyOptions(certify=False)], ids=["fast", "balanced"])
def test_streaming_takes_the_path_of_the_dense_search(options, monkeypatch):
    x = ring(noise=1e-3, shape=(8, 9, 7, 6))
    arguments = {"max_error": 0.02, "random_state": 0, "options": options}
    dense = tg.decompose(x, **arguments)
    monkeypatch.setattr("tensorgrow.data.blocks.readers.BLOCK_ENTRIES", 1600)
    streamed = tg.distributed.decompose(x, method="stream", **arguments)
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
    small = tg.distributed.decompose(big, method="compress", **arguments)
    assert small.info["passes"] <= 4
    assert small.info["multilinear_ranks"][0] <= 12
    assert small.structure == dense.structure
    error = np.linalg.norm(small.network.to_dense().numpy() - big) / np.linalg.norm(big)
    assert small.relative_error == pytest.approx(error, rel=1e-3)
    assert small.relative_error <= 0.01


def test_bounds_and_trees_hold_in_bases():
    hidden = tg.Structure.tensor_train((60, 7, 8, 55), (3, 4, 2))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense().numpy()
    result = tg.distributed.decompose(x, method="compress", max_error=1e-5, random_state=0)
    assert result.num_parameters == hidden.num_parameters
    assert result.relative_error <= 1e-5


def test_what_does_not_compress_is_streamed():
    x = np.random.default_rng(0).standard_normal((70, 60, 50))
    arguments = {"max_steps": 1, "max_error": 0.01, "random_state": 0, "memory_limit": 5e6}
    assert tg.distributed.decompose(x, **arguments).info["method"] == "stream"
    with pytest.raises(tg.OptionError, match="do not compress"):
        tg.distributed.decompose(x, method="compress", **arguments)


def test_scales_zeros_and_whole_numbers():
    x = ring(shape=(5, 6, 4, 3))
    arguments = {"max_error": 1e-3, "random_state": 0, "options": FAST}
    for scale in (1e-20, 1e20):
        huge = (x * scale).astype(np.float32)
        result = tg.distributed.decompose(huge, method="stream", **arguments)
        error = np.linalg.norm(result.network.to_dense().double().numpy() / scale - x) / np.linalg.norm(x)
        assert error <= 2e-3
    zero = tg.distributed.decompose(np.zeros((3, 4)), max_error=0.1)
    assert zero.relative_error == 0.0
    counts = np.arange(24).reshape(2, 3, 4)
    assert tg.distributed.decompose(counts, max_error=1e-8).network.dtype == torch.float64


def test_bad_input():
    x = np.ones((4, 5, 6))
    x[2, 3, 1] = np.nan
    with pytest.raises(tg.DataError, match=r"block \[2:3"):
        tg.distributed.decompose(x, max_error=0.1, memory_limit=5e3)
    with pytest.raises(tg.DataError, match="empty"):
        tg.distributed.decompose(np.ones((3, 0)), max_error=0.1)
    with pytest.raises(tg.OptionError, match="method"):
        tg.distributed.decompose(np.ones((3, 2)), max_error=0.1, method="magic")
    with pytest.raises(tg.OptionError, match="threads"):
        tg.distributed.decompose(np.ones((3, 2)), max_error=0.1, threads=0)
    with pytest.raises(tg.DataError, match="cannot be read block by block"):
        tg.distributed.decompose([1.0, 2.0], max_error=0.1)
    with pytest.raises(tg.MemoryLimitError):
        tg.distributed.decompose(np.ones((300, 300)), max_error=0.1, method="stream", memory_limit=2e3)


# -- storage -------------------------------------------------------------------------------------------


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
    streamed = tg.distributed.decompose(stored, method="stream", memory_limit=1.2e6, **arguments)
    assert streamed.info["blocks"] > 1
    assert path(streamed) == path(dense)
    assert streamed.relative_error == pytest.approx(dense.relative_error, abs=1e-10)
    loaded = tg.decompose(stored, **arguments)  # it fits
    assert "method" not in loaded.info
    assert loaded.relative_error == dense.relative_error
    small = tg.decompose(stored, memory_limit=6e5, **arguments)  # it does not
    assert small.info["method"] in ("compress", "stream")
    assert small.structure == dense.structure


# -- faults --------------------------------------------------------------------------------------------


def test_a_damaged_chunk_is_named_and_the_checkpoint_goes_on(tmp_path):
    x = ring(noise=1e-3)
    stored = in_zarr(tmp_path, x)
    chunk = tmp_path / "x.zarr" / "c" / "1" / "0" / "1" / "0"
    good = chunk.read_bytes()
    arguments = {"max_error": 0.02, "max_steps": 5, "random_state": 0, "options": FAST}
    arguments |= {"method": "stream", "memory_limit": 1.2e6}

    def damage(step):
        if step.index == 3:
            chunk.write_bytes(good[: len(good) // 2])

    checkpoint = tmp_path / "run.safetensors"
    with pytest.raises(tg.DataError, match=r"chunk c/1/0/1/0 of the zarr array .*x\.zarr cannot be read"):
        tg.distributed.decompose(stored, callbacks=damage, checkpoint=checkpoint, **arguments)
    chunk.write_bytes(good)
    resumed = tg.distributed.decompose(stored, checkpoint=checkpoint, **arguments)
    straight = tg.distributed.decompose(stored, **arguments)
    assert resumed.info["passes"] < straight.info["passes"]
    assert path(resumed) == path(straight)
    assert resumed.relative_error == pytest.approx(straight.relative_error, rel=1e-12)


def test_data_that_changes_during_the_run_is_noticed(tmp_path):
    stored = in_zarr(tmp_path, ring(noise=1e-3))

    def change(step):
        stored[0] = 0.0

    with pytest.raises(tg.DataError, match="changed while it was read"):
        tg.distributed.decompose(
            stored, method="compress", max_error=0.02, random_state=0, options=FAST, callbacks=change
        )


def test_chunks_larger_than_the_limit_are_refused(tmp_path):
    x = ring()
    with pytest.raises(tg.MemoryLimitError, match="smaller chunks"):
        tg.decompose(in_zarr(tmp_path, x), max_error=0.1, memory_limit=1e5)
    with pytest.raises(tg.MemoryLimitError, match="rechunk"):
        tg.decompose(in_dask(tmp_path, x), max_error=0.1, memory_limit=1e5)


# -- memory --------------------------------------------------------------------------------------------

UNDER_A_LIMIT = """
import json, resource, sys, threading
from concurrent.futures import ThreadPoolExecutor
threading.stack_size(1 << 20)  # Linux counts stacks in full, used or not
import numpy as np, torch
torch.set_num_threads(1)
import tensorgrow as tg
name, method, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])

def decompose(x, steps):
    return tg.distributed.decompose(
        x, method=method, max_error=0.02, max_steps=steps, memory_limit=limit, random_state=0, effort="fast"
    )

decompose(np.random.default_rng(0).random((50, 50, 50), dtype=np.float32), 1)
with ThreadPoolExecutor(4) as pool:  # libraries take their own buffers, one per thread
    a = np.ones((600, 600), dtype=np.float32)
    list(pool.map(lambda _: a @ a, range(16)))
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
r = decompose(x, 2 if method == "stream" else None)
print(json.dumps([x.nbytes, r.relative_error, r.info["method"], r.info["blocks"]]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux counts them")
@pytest.mark.parametrize("method", ["compress", "stream"])
def test_memory_stays_within_the_limit_for_a_tensor_ten_times_larger(method, tmp_path):
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
    env = os.environ | {"PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "x.npy"), method, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    size, error, used, blocks = json.loads(done.stdout)
    assert size >= 10 * limit
    assert used == method
    assert blocks > 10
    assert error < (0.02 if method == "compress" else 1.0)


# -- blocks and networks --------------------------------------------------------------------------------


def test_large_blocks_through_torch_give_the_same_numbers(monkeypatch):
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    network = random_network(STRUCTURE, 2)
    plain = blocked(x.numpy(), 160)
    losses = [
        plain.sweep(STRUCTURE, plain.to_arrays(network), 1e-14),
        plain.loss(STRUCTURE, plain.to_arrays(network)),
    ]
    monkeypatch.setattr("tensorgrow.data.blocks.reducer.LARGE_BLOCK", 1)
    through = blocked(x.numpy(), 160)
    assert through.sweep(STRUCTURE, through.to_arrays(network), 1e-14) == pytest.approx(losses[0])
    assert through.loss(STRUCTURE, through.to_arrays(network)) == pytest.approx(losses[1])
    x.numpy().flags.writeable = False


def test_several_networks_are_measured_in_one_pass():
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    blocks = blocked(x)
    networks = [random_network(STRUCTURE, k) for k in range(3)]
    before = blocks.reducer.passes
    found = blocks.losses_of(networks)
    assert blocks.reducer.passes == before + 1
    for (loss, held_out), network in zip(found, networks):
        assert loss == pytest.approx(blocks.loss(STRUCTURE, blocks.to_arrays(network)))
        assert held_out is None
    assert blocks.losses_of([]) == []


# -- fits ----------------------------------------------------------------------------------------------


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
    from tensorgrow.tasks.decompose_blocks import fit_blocks
    from tensorgrow.tasks.fit import FitRequest

    request = FitRequest(structure, None, 5, 0.0, None, None, 0)
    streamed = fit_blocks(x, request, device=None, dtype=None, memory_limit=1.2e6)
    dense = tg.fit(x, structure, max_sweeps=5, tolerance=0.0, random_state=0)
    assert streamed.info["method"] == "stream"
    assert streamed.relative_error == pytest.approx(dense.relative_error, abs=1e-10)
    assert streamed.stop == dense.stop
    zero = fit_blocks(np.zeros(x.shape), request, device=None, dtype=None, memory_limit=None)
    assert zero.relative_error == 0.0
