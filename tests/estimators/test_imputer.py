"""TNImputer as a scikit-learn transformer."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch

import tensorgrow as tg

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, MissingIndicator, SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator


def with_gaps(x: np.ndarray, share: float = 0.3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.random.default_rng(seed).random(x.shape) < share
    return np.where(hidden, np.nan, x), hidden


def error(filled: np.ndarray, x: np.ndarray, hidden: np.ndarray) -> float:
    return float(np.sqrt(np.mean(((filled - x) / x.std(0))[hidden] ** 2)))


@pytest.mark.filterwarnings("ignore:.*stopping criterion not reached")  # of the regressions
@pytest.mark.parametrize("load", [load_diabetes, load_iris])
def test_real_tables_are_filled_better_than_by_means_and_regressions(load):
    x = load().data
    gaps, hidden = with_gaps(x)
    filled = tg.TNImputer().fit_transform(gaps)
    assert np.array_equal(filled[~hidden], x[~hidden])
    ours = error(filled, x, hidden)
    assert ours < 0.85 * error(SimpleImputer().fit_transform(gaps), x, hidden)
    theirs = IterativeImputer(random_state=0)
    assert ours < error(theirs.fit_transform(gaps), x, hidden)


def test_rows_that_were_not_seen_are_filled_as_well():
    x = load_diabetes().data
    gaps, hidden = with_gaps(x)
    model = tg.TNImputer().fit(gaps[::2])
    new = error(model.transform(gaps[1::2]), x[1::2], hidden[1::2])
    seen = error(model.transform(gaps[::2]), x[::2], hidden[::2])
    assert new < 1.1 * seen
    one_by_one = np.concatenate([model.transform(row[None]) for row in gaps[1::2]])
    np.testing.assert_allclose(one_by_one, model.transform(gaps[1::2]), rtol=1e-9, atol=1e-12)


def test_exact_relations_are_found_and_nothing_is_known_means_the_mean():
    rng = np.random.default_rng(0)
    x = 1e6 * (rng.standard_normal((80, 2)) @ rng.standard_normal((2, 6)) + 3.0)
    gaps, hidden = with_gaps(x, 0.2)
    model = tg.TNImputer(random_state=0).fit(gaps)
    assert error(model.transform(gaps), x, hidden) < 0.01
    np.testing.assert_allclose(model.transform(np.full((1, 6), np.nan))[0], model.statistics_, rtol=0.05)
    np.testing.assert_allclose(model.statistics_, np.nanmean(gaps, 0))


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_say_nothing_about_each_other_get_their_means(seed):
    x = np.random.default_rng(seed).standard_normal((60, 4))
    gaps, hidden = with_gaps(x, seed=seed)
    means = SimpleImputer().fit_transform(gaps)
    assert error(tg.TNImputer().fit_transform(gaps), x, hidden) < 1.02 * error(means, x, hidden)
    few = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 6.0]])  # too few to hold any out
    np.testing.assert_allclose(tg.TNImputer().fit(few).transform(few), SimpleImputer().fit_transform(few))


def test_folded_columns():
    rng = np.random.default_rng(0)
    hours, days = 2 + np.sin(np.arange(8) / 8 * 6.28), np.linspace(1, 2, 5)
    x = np.einsum("n,h,d->nhd", rng.standard_normal(60), hours, days).reshape(60, 40)
    x = x + 0.05 * rng.standard_normal(x.shape)
    gaps, hidden = with_gaps(x, 0.8)
    gaps[:, 7] = np.nan  # a column without values
    folded = tg.TNImputer(dims=(8, 5), keep_empty_features=True, random_state=0).fit(gaps)
    assert folded.network_.structure.dims == (60, 8, 5)
    hidden[:, 7] = False
    assert error(folded.transform(gaps), x, hidden) < 0.1
    with pytest.raises(tg.OptionError, match=r"dims=\(8, 4\) has 32 entries"):
        tg.TNImputer(dims=(8, 4)).fit(gaps)


def test_empty_columns_indicators_and_names():
    pandas = pytest.importorskip("pandas")
    x = load_iris(as_frame=True).data.copy()
    x.columns = ["a", "b", "c", "d"]
    x.iloc[::3, 0] = np.nan
    x["b"] = np.nan
    for keep in (False, True):
        model = tg.TNImputer(add_indicator=True, keep_empty_features=keep).set_output(transform="pandas")
        filled = model.fit_transform(x)
        kept = ["a", "b", "c", "d"] if keep else ["a", "c", "d"]
        assert list(filled.columns) == [*kept, "missingindicator_a", "missingindicator_b"]
        assert list(model.get_feature_names_out()) == list(filled.columns)
        assert isinstance(filled, pandas.DataFrame) and not filled.isna().any().any()
        np.testing.assert_array_equal(filled.iloc[:, -2:], MissingIndicator().fit_transform(x))
        assert not keep or (filled["b"] == 0).all()
    assert np.isnan(model.statistics_[1])


def test_other_marks_precisions_and_kinds_of_input():
    x = load_iris().data
    gaps, hidden = with_gaps(x)
    model = tg.TNImputer(random_state=0)
    expected = clone(model).fit_transform(gaps)
    other = clone(model).set_params(missing_values=-1)
    np.testing.assert_array_equal(other.fit_transform(np.where(hidden, -1.0, x)), expected)
    single = clone(model).fit_transform(gaps.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-2)
    np.testing.assert_array_equal(clone(model).fit_transform(torch.tensor(gaps)), expected)
    with pytest.raises(ValueError, match="NaN"):
        tg.TNImputer(missing_values=-1).fit(gaps)
    with pytest.raises(ValueError, match="infinity"):
        tg.TNImputer().fit(np.where(hidden, np.inf, x))
    with pytest.raises(tg.DataError, match="all 6 values of X are missing"):
        tg.TNImputer().fit(np.full((2, 3), np.nan))
    with pytest.raises(NotFittedError):
        tg.TNImputer().transform(gaps)


def test_pipelines_search_and_copies():
    x, y = load_diabetes(return_X_y=True)
    gaps, _ = with_gaps(x)
    model = tg.TNImputer(max_steps=2, random_state=3)
    assert clone(model).get_params() == model.get_params()
    steps = make_pipeline(model, Ridge(0.01))
    search = GridSearchCV(steps, {"tnimputer__max_steps": [0, 2]}, cv=2).fit(gaps, y)
    assert search.best_score_ > 0.3
    fitted = model.fit(gaps)
    assert fitted.structure_ == fitted.network_.structure and len(fitted.history_) <= 4
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(gaps), fitted.transform(gaps))


def test_scikit_learn_agrees():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about data that is meant to be bad
        checks = check_estimator(tg.TNImputer(effort="fast", max_steps=2), on_fail=None)
    assert len(checks) > 35
    assert [r["check_name"] for r in checks if r["status"] not in ("passed", "skipped")] == []


def test_columns_that_hardly_vary_do_not_mislead_new_rows():
    """Margins of pictures: set in a picture or two of those seen, and in others of the new ones."""
    x = load_digits().data[:300, 8:40]
    gaps, hidden = with_gaps(x, 0.3, seed=2)
    model = tg.TNImputer(random_state=0, max_steps=6, keep_empty_features=True).fit(gaps[::2])
    used = x.std(0) > 0
    new, there = model.transform(gaps[1::2])[:, used], hidden[1::2][:, used]
    means = SimpleImputer(keep_empty_features=True).fit(gaps[::2]).transform(gaps[1::2])[:, used]
    assert error(new, x[1::2][:, used], there) < 0.95 * error(means, x[1::2][:, used], there)
    outlier = gaps[1:2].copy()
    outlier[0, np.flatnonzero(~np.isnan(outlier[0]))[0]] = 1e6  # beyond all that was seen
    filled = model.transform(outlier)[0]
    assert np.abs(filled[np.isnan(outlier[0])]).max() < 100
