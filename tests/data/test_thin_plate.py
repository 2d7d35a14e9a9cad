"""Thin plates: against a dense solution of the normal equations, and what they must keep."""

from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.data.thin_plate import roughness, thin_plate


def second_differences(rows, columns):
    """All second differences of a picture as one matrix; the mixed ones count twice."""
    across = np.eye(rows * columns).reshape(rows, columns, -1)
    parts = [np.diff(across, n=2, axis=0), np.diff(across, n=2, axis=1)]
    parts.append(np.sqrt(2.0) * np.diff(np.diff(across, axis=0), axis=1))
    return np.concatenate([p.reshape(-1, rows * columns) for p in parts])


def test_it_bends_least_of_all_surfaces_through_the_known_entries():
    rng = np.random.default_rng(0)
    x, known = rng.random((7, 9)), rng.random((7, 9)) < 0.3
    bend, gaps = second_differences(7, 9), ~known.reshape(-1)
    expected = x.reshape(-1).copy()
    expected[gaps] = np.linalg.lstsq(bend[:, gaps], -bend[:, ~gaps] @ expected[~gaps], rcond=None)[0]
    assert np.allclose(thin_plate(x, known, (0, 1), 1e-10).reshape(-1), expected, atol=1e-6)


def test_planes_are_found_whatever_stands_in_the_gaps():
    rng = np.random.default_rng(1)
    plane = np.add.outer(np.arange(12.0), 0.5 * np.arange(10.0))[..., None] * [1.0, -2.0]
    known = rng.random(plane.shape) < 0.3
    filled = thin_plate(np.where(known, plane, 1e6), known, (0, 1), 1e-10)
    assert np.array_equal(filled[known], plane[known])
    assert np.abs(filled - plane).max() < 1e-5


def test_slices_along_other_axes_do_not_touch_each_other():
    rng = np.random.default_rng(2)
    x, known = rng.random((8, 8, 2)), rng.random((8, 8, 2)) < 0.4
    known[..., 1] = False
    filled = thin_plate(x, known, (0, 1))
    assert np.allclose(filled[..., 1], x[known].mean())


@pytest.mark.parametrize("shape", [(1, 5), (2, 5), (5, 1)])
def test_axes_too_short_to_bend_are_allowed(shape):
    x = np.arange(5.0).reshape(1, 5).repeat(shape[0], 0) if shape[1] == 5 else np.arange(5.0)[:, None]
    known = np.ones(shape, dtype=bool)
    known.reshape(-1)[2] = False
    assert np.allclose(thin_plate(x, known, (0, 1)), x, atol=1e-2)


def test_an_array_without_gaps_stays():
    x = np.random.default_rng(3).random((4, 5))
    assert np.array_equal(thin_plate(x, np.ones((4, 5), dtype=bool), (0, 1)), x)


def test_roughness_is_zero_on_constants_and_that_of_a_board_of_chess_within():
    board = np.indices((12, 12)).sum(0) % 2 * 2.0 - 1.0
    assert np.allclose(roughness(np.full((5, 6), 1e6), (0, 1)), 0.0)
    assert np.allclose(roughness(board, (0, 1))[4:-4, 4:-4], 1.0, atol=1e-3)
    assert np.allclose(roughness(board[..., None] * [1.0, 3.0], (0, 1))[6, 6], [1.0, 3.0], atol=0.01)
    assert np.allclose(roughness(np.arange(5.0)[:, None] * np.ones(9), (1,)), 0.0)
