"""Regression: recovery of planted coefficients, limits, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.structure import Structure
from tensorgrow.tasks.regress import regress
from tests import oracles
from tests.samples import PLANTED, data, planted, responses


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_coefficients_are_recovered_at_their_size(name, seed):
    structure = PLANTED[name]
    x, y, w = planted(structure, 5 * structure.num_parameters, 0.0, seed)
    found = regress(x, y + 0.7, random_state=0)
    oracles.assert_close(found.network.to_dense(), w, 1e-8)
    assert found.network.num_parameters <= structure.num_parameters
    assert float(found.intercept) == pytest.approx(0.7, abs=1e-8)
    assert found.result.validation_error < 1e-7
    assert found.result.history[-1].kind == "refit"


@pytest.mark.parametrize("name", PLANTED)
def test_noise_is_not_fitted(name):
    structure = PLANTED[name]
    count = 8 * structure.num_parameters
    x, y, w = planted(structure, count, 0.1, 2)
    found = regress(x, y, random_state=0)
    error = np.linalg.norm(found.network.to_dense().numpy() - w)
    assert error < 1.5 * 0.1 * np.sqrt(structure.num_parameters / count)
    assert found.network.num_parameters < 2 * structure.num_parameters
    assert 0.05 < found.result.train_error < 0.12
    assert 0.05 < found.result.validation_error < 0.15
    assert found.result.stop in (tg.StopReason.VALIDATION, tg.StopReason.SATURATED)


def test_complex_and_single_precision():
    structure = PLANTED["tt"]
    network = oracles.random_network(structure, 1, torch.complex64)
    x, _ = data(Structure(structure.dims), 400, torch.complex64)
    w = oracles.dense(structure, network.cores)
    found = regress(x, responses(x, w).astype(np.complex64), random_state=0)
    assert found.network.dtype == torch.complex64
    oracles.assert_close(found.network.to_dense(), w, 1e-3)


def test_order_one_is_ridge_regression():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 8)) + 1.0
    y = x @ rng.standard_normal(8) + 0.5 * rng.standard_normal(60) + 2.0
    found = regress(x, y, ridge=0.1, validation=False)
    centred = x - x.mean(0)
    mu = 0.1 * (centred**2).sum() / 8
    w = np.linalg.solve(centred.T @ centred + mu * np.eye(8), centred.T @ (y - y.mean()))
    oracles.assert_close(found.network.to_dense(), w, 1e-10)
    assert float(found.intercept) == pytest.approx(y.mean() - x.mean(0) @ w)
    assert found.result.validation_error is None


def test_several_responses_share_a_network():
    structure = Structure((4, 5, 3), {(0, 1): 2, (1, 2): 2})
    w = tg.TensorNetwork.random(structure, random_state=0).to_dense().numpy()
    x = np.random.default_rng(0).standard_normal((150, 4, 5))
    y = responses(x, w) + np.array([1.0, 2.0, 3.0])
    found = regress(x, y, random_state=0)
    oracles.assert_close(found.network.to_dense(), w, 1e-8)
    oracles.assert_close(found.intercept, np.array([1.0, 2.0, 3.0]), 1e-8)


@pytest.mark.parametrize("units", [(1.0, 1024.0), (1e-30, 1e25), (7.3, 1e-3)])
def test_units_do_not_matter(units):
    structure = PLANTED["tt"]
    x, y, _ = planted(structure, 250, 0.1, 0)
    plain = regress(x, y, random_state=0, max_steps=4)
    other = regress(x * units[0], y * units[1], random_state=0, max_steps=4)
    assert other.network.structure == plain.network.structure
    dense = plain.network.to_dense().numpy() * units[1] / units[0]
    oracles.assert_close(other.network.to_dense() / np.abs(dense).max(), dense / np.abs(dense).max(), 1e-5)


def test_large_means_do_not_matter():
    x, y, w = planted(PLANTED["tt"], 400, 0.0, 0)
    found = regress(x + 1e3, y + 1e4, random_state=0)
    oracles.assert_close(found.network.to_dense(), w, 1e-6)


def test_a_given_structure_is_kept():
    structure = PLANTED["tr"]
    x, y, w = planted(structure, 500, 0.05, 1)
    found = regress(x, y, structure=structure, random_state=0)
    assert found.network.structure == structure
    assert found.result.stop == tg.StopReason.CONVERGED
    assert np.linalg.norm(found.network.to_dense().numpy() - w) < 0.05


def test_limits():
    x, y, _ = planted(PLANTED["tr"], 400, 0.05, 0)
    small = regress(x, y, max_parameters=40, random_state=0)
    assert small.network.num_parameters <= 40
    assert small.result.stop == tg.StopReason.MAX_PARAMETERS
    blind = regress(x, y, max_parameters=80, validation=False, random_state=0)
    assert blind.network.num_parameters <= 80
    assert blind.result.relative_error < 0.1
    assert blind.result.history[-1].kind != "refit"
    chain = regress(x, y, edges="chain", max_steps=2, random_state=0)
    assert set(chain.network.structure.edges) <= {(0, 1), (1, 2), (2, 3)}
    assert regress(x, y, max_seconds=0.0, random_state=0).result.stop == tg.StopReason.MAX_SECONDS
    rough = regress(x, y, max_error=0.5, random_state=0)
    assert rough.result.validation_error <= 0.5
    with pytest.raises(tg.MemoryLimitError, match="regression on 400 samples"):
        regress(x, y, memory_limit=1000)


def test_nothing_to_explain():
    x = np.random.default_rng(0).standard_normal((30, 3, 4))
    constant = regress(x, np.full(30, 0.1))
    assert not bool(constant.network.to_dense().any())
    assert float(constant.intercept) == pytest.approx(0.1)
    same = regress(np.ones((30, 3, 4)) * 0.1, np.arange(30.0))  # samples that do not vary
    assert float(same.network.to_dense().abs().max()) < 1e-9
    assert float(same.intercept) == pytest.approx(14.5)
    assert float(regress(x, np.zeros(30), fit_intercept=False).intercept) == 0.0


def test_few_samples():
    x = np.random.default_rng(0).standard_normal((6, 3, 4))
    with pytest.warns(tg.DataWarning, match="only 6 samples"):
        found = regress(x, np.arange(6.0), random_state=0)
    assert found.network.num_parameters == 7
    assert np.isfinite(found.network.to_dense().numpy()).all()


def test_held_out_samples_can_be_chosen():
    x, y, _ = planted(PLANTED["tt"], 200, 0.1, 0)
    mask = np.arange(200) % 5 == 0
    found = regress(x, y, validation=mask, random_state=0, max_steps=1)
    assert found.result.info["num_held_out"] == 40
    assert regress(x, y, validation=~np.ones(200, bool), max_steps=0).result.info["num_held_out"] == 0
    for bad in (2.0, -0.1, np.ones(200, bool), np.ones(3, bool), np.ones(200)):
        with pytest.raises(tg.OptionError, match="validation"):
            regress(x, y, validation=bad)


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        (np.ones(5), np.ones(5), tg.DataError, "at least one more"),
        (np.ones((5, 2)), np.ones(4), tg.DataError, "5 samples, y has 4"),
        (np.ones((5, 2)), np.ones((5, 1, 1)), tg.DataError, r"\(n, q\)"),
        (np.full((5, 2), np.nan), np.ones(5), tg.DataError, "not finite"),
        (np.ones((5, 2)), np.full(5, np.inf), tg.DataError, "not finite"),
        (np.ones((0, 2)), np.ones(0), tg.DataError, "empty"),
    ],
)
def test_bad_data(x, y, error, words):
    with pytest.raises(error, match=words):
        regress(x, y)


def test_bad_options():
    x, y, _ = planted(PLANTED["tt"], 100, 0.0, 0)
    with pytest.raises(tg.OptionError, match="the structure is for"):
        regress(x, y, structure=Structure((2, 2)))
    with pytest.raises(tg.OptionError, match="max_parameters=3"):
        regress(x, y, max_parameters=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_size'"):
        regress(x, y, max_size=3)


def test_options_and_the_ridge_that_goes_first():
    x, y = planted(PLANTED["tt"], 200, 0.1, 0)[:2]
    options = tg.GreedyOptions.for_completion("fast").replace(ridge=0.25, patience=1)
    short = {"options": options, "max_steps": 1, "random_state": 0}
    result = regress(x, y, **short).result
    assert result.info["ridge"] == 0.25
    assert result.info["effort"] == "custom"
    assert result.info["options"] == options.to_dict()
    assert regress(x, y, ridge=0.5, **short).result.info["ridge"] == 0.5


def test_a_given_structure_resumes_from_a_checkpoint(tmp_path):
    x, y = planted(PLANTED["tt"], 200, 0.1, 0)[:2]
    file, structure = tmp_path / "run.ckpt", PLANTED["tt"]
    whole = regress(x, y, structure=structure, random_state=0)
    stopped = regress(x, y, structure=structure, random_state=0, checkpoint=file, callbacks=lambda step: True)
    assert stopped.result.stop is tg.StopReason.CALLBACK
    again = regress(x, y, structure=structure, random_state=0, checkpoint=file)
    assert again.result.stop is whole.result.stop
    assert all(map(torch.equal, again.network.cores, whole.network.cores))
    assert torch.equal(again.intercept, whole.intercept)
    for other in (None, Structure.rank_one(structure.dims)):
        with pytest.raises(tg.OptionError, match="another run"):
            regress(x, y, structure=other, random_state=0, checkpoint=file)
