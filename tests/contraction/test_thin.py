"""Products of few rows with a large matrix, against plain ones."""

import numpy as np
import pytest

from tensorgrow.contraction.thin import PIECE, is_thin, thin_product


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("rows", [1, 5, 8, 9, 32])
@pytest.mark.parametrize("by_columns", [False, True])
def test_products_are_those_of_numpy(rows, by_columns, dtype):
    rng = np.random.default_rng(0)
    small = rng.standard_normal((rows, 13)).astype(dtype)
    # More than two pieces, and a rest that fills none.
    large = rng.standard_normal((13, 2 * PIECE // (13 * rows) + 7)).astype(dtype)
    if by_columns:
        large = np.asfortranarray(large)
    wanted = small @ large
    close = {"rtol": 1e-4 if dtype == "float32" else 1e-12, "atol": 1e-4 if dtype == "float32" else 1e-12}
    for a in (small, np.asfortranarray(small)):
        found = thin_product(a, large)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, **close)
        np.testing.assert_allclose(thin_product(large.T, a.T), wanted.T, **close)


def test_only_large_products_of_few_rows_are_thin():
    assert is_thin(5, 100, 10_000) and is_thin(10_000, 100, 5)
    assert not is_thin(5, 10, 100) and not is_thin(100, 100, 10_000)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_long_sums_are_those_of_numpy(dtype):
    rng = np.random.default_rng(0)
    small, large = (
        rng.standard_normal(s).astype(dtype) for s in ((5, 3 * PIECE // 65 + 7), (3 * PIECE // 65 + 7, 13))
    )
    tolerance = 1e-3 if dtype == "float32" else 1e-11
    for a in (small, np.asfortranarray(small)):
        found = thin_product(a, large)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, small @ large, rtol=tolerance, atol=tolerance * len(large) ** 0.5)
