"""HaLRTC and its truncated form."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import baselines


def low_rank(rank: int, dims: tuple[int, ...] = (12, 11, 10), seed: int = 0) -> np.ndarray:
    """Independent normal core and factors."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rank,) * len(dims))
    for axis, d in enumerate(dims):
        x = np.moveaxis(np.tensordot(rng.standard_normal((d, rank)), x, ([1], [axis])), 0, axis)
    return x


def norms(x: np.ndarray, free: int = 0) -> float:
    """Mean over the unfoldings of the sum of singular values, but for the largest ones."""
    unfolded = (np.moveaxis(x, k, 0).reshape(x.shape[k], -1) for k in range(x.ndim))
    return float(np.mean([np.linalg.svd(m, compute_uv=False)[free:].sum() for m in unfolded]))


def mask_of(x: np.ndarray, share: float) -> np.ndarray:
    return np.random.default_rng(7).random(x.shape) < share


@pytest.mark.parametrize("truncation", [0.0, 0.2])
def test_a_tensor_of_low_rank_is_recovered(truncation):
    x = low_rank(2)
    known = mask_of(x, 0.7)
    found = baselines.halrtc(np.where(known, x, np.nan), truncation=truncation, tolerance=1e-8)
    np.testing.assert_array_equal(found[known], x[known])
    assert np.linalg.norm(found - x) < 1e-2 * np.linalg.norm(x)


def test_truncation_finds_what_the_nuclear_norm_does_not():
    x = low_rank(2)
    known = mask_of(x, 0.35)
    plain, truncated = (
        np.linalg.norm(baselines.halrtc(x, known, truncation=t, tolerance=1e-7) - x) for t in (0.0, 0.15)
    )
    assert truncated < 0.5 * plain


def test_without_growth_the_answer_is_the_minimum():
    """Convex: no step from the answer lowers the mean nuclear norm."""
    x = low_rank(2, (7, 6, 5)) + 0.3 * np.random.default_rng(3).standard_normal((7, 6, 5))
    known = mask_of(x, 0.5)
    found = baselines.halrtc(x, known, growth=1.0, iterations=5000, tolerance=1e-10)
    least, rng = norms(found), np.random.default_rng(1)
    assert least < norms(np.where(known, x, 0.0))
    assert least < norms(x)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            step = np.where(known, 0.0, rng.standard_normal(x.shape))
            assert norms(found + size * step) > least
    # Towards the truth, too, and the same answer from another penalty.
    assert norms(found + 1e-3 * (x - found)) > least
    other = baselines.halrtc(x, known, growth=1.0, penalty=5.0, iterations=5000, tolerance=1e-10)
    np.testing.assert_allclose(other, found, atol=1e-5)


@pytest.mark.parametrize("truncation", [0.0, 0.3])
def test_the_objective_falls(truncation):
    x = low_rank(3)
    known, free = mask_of(x, 0.5), [0, 4][truncation > 0]
    values = [
        norms(baselines.halrtc(x, known, truncation=truncation, iterations=n, tolerance=0.0), free)
        for n in (1, 10, 40, 160)
    ]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.9 * values[0]


def test_complex_numbers_and_other_scales():
    x = low_rank(2) + 1j * low_rank(2, seed=1)
    known = mask_of(x, 0.8)
    found = baselines.halrtc(x, known)
    assert np.linalg.norm(found - x) < 0.1 * np.linalg.norm(x)
    np.testing.assert_allclose(baselines.halrtc(1e6 * x, known), 1e6 * found, rtol=1e-6)
    np.testing.assert_allclose(baselines.halrtc(1j * x, known), 1j * found, rtol=1e-6)


def test_a_long_mode_is_unfolded_either_way():
    """The first mode is longer than the product of the others."""
    x = low_rank(2, (60, 6, 5))
    known = mask_of(x, 0.7)
    found = baselines.halrtc(x, known, tolerance=1e-7)
    assert np.linalg.norm(found - x) < 0.05 * np.linalg.norm(x)


def test_what_has_no_gaps_and_zeros_come_back():
    x = low_rank(2, (4, 3, 2))
    np.testing.assert_array_equal(baselines.halrtc(x), x)
    zeros = baselines.halrtc(np.zeros((4, 3)), mask_of(np.zeros((4, 3)), 0.5))
    np.testing.assert_array_equal(zeros, 0.0)
    assert np.isfinite(baselines.halrtc(x, mask_of(x, 0.5), max_seconds=0.0)).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"truncation": 1.0}, "truncation"),
        ({"penalty": 0.0}, "penalty"),
        ({"growth": 0.5}, "growth"),
        ({"iterations": 0}, "iterations"),
    ],
)
def test_options_are_checked(options, word):
    with pytest.raises(tg.OptionError, match=word):
        baselines.halrtc(np.ones((3, 3)), **options)


def test_data_is_checked():
    with pytest.raises(tg.DataError, match="mask has shape"):
        baselines.halrtc(np.ones((3, 3)), np.ones((3, 2), bool))
    with pytest.raises(tg.DataError, match="none of the 9 entries"):
        baselines.halrtc(np.full((3, 3), np.nan))
