"""The model of rows against plain Gaussian conditioning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.estimators.row_model import RowModel

pytest.importorskip("sklearn")


def model_of(columns: int = 6, factors: int = 3, gain: float = 1.0) -> RowModel:
    rng = np.random.default_rng(0)
    return RowModel(
        torch.tensor(rng.standard_normal(columns)),
        torch.tensor(0.1 + rng.random(columns)),
        torch.tensor(rng.standard_normal((factors, columns))),
        gain,
    )


def conditioned(model: RowModel, row: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Expectation of the noiseless row, by the joint covariance of everything."""
    mean, loadings = model.mean.numpy(), model.loadings.numpy()
    signal = loadings.T @ loadings
    total = signal + np.diag(model.noise.numpy())
    weights = np.linalg.solve(total[np.ix_(known, known)], (row - mean)[known])
    return mean + signal[:, known] @ weights


@pytest.mark.parametrize("factors", [0, 1, 3, 8])
def test_expectations_are_those_of_the_joint_distribution(factors):
    rng, model = np.random.default_rng(1), model_of(factors=factors)
    values, known = rng.standard_normal((20, 6)), rng.random((20, 6)) < 0.6
    known[0] = False  # nothing is known: the mean
    found = model.expect(torch.tensor(np.where(known, values, 0.0)), torch.tensor(known)).numpy()
    for row, seen, ours in zip(values, known, found):
        np.testing.assert_allclose(ours, conditioned(model, row, seen), atol=1e-10)


def test_a_fitted_model_fills_in_nearly_as_well_as_what_made_the_rows():
    rng = np.random.default_rng(2)
    truth = replace(model_of(columns=8, factors=2), mean=torch.zeros(8, dtype=torch.float64))
    rows = rng.standard_normal((500, 2)) @ truth.loadings.numpy()
    rows += rng.standard_normal(rows.shape) * truth.noise.sqrt().numpy()
    known = rng.random(rows.shape) < 0.8
    network = tg.complete(rows, known, random_state=0, progress=False).network
    given = torch.tensor(np.where(known, rows, 0.0)), torch.tensor(known)
    model = RowModel.of(network, *given)
    errors = [np.square((m.expect(*given).numpy() - rows)[~known]).mean() for m in (model, truth)]
    assert errors[1] < errors[0] < 1.15 * errors[1] < 0.7 * np.square(rows[~known]).mean()
    assert 0.9 < model.gain <= 1.0


def test_the_gain_says_how_far_others_in_a_row_can_be_trusted():
    """A network of pure noise: each value as the others of its row predict it, one by one."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((40, 4))
    network = tg.TensorNetwork.random(tg.Structure((40, 4), {(0, 1): 2}), random_state=0)
    known = torch.ones(40, 4, dtype=torch.bool)
    model = RowModel.of(network, torch.tensor(rows), known)
    alone = np.empty_like(rows)
    for i in range(40):
        for j in range(4):
            seen = np.arange(4) != j
            alone[i, j] = (conditioned(model, rows[i], seen) - model.mean.numpy())[j]
    deviations = rows - model.mean.numpy()
    best = float((alone * deviations).sum() / (alone**2).sum())
    assert model.gain == pytest.approx(min(max(best, 0.0), 1.0), abs=1e-8)
