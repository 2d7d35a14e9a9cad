"""Tensors with long modes of small multilinear ranks: searched on a core, judged by the whole."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import GreedyOptions
from tensorgrow import StopReason as Stop
from tensorgrow.tasks import tensor_data
from tests.oracles import dense
from tests.tasks.tensors import error_of

SHAPE = (40, 32, 28)


def field(dtype="float64"):
    """Two bumps that move along curves."""
    x, y, t = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
    first = np.exp(-((x - 0.2 - 0.5 * t) ** 2 + (y - 0.5 - 0.2 * np.sin(4 * t)) ** 2) / 0.05)
    second = 1 / (1 + 20 * ((x - t) ** 2 + (y - t**2) ** 2))
    return (first + (1j * second if np.dtype(dtype).kind == "c" else second)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_target_holds_on_all_entries(dtype, device):
    x = field(dtype)
    result = tg.decompose(x, max_error=0.02, random_state=0, effort="fast", device=device)
    assert result.info["method"] == "compress"
    assert max(result.info["multilinear_ranks"]) < 20
    assert 0.0 < result.info["left_out"] <= tensor_data.CORE_SHARE * 0.02
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network.to("cpu")) <= 0.02
    assert result.relative_error == pytest.approx(error_of(x, result.network.to("cpu")), rel=1e-4)
    assert result.structure.dims == SHAPE
    assert result.network.device.type == device
    assert result.num_parameters == sum(c.numel() for c in result.network.cores)
    assert result.num_parameters == result.history[-1].num_parameters
    assert result.history[-1].relative_error == pytest.approx(result.relative_error, rel=1e-3)


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_hidden_tucker_comes_out_exactly(effort):
    net = tg.TensorNetwork.random(tg.Structure.tucker((50, 40, 30), (3, 4, 2)), random_state=0)
    x = dense(net.structure, net.cores)
    result = tg.decompose(x, max_error=1e-8, random_state=0, effort=effort)
    assert result.info["multilinear_ranks"] == [3, 4, 2]
    assert result.relative_error <= 1e-8
    assert result.num_parameters <= net.num_parameters


def test_a_budget_alone_compresses_no_further_than_it_can_see():
    x = field()
    result = tg.decompose(x, max_parameters=600, random_state=0, effort="fast")
    whole = tg.decompose(
        x,
        max_parameters=600,
        random_state=0,
        options=GreedyOptions.for_effort("fast").replace(compress=False),
    )
    assert result.info["left_out"] < 0.3 * result.relative_error
    assert "multilinear_ranks" not in whole.info
    assert result.num_parameters <= 600
    assert result.relative_error <= 1.1 * whole.relative_error
    assert result.relative_error == pytest.approx(error_of(x, result.network.to("cpu")), rel=1e-9)


def test_what_asks_for_the_tensor_itself_gets_it():
    x = field()
    init = tg.decompose(x, max_error=0.2, effort="fast", random_state=0).network
    for keywords in (
        {"init": init, "max_error": 0.1},
        {"options": GreedyOptions.paper(), "max_steps": 2, "max_error": 0.1},
        {"max_steps": 2},
    ):
        result = tg.decompose(x, random_state=0, **{"effort": "fast", **keywords})
        assert "multilinear_ranks" not in result.info, keywords
    assert not GreedyOptions.paper().compress
    noise = np.random.default_rng(0).standard_normal(SHAPE)
    assert "multilinear_ranks" not in tg.decompose(noise, max_error=0.9, effort="fast", max_steps=3).info


def test_edges_and_splits_keep_their_meaning():
    x = field()
    chain = tg.decompose(x, max_error=0.02, edges="chain", effort="fast", random_state=0)
    assert "multilinear_ranks" in chain.info
    assert set(chain.structure.edges) <= {(0, 1), (1, 2)}
    whole = tg.decompose(x, max_error=0.05, split_nodes=False, effort="fast", random_state=0)
    assert whole.structure.num_nodes == 3


def test_a_resumed_run_ends_like_one_that_was_not(tmp_path):
    x, common = field(), {"max_error": 0.01, "random_state": 3, "effort": "fast"}
    straight = tg.decompose(x, **common)
    assert "multilinear_ranks" in straight.info
    file = tmp_path / "run.ckpt"
    tg.decompose(x, **common, checkpoint=file, callbacks=lambda step: step.index >= 4)
    resumed = tg.decompose(x, **common, checkpoint=file)
    assert resumed.structure == straight.structure
    assert resumed.relative_error == pytest.approx(straight.relative_error, rel=1e-12)
    assert [s.num_parameters for s in resumed.history] == [s.num_parameters for s in straight.history]


def test_blocks_and_memory_take_the_same_path():
    x = field()
    memory = tg.decompose(x, max_error=0.02, random_state=0, effort="fast")
    blocks = tg.decompose(tg.Blocks(x), max_error=0.02, random_state=0, effort="fast")
    assert blocks.info["method"] == memory.info["method"] == "compress"
    assert blocks.relative_error <= 0.02
    streamed = tg.decompose(
        tg.Blocks(x), max_error=0.3, options=GreedyOptions.for_effort("fast").replace(compress=False)
    )
    assert streamed.info["method"] == "stream"
