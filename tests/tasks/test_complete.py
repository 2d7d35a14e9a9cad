"""Completion: what it finds, what it reports, what its results can do."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow import Structure
from tests.tasks.completions import (
    FAST,
    SMALL,
    STRUCTURES,
    assert_same,
    error_at,
    noisy,
    planted,
    rebuilt,
    some,
)


@pytest.fixture(scope="module", params=STRUCTURES)
def recovered(request):
    """A planted network, 60 % observed, completed without any hint."""
    structure = STRUCTURES[request.param]
    x, mask = planted(structure), some(structure.dims, 0.6)
    return structure, x, mask, tg.complete(x, mask, random_state=0, truth=x)


# -- recovery --------------------------------------------------------------------------------------------


def test_recovers_a_planted_network(recovered):
    structure, x, mask, result = recovered
    assert result.num_parameters <= structure.num_parameters
    assert error_at(result, x, ~mask) < 1e-6
    assert result.stop is Stop.TARGET_REACHED


def test_reported_errors(recovered):
    _, x, mask, result = recovered
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-3, abs=1e-12)
    assert result.test_error == pytest.approx(error_at(result, x, ~mask), rel=1e-3, abs=1e-12)
    assert 0 <= result.train_error < 1e-6 and 0 <= result.validation_error < 1e-6
    assert "validation" in repr(result) and "test" in repr(result)


def test_errors_of_noisy_data_are_what_numpy_finds(plain):
    x, mask, result = plain
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-6)
    assert result.test_error == pytest.approx(error_at(result, x, ~mask), rel=1e-6)
    assert result.info["num_observations"] == mask.sum()
    assert 0 < result.info["num_held_out"] < 0.25 * mask.sum()
    assert 1e-3 < result.validation_error < 1
    assert result.history[-1].kind == "refit"
    assert result.history[-1].relative_error == pytest.approx(result.relative_error)
    assert result.stop is Stop.VALIDATION


def test_steps_report_the_held_out_error(plain):
    *_, result = plain
    grown = [s for s in result.history if s.kind != "refit"]
    assert all(s.validation_error > 0 for s in grown)
    assert [s.index for s in result.history] == list(range(len(result.history)))
    assert all(a.seconds <= b.seconds for a, b in pairwise(result.history))
    # Half a standard error above the best is as good as the best.
    assert result.validation_error <= 1.3 * min(s.validation_error for s in grown)


def test_path_holds_no_pointless_networks(plain):
    *_, result = plain
    sizes = [p.num_parameters for p in result.path]
    errors = [p.error for p in result.path]
    assert sizes == sorted(set(sizes)) and errors == sorted(set(errors), reverse=True)
    assert result.at(max_parameters=sizes[0]).num_parameters == sizes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.complex128])
def test_other_number_types(dtype):
    single = dtype in (torch.float32, torch.complex64)
    x = planted(dtype=dtype if dtype.is_complex else torch.float64)
    x = x.astype(str(dtype).removeprefix("torch."))
    mask = some(x.shape, 0.8)
    result = tg.complete(x, mask, random_state=0, truth=x)
    assert result.network.dtype == dtype
    assert error_at(result, x, ~mask) < (1e-4 if single else 1e-6)
    assert result.fill(x, mask).dtype == x.dtype


def test_dtype_is_respected():
    x, mask = planted(), some(SMALL.dims, 0.8)
    result = tg.complete(x, mask, dtype="float32", max_steps=1, **FAST)
    assert result.network.dtype == torch.float32
    assert tg.complete(x, mask, dtype="complex128", max_steps=1, **FAST).network.dtype == torch.complex128


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_do_not_matter(scale):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    options = {"max_steps": 1, **FAST}
    one, other = (tg.complete(s * x, mask, truth=s * x, **options) for s in (1.0, scale))
    assert one.structure == other.structure
    for name in ("relative_error", "train_error", "validation_error", "test_error"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-3), name
    np.testing.assert_allclose(rebuilt(other) / scale, rebuilt(one), atol=1e-3)
    for a, b in zip(one.history, other.history):
        assert b.loss / scale == pytest.approx(a.loss, rel=1e-3)


def test_every_form_of_the_data_gives_the_same():
    x, mask = noisy(Structure.tensor_train((7, 8), 2)), some((7, 8), 0.8)
    where = np.argwhere(mask)
    forms = [
        (x, mask),
        (np.where(mask, x, np.nan),),
        (np.ma.masked_array(x, ~mask),),
        (torch.tensor(x), torch.tensor(mask)),
        (tg.Observations(where[::-1].copy(), x[mask][::-1].copy(), x.shape),),
        (scipy.sparse.coo_matrix((x[mask], where.T), shape=x.shape).tocsr(),),
        (
            torch.sparse_coo_tensor(
                torch.tensor(where).T, torch.tensor(x[mask]), x.shape, check_invariants=True
            ),
        ),
    ]
    results = [tg.complete(*form, max_steps=1, **FAST) for form in forms]
    for other in results[1:]:
        assert_same(results[0], other)


def test_matrix_completion():
    structure = Structure.tensor_train((20, 25), 3)
    x, mask = planted(structure), some((20, 25), 0.6)
    result = tg.complete(x, mask, random_state=0)
    assert dict(result.structure.ranks) == {(0, 1): 3}
    assert error_at(result, x, ~mask) < 1e-6


def test_noise_is_not_fitted():
    x = np.random.default_rng(0).standard_normal((6, 6, 6))
    result = tg.complete(x, some(x.shape, 0.7), random_state=0)
    assert result.stop is Stop.VALIDATION
    assert result.num_parameters < 60


@pytest.mark.parametrize("shape", [(30, 40), (6, 7, 8)])
def test_inputs_are_never_modified(shape):
    rng = np.random.default_rng(0)
    x, mask, held, weights = (
        rng.standard_normal(shape),
        some(shape, 0.7),
        some(shape, 0.2, 1),
        rng.random(shape) + 0.5,
    )
    truth = x + 0.0
    before = [a.copy() for a in (x, mask, held, weights, truth)]
    for a in (x, mask, held, weights, truth):
        a.setflags(write=False)
    tg.complete(x, mask, validation=held, weights=weights, truth=truth, max_steps=1, **FAST)
    for a, b in zip((x, mask, held, weights, truth), before):
        np.testing.assert_array_equal(a, b)


# -- truth -----------------------------------------------------------------------------------------------


def test_truth_as_a_tensor_or_a_list():
    x, mask = noisy(), some(SMALL.dims, 0.7)
    options = {"max_steps": 1, **FAST}
    where = np.argwhere(~mask)
    partly = x.copy()
    partly[~mask & some(SMALL.dims, 0.5, seed=9)] = np.nan
    results = [
        tg.complete(x, mask, truth=truth, **options)
        for truth in (
            x,
            torch.tensor(x),
            tg.Observations(where, x[~mask], x.shape),
            tg.Observations(np.argwhere(x < 9), x.ravel(), x.shape),
        )
    ]
    for result in results:
        assert result.test_error == pytest.approx(error_at(result, x, ~mask), rel=1e-6)
    some_truth = tg.complete(x, mask, truth=partly, **options)
    assert some_truth.test_error == pytest.approx(
        error_at(some_truth, x, ~mask & ~np.isnan(partly)), rel=1e-6
    )
    assert_same(results[0], tg.complete(x, mask, truth=x, **options))
    assert tg.complete(x, mask, **options).test_error is None


def test_truth_is_not_used_otherwise():
    x, mask = noisy(), some(SMALL.dims, 0.7)
    a, b = (tg.complete(x, mask, truth=t, max_steps=2, **FAST) for t in (x, -x))
    np.testing.assert_allclose(rebuilt(a), rebuilt(b), atol=1e-9)
    assert b.test_error > 1 > a.test_error


@pytest.mark.parametrize(
    ("truth", "word"),
    [
        (np.zeros((5, 6)), "shape"),
        (np.full(SMALL.dims, np.inf), "finite"),
        (np.full(SMALL.dims, np.nan), "observation"),
        (np.where(some(SMALL.dims, 0.7), 1.0, np.nan), "nothing to test"),
    ],
)
def test_bad_truth(truth, word):
    with pytest.raises(tg.DataError, match=word):
        tg.complete(noisy(), some(SMALL.dims, 0.7), truth=truth, **FAST)


# -- predictions -----------------------------------------------------------------------------------------


def test_fill_keeps_what_is_observed(plain):
    x, mask, result = plain
    before = x.copy()
    filled = result.fill(x, mask)
    assert isinstance(filled, np.ndarray) and filled.dtype == x.dtype
    np.testing.assert_array_equal(filled[mask], x[mask])
    np.testing.assert_allclose(filled[~mask], rebuilt(result)[~mask], rtol=1e-9)
    np.testing.assert_array_equal(x, before)
    every = result.fill(x, mask, keep_observed=False)
    np.testing.assert_allclose(every, rebuilt(result), rtol=1e-9)
    assert np.abs(every - x)[mask].max() > 1e-6


def test_fill_takes_every_form(plain):
    x, mask, result = plain
    expected = result.fill(x, mask)
    hidden = np.where(mask, x, np.nan)
    for given in (
        hidden,
        np.ma.masked_array(np.where(mask, x, 0.0), ~mask),
        hidden.tolist(),
        hidden.astype(">f8"),
    ):
        found = result.fill(given)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(result.fill(x, mask.astype(int)), expected)
    np.testing.assert_array_equal(result.fill(x, mask.tolist()), expected)
    tensor = torch.tensor(x, requires_grad=True)
    found = result.fill(tensor, torch.tensor(mask))
    assert isinstance(found, torch.Tensor) and not found.requires_grad
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(result.fill(torch.tensor(hidden)).numpy(), expected, rtol=1e-12)
    assert result.fill(x.astype(np.float32), mask).dtype == np.float64  # the network is in double precision
    whole = result.fill((10 * x).astype(int), mask)
    assert whole.dtype == np.float64
    np.testing.assert_array_equal(whole[mask], (10 * x).astype(int)[mask])
    np.testing.assert_allclose(whole[~mask], rebuilt(result)[~mask], rtol=1e-9)


def test_fill_refuses_other_shapes(plain):
    x, mask, result = plain
    with pytest.raises(tg.DataError, match="shape"):
        result.fill(x[1:], mask[1:])
    with pytest.raises(tg.DataError, match="mask"):
        result.fill(x, mask[1:])


def test_predict(plain):
    x, _, result = plain
    where = np.argwhere(np.ones(x.shape, bool))
    np.testing.assert_allclose(result.predict(where), rebuilt(result).ravel(), rtol=1e-9, atol=1e-12)
    assert result.predict(torch.tensor([[1, 2, 3]])).tolist() == pytest.approx([rebuilt(result)[1, 2, 3]])


def test_save_and_load_keep_the_errors(plain, tmp_path):
    *_, result = plain
    result.save(tmp_path / "run.safetensors")
    again = tg.load(tmp_path / "run.safetensors")
    assert isinstance(again, tg.Result)
    for name in ("relative_error", "train_error", "validation_error", "test_error", "stop", "history"):
        assert getattr(again, name) == getattr(result, name), name
    np.testing.assert_array_equal(rebuilt(again), rebuilt(result))
    assert again.info["num_observations"] == result.info["num_observations"]
    assert repr(again) == repr(result)


# -- weights ---------------------------------------------------------------------------------------------


def test_weights_decide_whom_to_believe():
    x, mask = planted(), some(SMALL.dims, 0.9)
    bad = some(SMALL.dims, 0.2, seed=7) & mask
    given = np.where(bad, x + 5.0, x)
    weights = np.where(bad, 1e-9, 1.0)
    trusted = tg.fit(
        given, SMALL, mask, weights=weights, ridge=1e-12, max_sweeps=500, tolerance=1e-9, random_state=0
    )
    assert error_at(trusted, x, ~mask) < 1e-4
    naive = tg.fit(given, SMALL, mask, ridge=1e-12, random_state=0)
    assert error_at(naive, x, ~mask) > 0.1
    dropped = tg.complete(given, mask, weights=np.where(bad, 0.0, 1.0), random_state=0)
    assert dropped.info["num_observations"] == (mask & ~bad).sum()
    assert error_at(dropped, x, ~mask | bad) < 1e-6


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1e-300, 1e60])
def test_only_ratios_of_weights_matter(size, kind):
    x, mask = noisy().astype(kind), some(SMALL.dims, 0.8)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, x.shape)
    one, other = (
        tg.complete(x, mask, weights=s * weights, max_steps=1, truth=x, **FAST) for s in (1.0, size)
    )
    assert one.structure == other.structure
    for name in ("relative_error", "train_error", "validation_error", "test_error"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=2e-2), name


def test_losses_are_in_the_units_of_the_weights():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    for factor in (4.0, 1e20):
        result = tg.complete(x, mask, weights=np.full(x.shape, factor), max_steps=1, **FAST)
        norm = np.linalg.norm(x[mask])
        assert result.history[-1].loss == pytest.approx(
            math.sqrt(factor) * result.relative_error * norm, rel=1e-6
        )
