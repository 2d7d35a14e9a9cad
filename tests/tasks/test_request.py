"""Where a run computes."""

from __future__ import annotations

import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.devices import GPU_SECONDS, dense_flops, flops_in, is_worth_gpu
from tensorgrow.search import GreedyOptions, GreedySearch
from tensorgrow.tasks import request as module
from tensorgrow.tasks.request import Request

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def asked(**keywords):
    return Request.parse("decompose", GreedySearch, GreedyOptions.for_effort, max_error=0.1, **keywords)


def test_a_gpu_is_worth_it_by_the_seconds_of_a_sweep():
    assert is_worth_gpu(flops_in(GPU_SECONDS, "cpu")) and not is_worth_gpu(flops_in(0.5 * GPU_SECONDS, "cpu"))
    assert not is_worth_gpu(dense_flops(100_000)) and is_worth_gpu(dense_flops(10_000_000))
    small, large = asked(), asked(max_parameters=10_000)  # a wide network makes a small tensor costly
    shape = (4,) * 8
    assert not is_worth_gpu(dense_flops(4**8, small.width(shape)))
    assert is_worth_gpu(dense_flops(4**8, large.width(shape)))


def test_data_that_does_not_fit_on_the_gpu_is_not_moved_there(monkeypatch):
    x = torch.empty(()).expand(10_000_000)
    monkeypatch.setattr(module, "choose_device", lambda *_: CUDA)
    monkeypatch.setattr(module, "memory_for", lambda *_: 1e8)
    with pytest.warns(tg.DataWarning, match="0.12 GB of the memory of the GPU, which has 0.10 GB free"):
        assert asked(device="auto").places(x, 1e12) == (CPU, CPU)
    with pytest.warns(tg.DataWarning, match="it uses the CPU$"):
        assert asked(device="cuda").places(x, 1e12) == (CPU, CPU)
    with pytest.warns(tg.DataWarning, match=r"uses the CPU. tg.Blocks\(x\) computes there with a part"):
        assert asked(device="cuda").places(x.expand(2, -1), 1e12) == (CPU, CPU)
    with pytest.warns(tg.DataWarning, match="needs about 0.20 GB"):
        assert asked(device="cuda").places(x[:10], 1e12, needed=200_000_000) == (CPU, CPU)
    monkeypatch.setattr(module, "memory_for", lambda *_: 1e9)
    assert asked(device="auto").places(x, 1e12) == (CUDA, CPU)
    assert asked(device="cuda").places(x, 1e12) == (CUDA, CUDA)
