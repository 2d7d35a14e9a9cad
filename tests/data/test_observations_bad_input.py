from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
import torch

import tensorgrow as tg
from tensorgrow.data.observations import as_observations

SHAPE = (4, 5, 6)
X = np.random.default_rng(0).standard_normal(SHAPE)
MASK = np.random.default_rng(1).random(SHAPE) < 0.4
NAN, INF = math.nan, math.inf
ONE = [[0, 0]]
LISTS = {
    "too large": (([[0, 0], [1, 3]], [1.0, 2.0], (2, 3)), ["(1, 3)", "(2, 3)", "number 1", "from 0"]),
    "negative": (([[0, -1]], [1.0], (2, 3)), ["(0, -1)", "from 0"]),
    "negative without a shape": (([[0, -1]], [1.0]), ["(0, -1)"]),
    "broken": (([[0, 0.5]], [1.0]), ["whole"]),
    "nan index": (([[0, NAN]], [1.0]), ["whole"]),
    "infinite index": (([[0, INF]], [1.0], (2, 2)), ["whole"]),
    "bool": (([[True, False]], [1.0]), ["bool", "whole"]),
    "complex": (([[0j, 1]], [1.0]), ["complex", "whole"]),
    "text": (([["a", "b"]], [1.0]), ["numbers"]),
    "ragged": (([[0, 1], [2]], [1.0, 2.0]), ["indices"]),
    "flat": (([0, 1], [1.0, 2.0]), ["(2,)", "(number of entries, order)"]),
    "none": ((np.zeros((0, 2), int), []), ["at least one"]),
    "too few values": (([[0, 0], [1, 1]], [1.0]), ["values", "(1,)", "2"]),
    "values as a matrix": ((ONE, [[1.0]]), ["values", "(1, 1)"]),
    "one number": ((ONE, 1.0), ["single number"]),
    "text values": ((ONE, ["a"]), ["dtype", "numbers"]),
    "nan value": (([[0, 0], [1, 1]], [1.0, NAN]), ["1 of 2", "not finite", "number 1"]),
    "infinite value": ((ONE, [INF]), ["1 of 1", "not finite"]),
    "wrong order": ((ONE, [1.0], (2, 2, 2)), ["2 columns", "3 axes"]),
    "zero side": ((ONE, [1.0], (0, 2)), ["shape", "positive"]),
    "broken side": ((ONE, [1.0], (2.5, 2)), ["shape", "whole"]),
    "text shape": ((ONE, [1.0], "ab"), ["shape"]),
}


def refused(kind, words, call):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, tg.TensorgrowError)
    for word in words:
        assert word.lower() in str(caught.value).lower(), f"{word!r} is not in {str(caught.value)!r}"


@pytest.mark.parametrize("case", LISTS)
def test_bad_lists(case):
    arguments, words = LISTS[case]
    refused(tg.DataError, words, lambda: tg.Observations(*arguments))


WEIGHTS = {
    "negative": ([1.0, -1.0], ["weights", "negative"]),
    "nan": ([1.0, NAN], ["weights", "not finite"]),
    "infinite": ([1.0, INF], ["weights", "not finite"]),
    "complex": ([1.0, 1j], ["weights", "real"]),
    "too few": ([1.0], ["weights", "2"]),
    "a matrix": ([[1.0, 1.0]], ["weights"]),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_bad_weights(case):
    weights, words = WEIGHTS[case]
    refused(tg.DataError, words, lambda: tg.Observations([[0], [1]], [1.0, 2.0], weights=weights))


def _with_nan() -> np.ndarray:
    x = X.copy()
    x[tuple(np.argwhere(MASK)[3])] = NAN
    return x


DENSE = {
    "mask of another shape": ((X, MASK[:3]), tg.DataError, ["mask", "(3, 5, 6)", "(4, 5, 6)"]),
    "mask of other numbers": ((X, MASK * 2.0), tg.DataError, ["mask", "booleans"]),
    "mask of text": ((X, np.full(SHAPE, "a")), tg.DataError, ["mask"]),
    "nan among the observed": (
        (_with_nan(), MASK),
        tg.DataError,
        [f"1 of {MASK.sum()}", "not finite", "number 3"],
    ),
    "infinity where nan is missing": ((np.where(MASK, X, INF),), tg.DataError, ["not finite"]),
    "nothing observed": ((X, np.zeros(SHAPE, bool)), tg.DataError, ["observation"]),
    "all nan": ((np.full(SHAPE, NAN),), tg.DataError, ["observation"]),
    "all masked": ((np.ma.masked_all(SHAPE),), tg.DataError, ["observation"]),
    "weights of another shape": ((X, MASK, MASK[0] * 1.0), tg.DataError, ["weights", "(5, 6)"]),
    "all weights zero": ((X, MASK, np.zeros(SHAPE)), tg.DataError, ["positive weight"]),
    "objects": ((np.array([[None, 1], [2, 3]]),), tg.DataError, ["dtype", "numbers"]),
    "text": (("abc",), tg.DataError, ["numbers"]),
    "one number": ((3.0,), tg.DataError, ["single number"]),
    "mask for a list": ((tg.Observations(ONE, [1.0]), MASK), tg.OptionError, ["mask", "dense"]),
    "empty scipy": ((scipy.sparse.coo_matrix((3, 3)),), tg.DataError, ["observation"]),
    "no real part": ((X + 1j, MASK, None, torch.float64), tg.OptionError, ["imaginary", "complex"]),
    "too large for single": ((X * 1e60, MASK, None, torch.float32), tg.DataError, ["float64"]),
}


@pytest.mark.parametrize("case", DENSE)
def test_bad_data(case):
    arguments, kind, words = DENSE[case]
    refused(kind, words, lambda: as_observations(*arguments))
