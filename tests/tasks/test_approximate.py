"""Functions from chosen points."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop

GRIDS = [np.linspace(-1.0, 1.0, n) for n in (7, 8, 9, 7, 6)]
SHAPE = (7, 8, 9, 7, 6)


def field(x: np.ndarray) -> np.ndarray:
    return np.cos(x[:, 0] * x[:, 3]) + 0.5 * x[:, 1] * np.exp(x[:, 4]) + x[:, 2] ** 2


def everywhere(grids=GRIDS) -> np.ndarray:
    return np.stack(np.meshgrid(*grids, indexing="ij"), -1).reshape(-1, len(grids))


class Costly:
    """A function whose evaluations are counted, and which may fail at one of them."""

    def __init__(self, fails_after: int | None = None, error: type[BaseException] = ValueError) -> None:
        self.calls: list[bytes] = []
        self.fails_after = [fails_after]  # a list: no part of what tells functions from each other
        self.error = error

    def __call__(self, index: np.ndarray) -> np.ndarray:
        rows = [r.tobytes() for r in index]
        (most,) = self.fails_after
        if most is not None and len(self.calls) + len(rows) > most:
            raise self.error("the solver died")
        self.calls += rows
        return field(np.stack([g[index[:, k]] for k, g in enumerate(GRIDS)], 1))


def test_a_function_of_coordinates_is_learned_everywhere():
    r = tg.approximate(field, GRIDS, max_error=1e-6, random_state=0)
    points = everywhere()
    true = field(points)
    error = np.linalg.norm(r.predict(points) - true) / np.linalg.norm(true)
    assert error <= 1e-6
    assert r.stop is Stop.TARGET_REACHED
    assert r.validation_error <= 1e-6 and r.errors.kind == "relative"
    assert r.info["evaluations"] < 0.05 * len(points)
    assert len(r.info["evaluations_by_step"]) == len(r.history)
    again = tg.approximate(field, GRIDS, max_error=1e-6, random_state=0, workers=2, batch_size=50)
    assert all(map(torch.equal, r.network.cores, again.network.cores))


def test_indices_names_precision_and_complex_values():
    f = Costly()
    r = tg.approximate(f, SHAPE, max_error=1e-4, random_state=0, dtype="float32", names=tuple("abcde"))
    assert r.network.dtype == torch.float32
    assert r.axes is not None and r.axes.names == tuple("abcde")
    assert r.info["evaluations"] == len(f.calls) == len(set(f.calls))
    index = np.array([[0, 1, 2, 3, 4], [6, 7, 8, 6, 5]])
    assert np.allclose(r.predict(index), f(index), atol=1e-3)
    wave = tg.approximate(lambda x: np.exp(1j * x.sum(1)), GRIDS, max_error=1e-8, random_state=0)
    assert wave.network.is_complex and wave.num_parameters == sum(SHAPE)
    large = tg.approximate(lambda x: 1e250 * field(x), GRIDS, max_error=1e-6, random_state=0)
    assert np.allclose(large.predict(everywhere()[:9]), 1e250 * field(everywhere()[:9]), rtol=1e-5)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (1, 5, 1, 4), (2, 2, 2)])
def test_small_grids(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    r = tg.approximate(lambda i: x[tuple(i.T)], shape, max_error=1e-6, validation=30, random_state=0)
    assert np.allclose(np.asarray(r.network), x)


@pytest.mark.parametrize("seed", [0, 2])
def test_what_random_points_miss_is_looked_for(seed):
    """A cusp in the middle, where one point of ten thousand lies: the error is that of the whole grid."""
    grid = np.linspace(-1.0, 1.0, 16)
    points = np.stack(np.meshgrid(*[np.arange(16)] * 4, indexing="ij"), -1).reshape(-1, 4)

    def cusp(index):
        return 1.0 - np.exp(-4.0 * np.sqrt((grid[index] ** 2).mean(1)))

    result = tg.approximate(cusp, (16,) * 4, max_error=1e-5, random_state=seed, progress=False)
    truth = cusp(points)
    off = result.to_array().reshape(-1) - truth
    assert np.linalg.norm(off) <= 2e-5 * np.linalg.norm(truth)


def test_zero_is_said():
    with pytest.warns(tg.DataWarning, match="f is zero at all"):
        r = tg.approximate(lambda x: np.zeros(len(x)), SHAPE, max_error=1e-3, random_state=0)
    assert r.network.norm() == 0.0


def test_a_budget_of_evaluations_is_kept_and_can_be_raised(tmp_path):
    file, f = tmp_path / "run.ckpt", Costly()
    part = tg.approximate(f, SHAPE, max_error=1e-6, max_evaluations=200, random_state=0, checkpoint=file)
    assert part.stop is Stop.MAX_EVALUATIONS
    assert len(f.calls) == part.info["evaluations"] <= 200
    whole = tg.approximate(f, SHAPE, max_error=1e-6, random_state=0, checkpoint=file)
    assert whole.stop is Stop.TARGET_REACHED
    assert len(f.calls) == len(set(f.calls)) == whole.info["evaluations"]


def test_evaluations_survive_a_function_that_raises(tmp_path):
    file, f = tmp_path / "run.ckpt", Costly(fails_after=250)
    keywords = {"max_error": 1e-6, "random_state": 0, "checkpoint": file, "batch_size": 40}
    with pytest.raises(tg.DataError, match=r"ValueError at the index \(.*\): the solver died.*250 eval"):
        tg.approximate(f, SHAPE, **keywords)
    f.fails_after[0] = None
    r = tg.approximate(f, SHAPE, **keywords)
    assert r.stop is Stop.TARGET_REACHED
    assert len(f.calls) == len(set(f.calls)) == r.info["evaluations"]


def test_evaluations_survive_an_interrupt(tmp_path):
    file, f = tmp_path / "run.ckpt", Costly(fails_after=250, error=KeyboardInterrupt)
    keywords = {"max_error": 1e-6, "random_state": 0, "checkpoint": file, "batch_size": 40}
    part = tg.approximate(f, SHAPE, **keywords)
    assert part.stop is Stop.INTERRUPTED
    f.fails_after[0] = None
    r = tg.approximate(f, SHAPE, **keywords)
    assert len(f.calls) == len(set(f.calls)) == r.info["evaluations"]


def test_a_function_that_was_mended_keeps_its_values_and_another_one_is_refused(tmp_path):
    file = tmp_path / "run.ckpt"
    keywords = {"max_error": 1e-6, "random_state": 0, "checkpoint": file}
    with pytest.raises(tg.DataError, match="nan"):
        tg.approximate(lambda x: np.where(x[:, 4] > 0.99, np.nan, field(x)), GRIDS, **keywords)
    with pytest.raises(tg.OptionError, match="belongs to another run: f was"):
        tg.approximate(lambda x: field(x) + 1.0, GRIDS, **keywords)
    assert tg.approximate(field, GRIDS, **keywords).stop is Stop.TARGET_REACHED


BAD = {
    "no limit": ({}, "nothing says when to stop.*max_evaluations"),
    "precision": ({"max_error": 1e-15}, "max_error=1e-15 is below"),
    "single": ({"max_error": 1e-7, "dtype": "float32"}, "below what torch.float32 can tell"),
    "few": ({"max_evaluations": 50}, "max_evaluations=50, but the first network takes up to 137"),
    "whole": ({"max_evaluations": 1e3}, "max_evaluations=1000.0 must be a whole number"),
    "validation": ({"max_error": 0.1, "validation": 3}, "validation=3"),
    "names": ({"max_error": 0.1, "names": ("a",)}, "names"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_options(kind):
    keywords, message = BAD[kind]
    with pytest.raises(tg.OptionError, match=message):
        tg.approximate(field, GRIDS, **keywords)


@pytest.mark.parametrize("grids", [(), 5, (3, 0), (3, -1), [np.ones((2, 2))], [["a", "b"]], [GRIDS[0], 4]])
def test_grids_of_another_form(grids):
    with pytest.raises(tg.OptionError, match="shape_or_grids"):
        tg.approximate(field, grids, max_error=0.1)


@pytest.mark.parametrize("grid", [[0.0, 1.0, 0.0], [0.0, np.nan]])
def test_grids_with_points_that_are_none(grid):
    with pytest.raises(tg.DataError, match="grid 1 holds"):
        tg.approximate(field, [GRIDS[0], grid], max_error=0.1)


def test_bad_functions():
    with pytest.raises(tg.OptionError, match="f must be a function"):
        tg.approximate("cos", GRIDS, max_error=0.1)
    with pytest.raises(tg.DataError, match=r"nan at the index .*, the point"):
        tg.approximate(lambda x: np.full(len(x), np.nan), GRIDS, max_error=0.1)
    with pytest.raises(tg.DataError, match=r"complex number.*dtype=complex"):
        tg.approximate(lambda x: 1j * x[:, 0], GRIDS, max_error=0.1, dtype=float)
