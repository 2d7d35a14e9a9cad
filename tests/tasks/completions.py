"""Planted networks of which some entries are known, and how completions of them are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tests.oracles import dense, random_network

DIMS = (5,) * 4
STRUCTURES = {
    "train": Structure.tensor_train(DIMS, 2),
    "ring": Structure.tensor_ring(DIMS, 2),
    "triangle": Structure((8, 8, 8), {(0, 1): 2, (1, 2): 2, (0, 2): 2}),
}
SMALL = Structure.tensor_train((5, 6, 5), 2)
FAST = {"effort": "fast", "random_state": 0}


def planted(structure: Structure = SMALL, seed: int = 1, dtype: torch.dtype = torch.float64) -> np.ndarray:
    x = dense(structure, random_network(structure, seed, dtype).cores)
    return x / np.abs(x).max()


def noisy(structure: Structure = SMALL, level: float = 0.1, seed: int = 1) -> np.ndarray:
    x = planted(structure, seed)
    return x + level * np.random.default_rng(seed).standard_normal(x.shape) * x.std()


def some(shape, share: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


def rebuilt(result: tg.Result) -> np.ndarray:
    return dense(result.structure, result.network.cores)


def error_at(result: tg.Result, x: np.ndarray, where: np.ndarray) -> float:
    """Relative error on some entries, by plain NumPy."""
    return float(np.linalg.norm((rebuilt(result) - x)[where]) / np.linalg.norm(x[where]))


def is_finite(result: tg.Result) -> bool:
    return bool(np.isfinite(rebuilt(result)).all()) and math.isfinite(result.relative_error)


def assert_same(a: tg.Result, b: tg.Result, *, moves: bool = True) -> None:
    assert a.structure == b.structure
    assert a.stop is b.stop
    for name in ("relative_error", "train_error", "validation_error", "test_error"):
        one, two = getattr(a, name), getattr(b, name)
        assert (one is None) is (two is None)
        assert one is None or one == pytest.approx(two, rel=1e-6, abs=1e-9), name
    np.testing.assert_allclose(rebuilt(a), rebuilt(b), atol=1e-7 * np.abs(rebuilt(a)).max())
    if moves:
        steps = [[(s.index, s.kind, s.edge, s.structure) for s in r.history] for r in (a, b)]
        assert steps[0] == steps[1]


class StopAfter:
    def __init__(self, steps: int, error: BaseException | None = None) -> None:
        self.left, self.error = steps, error

    def __call__(self, step: tg.Step) -> bool:
        self.left -= 1
        if self.left <= 0 and self.error is not None:
            raise self.error
        return self.left <= 0
