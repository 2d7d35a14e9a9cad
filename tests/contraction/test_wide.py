"""Large products on several threads, against plain ones."""

import numpy as np
import pytest
import torch

from tensorgrow.contraction import wide
from tensorgrow.contraction.wide import MANY, is_wide, wide_product
from tensorgrow.data.devices import one_thread


@pytest.fixture(params=[0, 2, 3])
def threads(request, monkeypatch):
    """Threads that work; with none the caller computes the pieces of two."""
    monkeypatch.setattr(wide, "threads_of_run", lambda: (request.param, max(request.param, 2)))
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("shape", [(37, 5, 11), (11, 5, 37), (1, 3, 2), (4, 1, 4)])
@pytest.mark.parametrize("by_columns", [False, True])
def test_products_are_those_of_numpy(threads, shape, dtype, by_columns):
    rng = np.random.default_rng(0)
    m, k, n = shape
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    if by_columns:
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    found = wide_product(a, b)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, a @ b, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-6)


def test_one_run_and_several_get_the_same_bits(monkeypatch):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((203, 301)), rng.standard_normal((301, 97))
    found = []
    for threads in (2, 0):
        monkeypatch.setattr(wide, "threads_of_run", lambda threads=threads: (threads, 2))
        found.append(wide_product(a, b))
    np.testing.assert_array_equal(*found)


def test_an_error_of_a_piece_is_raised(threads):
    with pytest.raises(ValueError, match="mismatch"):
        wide_product(np.ones((8, 3)), np.ones((4, 8)))


def test_only_large_products_are_wide():
    assert is_wide(MANY, 1, 1) and not is_wide(MANY - 1, 1, 1)


def test_a_run_on_one_thread_uses_the_blas_as_it_is():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with one_thread():
            a = np.random.default_rng(0).standard_normal((64, 64))
            np.testing.assert_array_equal(wide_product(a, a), a.dot(a))
    finally:
        torch.set_num_threads(before)
