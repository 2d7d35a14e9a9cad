"""Blocks that are read ahead and sent to a GPU; without one, sent to the CPU through ordinary memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import ArraySource, Form, StagedReducer, ThreadReducer
from tensorgrow.data.blocks import gpu_stage as staging
from tensorgrow.objectives import BlockedLeastSquares
from tests.oracles import TOLERANCE, assert_close, node_equations, random_array, random_network

SHAPE = (6, 7, 5, 4)
STRUCTURE = tg.Structure(SHAPE, {(0, 1): 2, (2, 3): 3, (0, 4): 2, (1, 4): 2, (2, 4): 2}, num_nodes=5)

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(params=["locked", "refused"])
def memory(request, monkeypatch):
    """Stands in for page-locked memory, which there is none of without a GPU, or which the system refuses."""
    taken = []

    def lock_pages(size: int) -> torch.Tensor:
        taken.append(size)
        if request.param == "refused":
            raise RuntimeError("CUDA error: out of memory")
        return torch.full((size,), 255, dtype=torch.uint8)

    monkeypatch.setattr(staging, "lock_pages", lock_pages)
    return taken


# -- blocks --------------------------------------------------------------------------------------------


def blocks_to_send() -> dict[str, object]:
    x = np.random.default_rng(0).standard_normal((4, 5, 6))
    tensor = torch.from_numpy(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "double": x,
        "single": x.astype(np.float32),
        "big-endian": x.astype(">f8"),
        "fortran": np.asfortranarray(x),
        "read-only": frozen,
        "whole": (100 * x).astype(np.int16),
        "truth": x > 0,
        "tensor": tensor,
        "part": tensor[1:3, :, ::2],
        "with gradient": tensor.clone().requires_grad_(),
        "half": tensor.to(torch.bfloat16),
    }


@pytest.mark.parametrize("kind", blocks_to_send())
def test_blocks_arrive_as_they_are(kind, memory):
    block = blocks_to_send()[kind]
    stage = staging.Stage(torch.device("cpu"), torch.float32, 2)
    expected = Form("float32", "cpu")(block)
    first = stage.receive(stage.send(0, block))
    again = stage.receive(stage.send(0, block * 0 if kind != "truth" else ~block))
    assert first.dtype == torch.float32 and not first.requires_grad
    assert torch.equal(first, expected)  # the second block in the same slot did not touch it
    assert not torch.equal(again, expected)
    assert len(memory) == 1  # taken once, or not asked for again


def test_conjugated_blocks_arrive(memory):
    x = random_array(np.random.default_rng(0), (3, 4), torch.complex128)
    stage = staging.Stage(torch.device("cpu"), torch.complex128, 1)
    assert torch.equal(stage.receive(stage.send(0, x.conj())), x.conj().resolve_conj())


def test_slots_grow_with_the_blocks(memory):
    stage = staging.Stage(torch.device("cpu"), torch.float64, 1)
    for size in (2, 5, 3):
        x = torch.arange(float(size), dtype=torch.float64)
        assert torch.equal(stage.receive(stage.send(0, x)), x)
    assert memory == ([16, 40] if stage.locks else [16])


def test_a_slot_waits_for_its_last_copy(memory):
    """Else the GPU would copy what the next block wrote there."""
    stage = staging.Stage(torch.device("cpu"), torch.float32, 2)
    seen = []

    class Event:
        def synchronize(self) -> None:
            seen.append("wait")

    class Block:
        shape = (3,)

        def __array__(self, dtype=None, copy=None) -> np.ndarray:
            seen.append("fill")
            return np.ones(3)

    stage.arrived[1] = Event()
    stage.send(0, Block())
    stage.send(1, Block())
    assert seen == ["fill", "wait", "fill"]


# -- sums over blocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("exponent", [0, 2])
def test_sent_blocks_give_the_bits_of_threads(dtype, threads, exponent, memory):
    x = random_array(np.random.default_rng(1), SHAPE, dtype)
    source = ArraySource(x)
    form = Form(str(dtype).removeprefix("torch."), "cpu", exponent)
    network = random_network(STRUCTURE, 2, dtype)
    plain, sent = (
        BlockedLeastSquares(kind(source, source.boxes(30), form, threads))
        for kind in (ThreadReducer, StagedReducer)
    )
    a, b = plain.to_arrays(network), sent.to_arrays(network)
    assert sent.norm == plain.norm
    for _ in range(2):
        assert sent.sweep(STRUCTURE, b, 1e-14) == plain.sweep(STRUCTURE, a, 1e-14)
    for ours, theirs in zip(b, a):
        assert torch.equal(ours, theirs)
    assert sent.loss(STRUCTURE, b) == plain.loss(STRUCTURE, a)
    assert sent.reducer.passes == plain.reducer.passes == 6
    double = sent.reducer.with_form(Form("complex128" if dtype.is_complex else "float64", "cpu"))
    assert BlockedLeastSquares(double).norm == pytest.approx(sent.norm * 2**exponent, rel=1e-6)
    assert sent.reducer.passes == 7


def test_an_error_of_a_kernel_ends_the_pass(memory):
    source = ArraySource(torch.ones(8, 3))
    reducer = StagedReducer(source, source.boxes(3), Form("float32", "cpu"), 2)

    def kernel(block, box):
        raise ZeroDivisionError

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        reducer.reduce(kernel)
    assert threading.active_count() <= before


# -- with a GPU ----------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("method", ["stream", "compress"])
@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_gpu_finds_what_the_cpu_finds(method, where):
    hidden = tg.Structure.tensor_ring((60, 50, 40), (2, 3, 2))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense()
    arguments = {"max_error": 1e-4, "random_state": 0, "effort": "fast"}
    expected = tg.decompose(tg.Blocks(x, method=method), **arguments)
    blocks = tg.Blocks(x.to(where), method=method)
    found = tg.decompose(blocks, device="cuda", memory_limit=4e7, **arguments)
    assert found.structure == expected.structure
    assert found.relative_error <= 1e-4


@needs_gpu
def test_a_gpu_computes_what_the_cpu_computes(dtype, monkeypatch):
    monkeypatch.setattr("tensorgrow.contraction.strided.LARGE", 1)
    monkeypatch.setattr("tensorgrow.contraction.strided.LARGE_SLAB", 1)
    x = random_array(np.random.default_rng(1), SHAPE, dtype)
    network = random_network(STRUCTURE, 2, dtype)
    source, name = ArraySource(x), str(dtype).removeprefix("torch.")
    plain = BlockedLeastSquares(ThreadReducer(source, source.boxes(100), Form(name, "cpu"), 1))
    sent = BlockedLeastSquares(StagedReducer(source, source.boxes(100), Form(name, "cuda"), 3))
    a, b = plain.to_arrays(network), sent.to_arrays(network)
    assert sent.norm == pytest.approx(plain.norm, rel=1e-5)
    assert sent.loss(STRUCTURE, b) == pytest.approx(plain.loss(STRUCTURE, a), rel=1e-5)
    ours, theirs = (node_equations(o, network) for o in (sent, plain))
    for node in range(STRUCTURE.num_nodes):
        assert_close(ours[node][1].cpu(), theirs[node][1], 10 * TOLERANCE[dtype])
