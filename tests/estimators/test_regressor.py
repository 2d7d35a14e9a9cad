"""TNRegressor as a scikit-learn estimator."""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

STRUCTURE = tg.Structure.tensor_train((4, 3, 4), 2)


@pytest.fixture(scope="module")
def planted():
    rng = np.random.default_rng(0)
    w = tg.TensorNetwork.random(STRUCTURE, random_state=0).to_dense().numpy()
    x = rng.standard_normal((200, 4, 3, 4))
    y = np.tensordot(x, w, 3) + 1.5
    return x, y, w


def noisy(y: np.ndarray) -> np.ndarray:
    return y + 0.2 * np.std(y) * np.random.default_rng(1).standard_normal(len(y))


def test_fit_and_predict(planted):
    x, y, w = planted
    model = tg.TNRegressor(random_state=0)
    assert model.fit(x, y) is model
    assert model.score(x, y) > 1 - 1e-12
    assert model.coef_.shape == w.shape
    assert np.linalg.norm(model.coef_ - w) < 1e-8 * np.linalg.norm(w)
    assert model.intercept_ == pytest.approx(1.5)
    assert model.structure_.num_parameters <= STRUCTURE.num_parameters
    assert model.network_.structure == model.structure_ == model.result_.structure
    assert model.history_ == model.result_.history
    assert model.n_features_in_ == 48
    assert np.allclose(model.predict(x), np.tensordot(x, model.coef_, 3) + model.intercept_)
    assert np.allclose(model.predict(x.reshape(200, 48)), model.predict(x))
    assert np.allclose(model.predict(torch.tensor(x)), model.predict(x.tolist()))
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(x), model.predict(x))


def test_several_responses(planted):
    x, y, _ = planted
    both = np.stack([y, 2 * y - 1], 1)
    model = tg.TNRegressor(random_state=0).fit(x, both)
    assert model.coef_.shape == (4, 3, 4, 2)
    assert model.intercept_.shape == (2,)
    assert model.predict(x).shape == (200, 2)
    assert model.score(x, both) > 1 - 1e-10
    column = tg.TNRegressor(random_state=0).fit(x, y[:, None])
    assert column.predict(x).shape == (200, 1)
    assert column.coef_.shape == (4, 3, 4)


def test_parameters_and_clone(planted):
    x, y, _ = planted
    model = tg.TNRegressor(max_parameters=50, edges="chain", random_state=3, structure=STRUCTURE)
    assert model.get_params()["edges"] == "chain"
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    twin.set_params(structure=None, max_steps=1)
    assert twin.max_steps == 1
    assert set(twin.fit(x, y).structure_.edges) <= {(0, 1), (1, 2)}
    assert "max_parameters=50" in repr(model)


def test_grid_search(planted):
    x, y, _ = planted
    search = GridSearchCV(
        tg.TNRegressor(random_state=0, effort="fast"), {"max_parameters": [11, 24, 60]}, cv=3
    ).fit(x, noisy(y))
    assert search.best_params_["max_parameters"] > 11
    assert search.best_score_ > 0.9
    assert cross_val_score(tg.TNRegressor(random_state=0), x, noisy(y), cv=3).min() > 0.8


def test_pipeline_with_folded_features(planted):
    x, y, _ = planted
    flat = x.reshape(200, 48) * np.linspace(1, 5, 48) + 3.0
    model = make_pipeline(StandardScaler(), tg.TNRegressor(dims=(4, 3, 4), random_state=0))
    model.fit(flat, y)
    assert model.score(flat, y) > 0.9
    assert model[-1].coef_.shape == (4, 3, 4)
    assert model[-1].n_features_in_ == 48


def test_random_state(planted):
    x, y, _ = planted
    y = noisy(y)
    first = tg.TNRegressor(random_state=5).fit(x, y).predict(x)
    assert np.array_equal(first, tg.TNRegressor(random_state=5).fit(x, y).predict(x))
    states = [np.random.RandomState(5), np.random.default_rng(5), torch.Generator().manual_seed(5), None]
    for state in states:
        assert np.isfinite(tg.TNRegressor(random_state=state).fit(x, y).predict(x)).all()
    with pytest.raises(tg.OptionError, match="random_state"):
        tg.TNRegressor(random_state="a").fit(x, y)


def test_a_fixed_structure(planted):
    x, y, _ = planted
    model = tg.TNRegressor(structure=STRUCTURE, random_state=0).fit(x, noisy(y))
    assert model.structure_ == STRUCTURE
    assert model.score(x, y) > 0.9


def test_single_precision_stays_single(planted):
    x, y, _ = planted
    model = tg.TNRegressor(random_state=0).fit(x.astype(np.float32), y.astype(np.float32))
    assert model.network_.dtype == torch.float32
    assert model.score(x, y) > 1 - 1e-5
    wide = tg.TNRegressor(random_state=0, dtype="float64", max_steps=1).fit(x.astype(np.float32), y)
    assert wide.network_.dtype == torch.float64


def test_what_is_refused(planted):
    x, y, _ = planted
    with pytest.raises(NotFittedError):
        tg.TNRegressor().predict(x)
    model = tg.TNRegressor(random_state=0, max_steps=0).fit(x, y)
    for wrong in (x[:, :3], x.reshape(200, 4, 12), np.ones((5, 4, 3, 4, 1, 2))):
        with pytest.raises(tg.DataError, match="fitted to samples of shape"):
            model.predict(wrong)
    with pytest.raises(ValueError, match="features"):
        model.predict(np.ones((3, 7)))
    holes = x.copy()
    holes[3, 1, 1, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        tg.TNRegressor().fit(holes, y)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(holes)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        tg.TNRegressor().fit(x, y[:-1])
    for dims in ((4, 4), (4, 3.5), (48, -1), (0,)):
        with pytest.raises(tg.OptionError, match="dims="):
            tg.TNRegressor(dims=dims).fit(x.reshape(200, 48), y)
    with pytest.raises(tg.OptionError, match="complex"):
        tg.TNRegressor(dtype="complex64").fit(x, y)
    with pytest.raises(tg.OptionError, match="edges"):
        tg.TNRegressor(edges="star").fit(x, y)


def test_scikit_learn_agrees():
    # No check is expected to fail; two are skipped where pandas or array-API support is not installed.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about data that is meant to be bad
        checks = check_estimator(tg.TNRegressor(), on_fail=None)
    assert len(checks) > 40
    assert [r["check_name"] for r in checks if r["status"] not in ("passed", "skipped")] == []


def test_the_example_of_the_page_runs_and_says_the_truth(capsys):
    page = Path(__file__).parents[2] / "docs" / "regression.md"
    block = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block.group(1), names)
    model = names["model"]
    assert dict(model.structure_.ranks) == {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2}
    assert model.score(names["x"], names["y"]) > 1 - 1e-9


def test_options_go_to_the_search(planted):
    x, y, _ = planted
    options = tg.GreedyOptions.for_completion("fast").replace(max_degree=1)
    model = tg.TNRegressor(random_state=0, options=options).fit(x, y)
    assert model.result_.info["options"]["max_degree"] == 1
    assert max(map(len, model.structure_.neighbours)) <= 1
    assert clone(model).options == options
    with pytest.raises(tg.OptionError, match="options must be GreedyOptions"):
        tg.TNRegressor(options={"max_degree": 1}).fit(x, y)


def test_weights_are_repetitions(planted):
    x, y, _ = planted
    y = noisy(y)
    weights = np.arange(200) % 3
    order = np.random.default_rng(0).permutation(int(weights.sum()))
    model = tg.TNRegressor(random_state=0, max_steps=3, effort="fast")
    once = clone(model).fit(x, y, sample_weight=weights)
    twice = clone(model).fit(x.repeat(weights, 0)[order], y.repeat(weights)[order])
    assert np.array_equal(once.predict(x), twice.predict(x))
    np.testing.assert_allclose(clone(model).fit(x, y, 0.3 * weights).predict(x), once.predict(x), rtol=1e-6)
    assert np.array_equal(clone(model).fit(x, y, np.ones(200)).predict(x), clone(model).fit(x, y).predict(x))


@pytest.mark.parametrize("responses", [1, 2])
def test_weighted_least_squares_agrees_with_scikit_learn(responses):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((60, 3)), rng.random(60)
    y = x @ rng.standard_normal((3, responses)) + 2.0 + rng.standard_normal((60, responses))
    structure = tg.Structure((3, 2), {(0, 1): 2}) if responses == 2 else tg.Structure((3,))
    mask = np.arange(60) % 7 == 0  # of as many samples as there are weights
    for validation in (False, mask):
        model = tg.TNRegressor(structure=structure, ridge=0.0, validation=validation, random_state=0)
        theirs = LinearRegression().fit(x, y, sample_weight=w)
        ours = model.fit(x, y[:, 0] if responses == 1 else y, sample_weight=w)
        np.testing.assert_allclose(ours.predict(x), theirs.predict(x).squeeze(), rtol=1e-4, atol=1e-4)
