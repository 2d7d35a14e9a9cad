"""Entries that leave things open: gaps, few of them, constants, outliers, odd shapes."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tests.tasks.completions import FAST, SMALL, error_at, is_finite, planted, rebuilt, some


def test_slices_without_observations():
    x, mask = planted(), some(SMALL.dims, 0.9)
    mask[2], mask[:, 4], mask[:, 1] = False, False, False
    with pytest.warns(tg.DataWarning, match=r"1 of 5 along mode 0, 2 of 6 along mode 1\)"):
        result = tg.complete(x, mask, random_state=0)
    assert is_finite(result)
    known = np.delete(np.delete(np.ones(SMALL.dims, bool), 2, 0), [1, 4], 1)
    got = np.delete(np.delete(rebuilt(result), 2, 0), [1, 4], 1)
    true = np.delete(np.delete(x, 2, 0), [1, 4], 1)
    assert known.shape == got.shape
    assert np.linalg.norm(got - true) < 1e-5 * np.linalg.norm(true)
    assert np.abs(rebuilt(result)).max() < 100 * np.abs(x).max()


def test_a_fibre_without_observations():
    x, mask = planted(), np.ones(SMALL.dims, bool)
    mask[2, 3, :] = mask[:, 0, 0] = False
    result = tg.complete(x, mask, random_state=0)  # no warning: every slice has entries
    assert error_at(result, x, ~mask) < 1e-6


def test_one_observation_per_slice():
    d = np.arange(12)
    with pytest.warns(tg.DataWarning, match="degrees of freedom"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "every slice", tg.DataWarning)
        result = tg.complete(tg.Observations(np.stack([d, d, d], 1), 1.0 + d, (12, 12, 12)), random_state=0)
    assert is_finite(result)
    assert result.num_parameters == 36  # nothing can be held out, so nothing speaks for a larger network
    assert result.info["num_held_out"] == 0 and result.validation_error is None
    assert np.abs(rebuilt(result)).max() < 1e4


def test_nothing_to_hold_out_is_said():
    d = np.arange(12)
    listed = tg.Observations(np.stack([d, d], 1), 1.0 + d, (12, 12))
    with pytest.warns(tg.DataWarning) as caught:
        tg.complete(listed, random_state=0)
    assert any("none is held out" in str(w.message) for w in caught)


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11])
def test_few_observations(n):
    rng = np.random.default_rng(n)
    where = np.stack(np.unravel_index(rng.permutation(64)[:n], (4, 4, 4)), 1)
    listed = tg.Observations(where, rng.uniform(1, 2, n), (4, 4, 4))
    with pytest.warns(tg.DataWarning) if n < 10 else warnings.catch_warnings():
        warnings.simplefilter("always" if n < 10 else "ignore")
        limited = tg.complete(listed, max_parameters=20, **FAST)
        unlimited = tg.complete(listed, **FAST)
    for r in (limited, unlimited):
        assert is_finite(r)
        assert r.info["num_observations"] == n
        assert r.info["num_held_out"] == 0 or n >= 10
    assert limited.num_parameters <= 20
    if unlimited.info["num_held_out"] == 0:
        assert unlimited.num_parameters == 12  # as the warning says
    else:
        assert n >= 10 and unlimited.validation_error is not None


@pytest.mark.parametrize("value", [1.0, -3.5, 1e-3, 1e5, 2 - 1j])
def test_constant_values(value):
    mask = some((4, 5, 6), 0.5)
    result = tg.complete(np.full((4, 5, 6), value), mask, random_state=0)
    assert result.num_parameters == 15
    np.testing.assert_allclose(rebuilt(result), value, rtol=1e-5)


def test_an_outlier_is_pointed_out():
    x, mask = planted(), some(SMALL.dims, 0.8)
    x[tuple(np.argwhere(mask)[3])] = 1e6
    with pytest.warns(tg.DataWarning, match="outliers"):
        result = tg.complete(x, mask, max_steps=1, **FAST)
    assert is_finite(result)


def test_outliers():
    x, mask = planted(), some(SMALL.dims, 0.8)
    given = x.copy()
    where = np.argwhere(mask)[[3, 40]]
    given[tuple(where.T)] = 1e6
    result = tg.complete(given, mask, random_state=0)
    assert is_finite(result)
    assert np.abs(rebuilt(result)).max() < 1e8


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
def test_all_zero(dtype):
    x, mask = np.zeros((4, 5, 6), dtype), some((4, 5, 6), 0.5)
    result = tg.complete(x, mask, random_state=0, truth=np.ones((4, 5, 6)))
    assert result.relative_error == result.train_error == result.validation_error == 0
    assert result.test_error == pytest.approx(1.0)
    np.testing.assert_array_equal(result.network.to_dense().numpy(), 0)
    np.testing.assert_array_equal(result.fill(x, mask), 0)
    fitted = tg.fit(x, Structure.tensor_train((4, 5, 6), 2), mask, truth=np.ones((4, 5, 6)))
    assert fitted.relative_error == 0 and fitted.test_error == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [(6, 6), (4, 5, 6)])
def test_one_entry_that_is_not_zero(shape, seed):
    """The held-out entries are all zero, so that their norm is."""
    x = np.zeros(shape)
    x[(2,) * len(shape)] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)  # it looks like an outlier
        result = tg.complete(x, np.ones(shape, bool), random_state=seed)  # with all of its phases
    assert is_finite(result)
    assert math.isfinite(result.validation_error)
    assert 0 <= result.relative_error <= 1.0 + 1e-9


def test_all_that_is_not_zero_is_held_out():
    x = np.zeros((5, 6))
    x[1, 2] = x[3, 3] = 1.0
    result = tg.complete(x, np.ones(x.shape, bool), validation=x > 0, random_state=0)
    assert is_finite(result)
    assert result.validation_error == pytest.approx(1.0)
    assert result.train_error == pytest.approx(0.0, abs=1e-6)


def test_vectors():
    x, mask = np.arange(1.0, 31.0), np.arange(30) % 3 > 0
    with pytest.warns(tg.DataWarning, match="10 of 30 along mode 0"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(every slice|20 observations)", tg.DataWarning)
        result = tg.complete(x, mask, random_state=0)
    assert result.num_parameters == 30 and is_finite(result)
    filled = result.fill(x, mask)
    np.testing.assert_array_equal(filled[mask], x[mask])
    np.testing.assert_allclose(filled[~mask], x[mask].mean(), rtol=0.05)


def test_a_mode_of_size_one():
    x = planted(SMALL).reshape(5, 1, 6, 5)
    mask = some(x.shape, 0.8)
    result = tg.complete(x, mask, random_state=0)
    assert error_at(result, x, ~mask) < 1e-6


def test_single_entry_tensor():
    with pytest.warns(tg.DataWarning, match="only 1 observation:"):
        result = tg.complete(np.array([[3.0]]), np.array([[True]]), random_state=0)
    assert rebuilt(result)[0, 0] == pytest.approx(3.0, rel=0.05)


def test_a_huge_tensor_with_few_entries():
    """Dense it would take 800 GB."""
    dims, n = (10_000, 10_000, 1_000), 20_000
    rng = np.random.default_rng(0)
    where = np.stack([d // 100 * rng.integers(0, 100, n) for d in dims], 1)  # in a hundredth of the slices
    factors = [rng.uniform(0.5, 1.5, d) for d in dims]
    values = np.prod([f[where[:, k]] for k, f in enumerate(factors)], axis=0)
    listed = tg.Observations(where, values, dims)
    with pytest.warns(tg.DataWarning, match="9900 of 10000 along mode 0"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*degrees of freedom", tg.DataWarning)
        result = tg.complete(listed, max_steps=0, memory_limit=3e9, **FAST)
    assert result.num_parameters == 21_000
    new = np.stack([d // 100 * rng.integers(0, 100, 200) for d in dims], 1)
    true = np.prod([f[new[:, k]] for k, f in enumerate(factors)], axis=0)
    np.testing.assert_allclose(result.predict(new), true, rtol=0.05)
    assert np.isfinite(result.predict([[9_999, 9_999, 999]])).all()


@pytest.mark.parametrize(("modes", "n"), [(9, 400), (20, 300)])
def test_a_tensor_of_many_modes(modes, n):
    """Positive, almost constant and of rank one; but a random start has random signs in every mode."""
    rng = np.random.default_rng(0)
    where = rng.integers(0, 2, (n, modes))
    factors = rng.uniform(0.9, 1.1, (modes, 2))
    values = np.prod(factors[np.arange(modes), where], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)  # some are listed twice
        result = tg.complete(tg.Observations(where, values, (2,) * modes), max_steps=0, **FAST)
    new = rng.integers(0, 2, (50, modes))
    true = np.prod(factors[np.arange(modes), new], axis=1)
    np.testing.assert_allclose(result.predict(new), true, rtol=0.05)


def test_counts_are_learned():
    """On fresh counts, clearly better than a network of zeros and than one rate for all."""
    x = tg.TensorNetwork.random(Structure.tensor_ring((7,) * 5, (2, 3, 4, 5, 5)), random_state=0)
    y = x.to_dense().numpy()
    rates = np.exp(2 + y[:, :, :, 0, 0] / y.std())
    counts, fresh = (torch.tensor(np.random.default_rng(k).poisson(rates).astype(float)) for k in (0, 1))
    loss = tg.losses.poisson
    result = tg.complete(counts, loss="poisson", effort="fast", random_state=0)

    def deviance(prediction):
        return float((loss.each(prediction, fresh) - loss.least(fresh)).sum())

    ours = deviance(result.network.to_dense())
    assert ours < 0.1 * deviance(torch.zeros_like(fresh))
    assert ours < 0.5 * deviance(torch.full_like(fresh, float(counts.mean().log())))
