"""Names and labels through every verb, the result and its file; answers in the kind of array given."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.data.axes import Axes

FAST = {"effort": "fast", "random_state": 0}
U = np.random.default_rng(0).random((12, 2))
V = np.random.default_rng(1).random((9, 2))
X = U @ V.T  # rank 2


def ratings(share=0.8):
    pandas = pytest.importorskip("pandas")
    where = np.argwhere(np.random.default_rng(2).random(X.shape) < share)
    return pandas.DataFrame(
        {
            "user": 100_000 + where[:, 0],
            "item": [f"film {j}" for j in where[:, 1]],
            "score": X[tuple(where.T)],
        }
    )


@pytest.fixture(scope="module")
def rated():
    return tg.complete(ratings(), max_steps=2, **FAST)


def test_labels_of_a_table_belong_to_the_result(rated, tmp_path):
    assert rated.structure.dims == X.shape  # not 100,012 users
    assert rated.axes.names == ("user", "item") and rated.axes.value == "score"
    rated.save(tmp_path / "r.safetensors")
    rows = [(100_003, "film 4"), (100_011, "film 0")]
    for result in (rated, tg.load(tmp_path / "r.safetensors")):
        np.testing.assert_allclose(result.predict(rows), [X[3, 4], X[11, 0]], rtol=1e-6)
        assert result.leg_names == ("user", "item")


def test_a_table_is_predicted_as_a_series_with_its_index(rated):
    frame = ratings().sample(5, random_state=0)
    series = rated.predict(frame)
    assert series.name == "score" and list(series.index) == list(frame.index)
    np.testing.assert_allclose(series, frame["score"], rtol=1e-6)
    np.testing.assert_allclose(rated.predict(frame[["item", "user"]]), frame["score"], rtol=1e-6)


def test_unknown_labels_are_named(rated):
    with pytest.raises(tg.DataError, match="'user' are not known, such as 3; the 12 known ones are 100000"):
        rated.predict([(3, "film 4")])


def test_rows_without_a_value_are_filled():
    table = ratings()
    table["score"] = table["score"].where(table.index % 7 != 0)
    result = tg.complete(table, max_steps=2, **FAST)
    assert result.info["num_observations"] == int(table["score"].notna().sum())
    filled = result.fill(table)
    assert table["score"].isna().any()  # as it was
    np.testing.assert_allclose(filled["score"], ratings()["score"], rtol=1e-5)
    every = result.fill(table, keep_observed=False)
    assert list(every.columns) == list(table.columns) and not every["score"].equals(filled["score"])
    assert "score" in result.fill(table[["user", "item"]])


def test_a_frame_of_floats_is_no_table():
    pandas = pytest.importorskip("pandas")
    wide = pandas.DataFrame(np.where(np.arange(X.size).reshape(X.shape) % 11 == 3, np.nan, X))
    for run in (tg.complete, lambda x: tg.fit(x, Structure.tensor_train(X.shape, 2))):
        with pytest.raises(tg.DataError, match=r"index column .*frame.to_numpy\(\)"):
            run(wide)
    result = tg.complete(wide.to_numpy(), max_steps=2, **FAST)
    filled = result.fill(wide)
    assert isinstance(filled, pandas.DataFrame)
    np.testing.assert_allclose(filled.to_numpy(), X, rtol=1e-5)
    assert isinstance(tg.decompose(filled, max_error=1e-3, **FAST).to_array(), pandas.DataFrame)


def test_coordinates_with_fractions_can_be_labels():
    pandas = pytest.importorskip("pandas")
    where = np.argwhere(np.ones(X.shape))
    frame = pandas.DataFrame({"lat": 50 + 0.25 * where[:, 0], "lon": 0.5 * where[:, 1], "t": X.ravel()})
    result = tg.complete(tg.Observations.from_frame(frame, index=["lat", "lon"]), max_steps=2, **FAST)
    np.testing.assert_allclose(result.predict([(50.25, 1.5)]), X[1, 3], rtol=1e-5)


VERBS = {
    "decompose": lambda x, **k: tg.decompose(x, max_error=1e-3, effort="fast", random_state=0, **k),
    "complete": lambda x, **k: tg.complete(
        x, np.arange(X.size).reshape(X.shape) % 7 > 0, max_steps=1, **FAST, **k
    ),
    "fit": lambda x, **k: tg.fit(x, Structure.tensor_train(X.shape, 2), random_state=0, **k),
    "fit with gaps": lambda x, **k: tg.fit(
        x, Structure.tensor_train(X.shape, 2), np.arange(X.size).reshape(X.shape) % 7 > 0, random_state=0, **k
    ),
    "zero": lambda x, **k: tg.decompose(0 * x, max_error=1e-3, **k),
    "baseline": lambda x, **k: tg.baselines.tt_svd(x, max_error=1e-3),
}


@pytest.mark.parametrize("verb", VERBS)
def test_answers_are_of_the_kind_of_the_data(verb, tmp_path):
    xarray = pytest.importorskip("xarray")
    run = VERBS[verb]
    array = xarray.DataArray(X, {"b": np.arange(9) / 2}, ("a", "b"), "x", {"units": "K"})
    for x, kind in ((X, np.ndarray), (torch.tensor(X), torch.Tensor), (array, xarray.DataArray)):
        result = run(x)
        result.save(tmp_path / "r.safetensors")
        for r in (result, tg.load(tmp_path / "r.safetensors")):
            assert type(r.to_array()) is kind and tuple(r.to_array().shape) == X.shape
            rows = [(0, 0.5)] if kind is xarray.DataArray else [[0, 1]]
            assert type(r.predict(rows)) is (torch.Tensor if kind is torch.Tensor else np.ndarray)
            assert type(r.fill(x)) is kind
    back = result.to_array()
    assert back.dims == ("a", "b") and back.attrs == {"units": "K"} and back.name == "x"
    assert back.coords.equals(array.coords) and result.fill(array).identical(array)


@pytest.mark.parametrize("verb", ["decompose", "complete", "fit", "fit with gaps"])
def test_a_dataset_with_one_variable_is_that_variable(verb):
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset({"rain": (("a", "b"), X)}, {"a": np.arange(12.0), "height": ("b", np.ones(9))})
    back = VERBS[verb](data).to_array()
    assert back.name == "rain" and set(back.coords) == {"a", "height"}
    with pytest.raises(tg.DataError, match=r"variables \['rain', 'wind'\]; choose one"):
        VERBS[verb](data.assign(wind=data.rain))


def test_gaps_of_xarray_are_missing_entries():
    xarray = pytest.importorskip("xarray")
    holes = xarray.DataArray(
        np.where(np.arange(X.size).reshape(X.shape) % 7 == 4, np.nan, X), dims=("a", "b")
    )
    for result in (
        tg.complete(holes, max_steps=2, **FAST),
        tg.fit(holes, Structure.tensor_train(X.shape, 2), random_state=0),
    ):
        assert result.fill(holes).dims == ("a", "b") and result.axes.names == ("a", "b")
        np.testing.assert_allclose(result.fill(holes), X, rtol=1e-2)


@pytest.mark.parametrize("verb", [v for v in VERBS if v != "baseline"])
def test_names(verb):
    named = VERBS[verb](X, names=("row", "station"))
    assert named.axes.names == named.leg_names == ("row", "station")
    assert isinstance(named.predict([[0, 1]]), np.ndarray)
    with pytest.raises(tg.OptionError, match=r"names=.* 2 different names"):
        VERBS[verb](X, names=("row",))


def test_torch_indices_are_answered_by_torch():
    result = tg.decompose(X, max_error=1e-3, **FAST)
    assert isinstance(result.predict(torch.tensor([[0, 1]])), torch.Tensor)
    learned = tg.learn(lambda network: network.to_dense().square().sum(), (2, 2), max_steps=0)
    assert isinstance(learned.to_array(), torch.Tensor)


def test_labels_of_an_array_that_was_cut_into_digits(tmp_path):
    xarray = pytest.importorskip("xarray")
    x = xarray.DataArray(np.outer(np.arange(1.0, 9), np.ones(4)), {"t": 10 * np.arange(8)}, ("t", "k"))
    tensor, how = tg.tensorize(x.to_numpy(), ((2, 4), (4,)))
    result = tg.decompose(tensor, max_error=1e-6, **FAST)
    assert result.leg_names is None
    as_it_is = tg.tensorize(tensor, tensor.shape)[1]
    assert dataclasses.replace(result, tensorization=as_it_is).leg_names is None
    cut = dataclasses.replace(result, tensorization=how)
    assert cut.leg_names == ("axis0÷4", "axis0÷1", "axis1")
    named = dataclasses.replace(cut, axes=Axes.of(x, 2))
    assert named.leg_names == ("t÷4", "t÷1", "k")
    np.testing.assert_allclose(named.predict([(30, 1), (70, 0)]), [4.0, 8.0])
    np.testing.assert_allclose(named.fill(np.full((8, 4), np.nan)), x)


@pytest.mark.parametrize("verb", ["decompose", "complete", "fit", "fit with gaps"])
def test_bounds(verb, tmp_path):
    free = VERBS[verb](X)
    result = VERBS[verb](X, bounds=(0.3, None))
    low = X < 0.25
    assert free.to_array()[low].min() < 0.3
    result.save(tmp_path / "r.safetensors")
    for r in (result, tg.load(tmp_path / "r.safetensors")):
        assert r.to_array().min() == 0.3 == r.predict(np.argwhere(low)).min()
        assert r.fill(np.full(X.shape, np.nan)).min() == 0.3
    np.testing.assert_allclose(result.to_array()[~low], free.to_array().clip(0.3)[~low])
    assert result.errors == free.errors  # those of the network


def test_where_no_known_value_is_negative_predictions_are_not():
    rng = np.random.default_rng(0)
    front = np.tril(np.ones((9, 9)))  # networks of small rank overshoot on both sides
    x = front[:, :, None] * np.linspace(1.0, 2.0, 9)
    mask = rng.random(x.shape) < 0.5
    options = {"validation": 0.1, "max_steps": 2, "random_state": 0, "effort": "fast"}
    result = tg.complete(x, mask, **options)
    assert result.info["bounds"] == [0.0, None] and result.to_array().min() == 0.0
    free = tg.complete(x, mask, bounds=(-np.inf, np.inf), **options)
    assert free.to_array().min() < 0.0
    np.testing.assert_array_equal(free.to_array().clip(0.0), result.to_array())
    assert "bounds" not in tg.complete(x - 0.5, mask, **options).info
    updated = result.update(x - 0.5, mask, random_state=0, max_steps=0)  # they were a guess
    assert "bounds" not in updated.info
    above = tg.complete(x + 1.0, mask, **options)  # nor are they below the least known value
    assert above.info["bounds"] == [1.0, None] and above.to_array().min() == 1.0
    assert above.update(x + 0.5, mask, random_state=0, max_steps=0).info["bounds"] == [0.5, None]


@pytest.mark.parametrize("bounds", [(1, 0), (0,), 0, (None, None), ("a", 1), (0, float("nan")), (0, 0)])
def test_bad_bounds(bounds):
    with pytest.raises(tg.OptionError, match="must be the least and the largest value"):
        tg.complete(X, X > 0.5, bounds=bounds)


def test_bounds_of_complex_data():
    with pytest.raises(tg.OptionError, match="go with real data"):
        tg.decompose(X + 1j, max_error=0.1, bounds=(0, None))


def test_labels_of_partitions_are_those_of_the_table(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    pytest.importorskip("pyarrow")
    table = ratings().sample(frac=1.0, random_state=0).reset_index(drop=True)
    table.loc[7, "score"] = np.nan
    whole = tg.complete(table, max_steps=1, validation=False, **FAST)
    (tmp_path / "parts").mkdir()
    for k in range(3):
        table[k::3].to_parquet(tmp_path / "parts" / f"{k}.parquet", index=False)
    for x in (tmp_path / "parts", dd.from_pandas(table, npartitions=3)):
        parts = tg.complete(x, max_steps=1, validation=False, truth=table[7:8].assign(score=1.0), **FAST)
        assert parts.structure == whole.structure and parts.test_error is not None
        assert parts.axes.names == ("user", "item") and parts.info["num_observations"] == len(table) - 1
        np.testing.assert_allclose(parts.predict(table), whole.predict(table), rtol=1e-6)
    mixed = table.assign(user=table["user"].astype(str))
    mixed[:20].to_parquet(tmp_path / "parts" / "0.parquet", index=False)
    with pytest.raises(tg.DataError, match="'user' holds different kinds of labels"):
        tg.complete(tmp_path / "parts", max_steps=1, **FAST)
    mixed["user"] = mixed["user"].where(mixed.index != 3)
    mixed.to_parquet(tmp_path / "parts" / "0.parquet", index=False)
    with pytest.raises(
        tg.DataError, match=r"0.parquet: 1 of \d+ rows have no value in the index column 'user'"
    ):
        tg.complete(tmp_path / "parts", max_steps=1, **FAST)
