"""One network of a bounded size for the mean of several: what `effort="thorough"` stands for there."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg

SIZE = 70
QUIET = {"random_state": 0, "progress": False, "max_parameters": SIZE, "max_steps": 7}


def waves():
    """No network of the size is exact."""
    a = np.meshgrid(*[np.linspace(0.0, 1.0, 6)] * 3, indexing="ij")
    return 2.0 + np.sin(3.0 * a[0] * a[1] + 5.0 * a[2]) + np.abs(a[1] - a[2])


@pytest.fixture(scope="module")
def data():
    x = waves()
    return x, np.random.default_rng(0).random(x.shape) < 0.5


@pytest.fixture(scope="module")
def distilled(data):
    x, mask = data
    return tg.complete(np.where(mask, x, 0.0), mask, truth=x, effort="thorough", **QUIET)


def test_it_is_one_network_within_the_budget(distilled):
    assert not distilled.members and distilled.num_parameters <= SIZE
    assert distilled.history[-1].kind == "distil"
    assert distilled.history[-1].num_parameters == distilled.num_parameters
    assert distilled.history[-1].relative_error == pytest.approx(distilled.relative_error)


def test_it_is_better_than_the_networks_it_was_made_from(data, distilled):
    x, mask = data
    committee = tg.complete(np.where(mask, x, 0.0), mask, truth=x, members=3, **QUIET)
    errors = [m.test_error for m in committee.members]
    assert distilled.test_error < np.mean(errors)
    assert distilled.structure in [m.structure for m in committee.members]


def test_its_errors_are_those_of_its_network(data, distilled):
    x, mask = data
    full = distilled.to_array()
    for where, error in ((mask, distilled.relative_error), (~mask, distilled.test_error)):
        assert error == pytest.approx(np.linalg.norm((full - x)[where]) / np.linalg.norm(x[where]), rel=1e-4)


def test_it_is_saved_and_has_intervals(tmp_path, data, distilled):
    x, mask = data
    distilled.save(tmp_path / "d.safetensors")
    loaded = tg.load(tmp_path / "d.safetensors")
    _, low, high = loaded.predict(np.argwhere(~mask), interval=0.9)
    assert ((low <= x[~mask]) & (x[~mask] <= high)).mean() > 0.8


@pytest.mark.parametrize(
    "change",
    [{"max_parameters": None}, {"validation": False}, {"loss": "absolute"}, {"options": tg.GreedyOptions()}],
)
def test_otherwise_a_thorough_run_is_one_run(data, change):
    x, mask = data
    short = {**QUIET, "effort": "thorough", "max_steps": 1}
    result = tg.complete(x, mask, **{**short, **change})
    assert "distil" not in [s.kind for s in result.history] and not result.members


def test_exact_data_is_met_exactly():
    rng = np.random.default_rng(3)
    x = np.einsum("ia,jb,kab->ijk", rng.random((6, 2)), rng.random((7, 2)), rng.random((8, 2, 2)))
    mask = rng.random(x.shape) < 0.7
    result = tg.complete(x, mask, truth=x, effort="thorough", **{**QUIET, "max_steps": 4})
    assert result.test_error < 1e-6


def test_nothing_is_distilled_from_zeros():
    x = np.zeros((4, 5, 6))
    result = tg.complete(x, np.ones(x.shape, dtype=bool), effort="thorough", **QUIET)
    assert result.relative_error == 0.0
