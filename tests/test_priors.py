from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import priors
from tensorgrow.priors import Quadratic, by_axis, describe


def energy(differences: np.ndarray) -> np.ndarray:
    """The matrix of a sum of squares, scaled to a mean diagonal of 2."""
    matrix = differences.T @ differences
    return matrix * (2 * len(matrix) / np.trace(matrix))


def shifts(size: int, *taps: tuple[int, float], wrap: bool = False) -> np.ndarray:
    """Rows ``x[t + lag] * weight`` added up over the taps, for every t at which all of them exist."""
    rows = []
    for t in range(size):
        if wrap or all(0 <= t + lag < size for lag, _ in taps):
            row = np.zeros(size)
            for lag, weight in taps:
                row[(t + lag) % size] += weight
            rows.append(row)
    return np.array(rows)


MATRICES = {
    "smooth": (priors.smooth(), shifts(7, (0, -1), (1, 1))),
    "slopes": (priors.smooth(order=2), shifts(7, (0, 1), (1, -2), (2, 1))),
    "periods": (priors.periodic(3), shifts(7, (0, -1), (3, 1))),
    "one period": (priors.periodic(), shifts(7, (0, -1), (1, 1), wrap=True)),
    "lags": (priors.autoregressive((1, 3), (0.5, 0.25)), shifts(7, (0, 1), (-1, -0.5), (-3, -0.25))),
    "mean of lags": (priors.autoregressive((1, 2)), shifts(7, (0, 1), (-1, -0.5), (-2, -0.5))),
    "one lag": (priors.autoregressive(2), shifts(7, (0, 1), (-2, -1))),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_are_sums_of_squares(name):
    prior, differences = MATRICES[name]
    np.testing.assert_allclose(prior.matrix(7).to_dense(), energy(differences), atol=1e-12)


@given(st.integers(1, 6), st.integers(0, 1000))
def test_a_graph_is_its_laplacian(size, seed):
    weights = np.random.default_rng(seed).random((size, size)).round(1)
    mutual = (weights + weights.T) / 2
    np.fill_diagonal(mutual, 0)
    laplacian = np.diag(mutual.sum(1)) - mutual
    if size > 1 and np.trace(laplacian) > 0:
        laplacian *= 2 * size / np.trace(laplacian)
    for form in (weights, torch.from_numpy(weights), torch.from_numpy(weights).float().numpy()):
        found = priors.graph(form).matrix(size).to_dense()
        np.testing.assert_allclose(found, laplacian, atol=1e-6)


def test_a_sparse_graph_is_the_same():
    sparse = pytest.importorskip("scipy.sparse")
    weights = np.array([[0, 1, 0], [1, 0, 2.0], [0, 2, 0]])
    for form in (sparse.csr_matrix(weights), sparse.coo_array(weights)):
        expected = priors.graph(weights)
        assert priors.graph(form).describe() == expected.describe()


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_digits_within_a_mode_are_kronecker_products(before, size, after):
    matrix = priors.smooth().matrix(size)
    whole = np.kron(np.kron(np.eye(before), matrix.to_dense()), np.eye(after))
    np.testing.assert_allclose(matrix.within(before, after).to_dense(), whole)


def test_sums_and_bandwidths():
    one, two = priors.smooth().matrix(6), priors.periodic(3).matrix(6)
    np.testing.assert_allclose((one + two).to_dense(), one.to_dense() + two.to_dense())
    assert (one.bandwidth, two.bandwidth, (one + two).bandwidth) == (1, 3, 3)
    assert priors.periodic().matrix(6).bandwidth == 5
    assert Quadratic.of_differences(2, np.zeros((0, 2), int), np.zeros((0, 2))).bandwidth == 0


@pytest.mark.parametrize("size", [1, 2])
def test_short_axes_have_matrices(size):
    for prior in (priors.smooth(), priors.smooth(order=2), priors.periodic()):
        matrix = prior.matrix(size).to_dense()
        assert (np.linalg.eigvalsh(matrix) > -1e-12).all()
        assert np.trace(matrix) == pytest.approx(0.0 if size == 1 else 4.0)


def test_axes_by_number_and_name():
    one, two = priors.smooth(), priors.periodic(2)
    assert by_axis({"b": one, -1: (two, one)}, (3, 4, 5), ("a", "b", "c")) == {1: (one,), 2: (two, one)}
    assert by_axis(None, (3,)) == {}
    assert by_axis("nonnegative", (3, 4)) == {k: (priors.nonnegative(),) for k in range(2)}


def test_nonnegativity_is_no_matrix_and_the_same_along_digits():
    known = priors.nonnegative()
    assert known.matrix(5) is None and known.strength is None
    assert known.along_digit(3, 4) == known and not known.needs_whole_axis
    assert by_axis("nonnegative", (2, 3, 4)) == by_axis(dict.fromkeys(range(3), known), (2, 3, 4))
    both = by_axis({1: [priors.smooth(), known]}, (2, 3))
    assert both == {1: (priors.smooth(), known)}


def test_descriptions_tell_priors_apart():
    some = [
        priors.smooth(),
        priors.smooth(0.1),
        priors.smooth(order=2),
        priors.periodic(2),
        priors.autoregressive((1, 2)),
        priors.autoregressive((1, 2), (1, 0)),
        priors.nonnegative(),
        priors.graph(np.ones((3, 3))),
        priors.graph(2 * np.eye(3)[::-1]),
    ]
    texts = {json.dumps(describe({0: (p,)})) for p in some}
    assert len(texts) == len(some)


BAD = {
    "strength of zero": (lambda: priors.smooth(0.0), tg.OptionError, ["strength", "positive"]),
    "infinite strength": (lambda: priors.periodic(2, np.inf), tg.OptionError, ["strength"]),
    "order": (lambda: priors.smooth(order=3), tg.OptionError, ["order=3", "1", "2"]),
    "period": (lambda: priors.periodic(0), tg.OptionError, ["period=0", "whole"]),
    "no lags": (lambda: priors.autoregressive(()), tg.OptionError, ["lags"]),
    "same lags": (lambda: priors.autoregressive((1, 1)), tg.OptionError, ["different"]),
    "lag of zero": (lambda: priors.autoregressive((0, 1)), tg.OptionError, ["lag", "at least 1"]),
    "coefficients": (lambda: priors.autoregressive((1, 2), (1.0,)), tg.OptionError, ["coefficients", "each"]),
    "negative weight": (lambda: priors.graph([[0, -1], [-1, 0]]), tg.DataError, ["negative", "-1"]),
    "nan weight": (lambda: priors.graph([[0, np.nan], [1, 0]]), tg.DataError, ["finite"]),
    "not square": (lambda: priors.graph(np.ones((2, 3))), tg.DataError, ["square", "(2, 3)"]),
    "not a matrix": (lambda: priors.graph(np.ones(3)), tg.DataError, ["square", "(3,)"]),
    "complex weights": (lambda: priors.graph(np.eye(2) * 1j), tg.DataError, ["numbers", "complex"]),
    "unknown number": (lambda: by_axis({3: priors.smooth()}, (3, 4)), tg.OptionError, ["axis 3", "0 to 1"]),
    "unknown name": (
        lambda: by_axis({"x": priors.smooth()}, (3, 4), ("a", "b")),
        tg.OptionError,
        ["'x'", "['a', 'b']"],
    ),
    "no names": (lambda: by_axis({"x": priors.smooth()}, (3, 4)), tg.OptionError, ["'x'", "`names`"]),
    "twice": (lambda: by_axis({0: priors.smooth(), -2: priors.smooth()}, (3, 4)), tg.OptionError, ["twice"]),
    "not a prior": (lambda: by_axis({0: "smooth"}, (3, 4)), tg.OptionError, ["'smooth'", "smooth()"]),
    "empty list": (lambda: by_axis({0: []}, (3, 4)), tg.OptionError, ["[]"]),
    "unknown word": (lambda: by_axis("smooth", (3, 4)), tg.OptionError, ["'nonnegative'"]),
    "no mapping": (lambda: by_axis(priors.smooth(), (3, 4)), tg.OptionError, ["mapping"]),
    "graph of another size": (
        lambda: by_axis({1: priors.graph(np.ones((3, 3)))}, (3, 4)),
        tg.DataError,
        ["3 nodes", "4 places"],
    ),
    "period too long": (lambda: by_axis({0: priors.periodic(3)}, (3, 4)), tg.OptionError, ["period=3"]),
    "lag too long": (lambda: by_axis({0: priors.autoregressive(3)}, (3,)), tg.OptionError, ["lag of 3"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, kind, words = BAD[case]
    with pytest.raises(kind) as raised:
        call()
    for word in words:
        assert word in str(raised.value)
