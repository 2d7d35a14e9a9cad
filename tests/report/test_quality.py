from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.report.quality import relative_error, ssim


@pytest.mark.parametrize("shape", [(20, 31), (16, 12, 3)])
def test_structural_similarity_is_that_of_scikit_image(shape):
    pytest.importorskip("scipy")
    theirs = pytest.importorskip("skimage.metrics").structural_similarity
    a, b = np.random.default_rng(0).random((2, *shape))
    for other in (b, 0.9 * a + 0.1 * b, a):
        expected = theirs(
            a,
            other,
            channel_axis=-1 if a.ndim == 3 else None,
            data_range=1.0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        assert ssim(a, other) == pytest.approx(expected, abs=1e-12)


def test_no_similarity_of_what_is_small_or_unknown():
    assert ssim(np.ones((10, 50)), np.ones((10, 50))) is None
    assert ssim(np.full((20, 20), np.nan), np.ones((20, 20))) is None


def test_errors_of_numbers_whose_squares_have_no_room():
    x = np.array([3.0, 4.0])
    for size in (1e-300, 1.0, 1e300):
        assert relative_error(size * (x + np.array([0.0, 0.5])), size * x) == pytest.approx(0.1)
    assert relative_error(np.zeros(3), np.zeros(3)) == 0.0
