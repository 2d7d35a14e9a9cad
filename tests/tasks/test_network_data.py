"""Tensors that are known as networks: smaller ones for them, with the same or another graph."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.tasks.network_data import as_network
from tests.oracles import dense, random_network

RING = tg.Structure.tensor_ring((4,) * 5, 2)
HOSTS = tg.Structure.hierarchical_tucker((3, 4, 3, 4), 3)


def true_error(result: tg.Result, target: tg.TensorNetwork) -> float:
    x = dense(target.structure, target.cores)
    return float(np.linalg.norm(dense(result.structure, result.network.cores) - x) / np.linalg.norm(x))


@pytest.mark.parametrize("structure", [RING, tg.Structure.tensor_train((3,) * 6, 2)])
def test_a_sum_of_equal_networks_returns_to_the_size_of_one(structure, double):
    one = random_network(structure, 0, double)
    total = reduce(add, [one] * 4)
    result = tg.decompose(total, max_error=1e-6, random_state=0)
    assert result.num_parameters <= one.num_parameters < total.num_parameters
    assert result.stop is tg.StopReason.TARGET_REACHED
    assert true_error(result, total) <= 1e-6
    assert result.relative_error == pytest.approx(true_error(result, total), abs=1e-13)
    assert result.info["method"] == "network" and result.info["left_out"] <= 1e-9


@pytest.mark.parametrize("max_error", [0.3, 0.05])
def test_errors_are_honest(max_error):
    target = random_network(tg.Structure.tensor_ring((4,) * 4, 3), 2)
    result = tg.decompose(target, max_error=max_error, random_state=0)
    assert result.relative_error == pytest.approx(true_error(result, target), rel=1e-9)
    assert result.relative_error <= max_error
    assert result.num_parameters <= target.num_parameters


def test_a_budget_is_kept():
    target = random_network(RING, 3)
    result = tg.decompose(target, max_parameters=60, random_state=0)
    assert result.num_parameters <= 60
    assert result.relative_error == pytest.approx(true_error(result, target), rel=1e-9)
    known = tg.decompose(target.to_dense(), max_parameters=60, random_state=0)
    assert result.relative_error <= 1.05 * known.relative_error


def test_a_graph_can_be_kept():
    target = random_network(HOSTS, 1)
    result = tg.decompose(target, max_error=0.3, edges=HOSTS, random_state=0)
    assert set(result.structure.edges) <= set(HOSTS.edges)
    assert result.structure.num_nodes == HOSTS.num_nodes
    assert result.num_parameters < target.num_parameters
    assert true_error(result, target) <= 0.3
    with pytest.raises(tg.TensorgrowError, match="a graph over 4 modes"):
        tg.decompose(random_network(RING, 0), max_error=0.3, edges=HOSTS)


def test_a_graph_can_be_kept_for_an_array():
    x = dense(HOSTS, random_network(HOSTS, 1).cores)
    result = tg.decompose(x, max_error=0.5, edges=HOSTS, random_state=0)
    assert set(result.structure.edges) <= set(HOSTS.edges)
    assert result.relative_error <= 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_single_precision(dtype):
    one = random_network(RING, 4, dtype)
    result = tg.decompose(one + one, max_error=1e-3, random_state=0)
    assert result.network.dtype == dtype
    assert result.num_parameters <= one.num_parameters
    assert true_error(result, one + one) <= 1e-3


def test_a_structure_is_fitted():
    target = random_network(HOSTS, 2)
    structure = tg.Structure.tensor_train(target.structure.dims, 3)
    found, known = (tg.fit(x, structure, random_state=0) for x in (target, target.to_dense()))
    assert found.relative_error == pytest.approx(known.relative_error, rel=1e-4)
    assert found.relative_error == pytest.approx(true_error(found, target), rel=1e-9)


def test_tensors_too_large_to_form(tmp_path):
    one = random_network(tg.Structure.tensor_train((2,) * 36, 2), 0)
    total = one + 0.5 * one
    result = tg.decompose(total, max_error=1e-9, random_state=0, effort="fast")
    assert result.num_parameters <= one.num_parameters
    assert (total - result.network).norm() <= 1e-6 * total.norm()
    rows = np.random.default_rng(0).integers(0, 2, (5, 36))
    np.testing.assert_allclose(result.predict(rows), total.entries(rows).numpy(), rtol=1e-6)
    result.save(tmp_path / "state.safetensors")
    assert tg.load(tmp_path / "state.safetensors").structure == result.structure
    result.report(tmp_path / "state.html")
    assert f"{2**36:,}" in (tmp_path / "state.html").read_text(encoding="utf-8")
    with pytest.raises(tg.MemoryLimitError):
        result.to_array()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_norms_beyond_the_range_of_squares(scale):
    target = random_network(RING, 0) * scale
    result = tg.decompose(target, max_error=1e-6, random_state=0, effort="fast")
    assert result.relative_error <= 1e-6
    found, given = (n.to_dense() / scale for n in (result.network, target))
    np.testing.assert_allclose(found, given, rtol=1e-3, atol=1e-3)


def test_zero_is_zero():
    result = tg.decompose(random_network(RING, 0) * 0.0, max_error=0.1)
    assert result.relative_error == 0.0 and result.num_parameters == 20


def test_a_run_resumes(tmp_path):
    target = random_network(tg.Structure.tensor_ring((4,) * 4, 3), 5)
    checkpoint = tmp_path / "run.safetensors"
    common = {"max_error": 0.2, "effort": "fast", "random_state": 0}
    whole = tg.decompose(target, **common)
    tg.decompose(target, **common, checkpoint=checkpoint, callbacks=lambda step: step.index >= 1)
    resumed = tg.decompose(target, **common, checkpoint=checkpoint)
    assert resumed.structure == whole.structure
    assert all(map(torch.equal, resumed.network.cores, whole.network.cores))
    with pytest.raises(tg.TensorgrowError, match="data"):
        tg.decompose(target * 2.0, **common, checkpoint=checkpoint)


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_error", [0.0, 1e-17])
def test_targets_below_precision_are_refused(max_error):
    with pytest.raises(tg.OptionError, match=r"below what torch\.float64 can tell.*5 nodes.*9e-15"):
        tg.decompose(random_network(RING, 0), max_error=max_error)
    with pytest.raises(tg.OptionError, match=r"torch\.float32"):
        tg.decompose(random_network(RING, 0, torch.float32), max_error=1e-7)


def test_where_memory_is_short_squares_are_all_there_is():
    wide = random_network(tg.Structure.tensor_ring((4,) * 6, 12), 0)
    with pytest.raises(tg.OptionError, match="inner products"):
        tg.decompose(wide, max_error=1e-12, memory_limit=100_000)


def test_what_is_not_a_network_of_numbers_is_refused():
    network = random_network(RING, 0)
    bad = tg.TensorNetwork(RING, [network.cores[0] * float("nan"), *network.cores[1:]])
    with pytest.raises(tg.DataError, match=r"core 0 .*not finite"):
        tg.decompose(bad, max_error=0.1)
    with pytest.raises(tg.DataError, match="tensorize is about arrays"):
        tg.decompose(network, max_error=0.1, tensorize="auto")
    with pytest.raises(tg.OptionError, match="imaginary"):
        tg.decompose(random_network(RING, 0, torch.complex128), max_error=0.1, dtype=torch.float64)


# -- other libraries -------------------------------------------------------------------------------------


def test_results_and_other_libraries(double):
    network = random_network(tg.Structure.tensor_train((3, 4, 3), 2), 0, double)
    result = tg.fit(network, network.structure, init=network, max_sweeps=1)
    given = [result]
    pytest.importorskip("quimb")
    pytest.importorskip("tensorly")
    given += [tg.interop.to_quimb(network), tg.interop.to_tensorly(network)]
    for x in given:
        found = as_network(x)
        assert found is not None
        np.testing.assert_allclose(found.to_dense().numpy(), network.to_dense().numpy(), rtol=1e-6, atol=1e-6)
        assert tg.decompose(x, max_error=1e-6, random_state=0).num_parameters <= network.num_parameters
    assert as_network(np.zeros(3)) is None


def test_a_quantum_state():
    qtn = pytest.importorskip("quimb.tensor")
    result = tg.decompose(qtn.MPS_ghz_state(6), max_error=1e-8, random_state=0)
    assert result.num_parameters <= 40  # a train of rank 2
    assert result.relative_error <= 1e-8


def test_a_network_far_larger_than_its_tensor_is_decomposed_as_that():
    one = random_network(tg.Structure.tensor_ring((2,) * 4, 2), 3)
    wasteful = one * one * one * one
    assert wasteful.num_parameters > 10 * wasteful.structure.num_entries
    result = tg.decompose(wasteful, max_error=1e-6, random_state=0)
    assert true_error(result, wasteful) <= 1e-6
    assert result.num_parameters <= 2 * wasteful.structure.num_entries


@pytest.mark.parametrize("form", ["cp", "tucker", "tt", "tr"])
def test_forms_of_tensorly(form):
    pytest.importorskip("tensorly")
    from tensorly import random

    makers = {
        "cp": lambda: random.random_cp((3, 4, 3), 2, random_state=0),
        "tucker": lambda: random.random_tucker((3, 4, 3), (2, 2, 2), random_state=0),
        "tt": lambda: random.random_tt((3, 4, 3), (1, 2, 2, 1), random_state=0),
        "tr": lambda: random.random_tr((3, 4, 3), (2, 2, 2, 2), random_state=0),
    }
    given = makers[form]()
    x = given.to_tensor()
    result = tg.decompose(given, max_error=1e-6, random_state=0)
    found = result.network.to_dense().numpy()
    assert np.linalg.norm(found - x) <= 1e-6 * np.linalg.norm(x)
