from __future__ import annotations

import sys

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.baselines.interpolation import AFFORDABLE, affordable_methods, interpolate

DRAW = np.random.default_rng(0)


def test_pictures_are_filled_as_griddata_does_it():
    griddata = pytest.importorskip("scipy.interpolate").griddata
    picture = DRAW.random((12, 9, 3))
    known = DRAW.random(picture.shape) < 0.5
    for method in ("linear", "cubic"):
        filled = interpolate(np.where(known, picture, np.nan), method=method)
        for c in range(3):
            here, gaps = np.argwhere(known[..., c]), np.argwhere(~known[..., c])
            values = picture[..., c][known[..., c]]
            expected = griddata(here, values, gaps, method=method)
            nearest = griddata(here, values, gaps, method="nearest")
            expected = np.where(np.isnan(expected), nearest, expected)
            np.testing.assert_allclose(filled[..., c][~known[..., c]], expected)
        np.testing.assert_array_equal(filled[known], picture[known])


@pytest.mark.parametrize("shape", [(30,), (12, 11), (2, 9, 8), (7, 6, 8)])
def test_what_is_linear_is_found_exactly_between_known_entries(shape):
    """Complex, too; corners are known, so that nothing lies beyond."""
    pytest.importorskip("scipy")
    where = np.indices(shape)
    x = 1.0 + sum((k + 1) * (1 + 0.5j) * w for k, w in enumerate(where))
    known = DRAW.random(shape) < 0.4
    known[np.ix_(*((0, -1) for _ in shape))] = True
    np.testing.assert_allclose(interpolate(x, known), x)
    for method in affordable_methods(known):
        # The gradients of cubic pieces are iterated to 1e-6.
        np.testing.assert_allclose(interpolate(x, known, method=method), x, rtol=1e-5)


def test_whole_pixels_short_slices_and_lines():
    pytest.importorskip("scipy")
    x = DRAW.random((8, 9, 3))
    pixels = np.broadcast_to((DRAW.random((8, 9)) < 0.5)[..., None], x.shape)
    one = [interpolate(np.where(pixels, x, np.nan)[..., c]) for c in range(3)]
    np.testing.assert_allclose(interpolate(x, pixels), np.stack(one, -1))
    bare = np.full((6, 7, 2), np.nan)
    bare[2, :, 0] = 5.0  # on one line: the nearest; nothing at all in the other slice: the mean
    np.testing.assert_array_equal(interpolate(bare), 5.0)
    np.testing.assert_array_equal(interpolate([np.nan] * 5 + [2.0], method="cubic"), 2.0)


def test_what_takes_seconds():
    assert affordable_methods(np.ones((9, 9, 3), bool)) == ["linear", "cubic"]
    assert affordable_methods(np.ones((9, 9, 9), bool)) == ["linear"]
    assert affordable_methods(np.ones((5, 5, 5, 5), bool)) == affordable_methods(np.ones((2, 3), bool)) == []
    assert affordable_methods(np.ones((AFFORDABLE[2], 5), bool)) == []


def test_what_cannot_be_interpolated(monkeypatch):
    with pytest.raises(tg.OptionError, match="1 to 2 axes of more than 4 entries"):
        interpolate(np.ones((5, 5, 5)), method="cubic")
    with pytest.raises(tg.OptionError, match=r"x has shape \(2, 2\)"):
        interpolate(np.ones((2, 2)))
    with pytest.raises(tg.OptionError, match="method"):
        interpolate(np.ones(9), method="best")
    with pytest.raises(tg.DataError, match="none of the 9"):
        interpolate(np.full(9, np.nan))
    with pytest.raises(tg.DataError, match="mask has shape"):
        interpolate(np.ones(9), np.ones(8, bool))
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.interpolate", None)
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[io\]"):
        interpolate(np.eye(5), np.eye(5) < 0.5)
