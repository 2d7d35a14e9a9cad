from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.plotting.picture import ValueRange, as_image


def test_images_are_checked():
    x = np.arange(24.0)
    assert as_image(x, (4, 6)).shape == (4, 6)
    assert as_image(x, (2, 4, 3)).shape == (2, 4, 3)
    assert as_image(x, (4, 6, 1)).shape == (4, 6)
    assert as_image(1j * x, (4, 6)).tolist() == x.reshape(4, 6).tolist()
    with pytest.raises(tg.DataError, match="25 entries, the tensor 24"):
        as_image(x, (5, 5))
    with pytest.raises(tg.DataError, match="height, width"):
        as_image(x, (2, 3, 4, 1))
    with pytest.raises(tg.DataError, match="height, width"):
        as_image(x, lambda d: d)


def test_black_and_white():
    ramp = np.linspace(0, 1, 100).reshape(10, 10)
    assert ValueRange.of(ramp) == ValueRange(0.0, 1.0)
    assert ValueRange.of(255 * ramp) == ValueRange(0.0, 255.0)
    assert ValueRange.of(np.full((3, 3), np.nan)) == ValueRange(0.0, 1.0)
    wide = ValueRange.of(1e6 * ramp - 3)
    assert wide.to_unit(1e6 * ramp - 3).min() == 0.0
    assert ValueRange.of(np.zeros((3, 3))).to_unit(np.zeros((3, 3))).tolist() == [[0.0] * 3] * 3
