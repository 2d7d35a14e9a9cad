"""Tables of entries on the command line: from labels to labels."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tests.cli.conftest import call, document

pandas = pytest.importorskip("pandas")

U = np.random.default_rng(0).random((9, 2))
X = U @ np.random.default_rng(1).random((2, 7))


@pytest.fixture
def table(folder):
    where = np.argwhere(np.random.default_rng(2).random(X.shape) < 0.9)
    frame = pandas.DataFrame(
        {
            "station": [f"s{i}" for i in where[:, 0]],
            "year": 2000 + where[:, 1],
            "rain": X[tuple(where.T)],
        }
    )
    frame.to_csv("rain.csv", index=False)
    return frame


def test_rows_without_a_value_are_filled(capsys, table):
    gaps = table.assign(rain=table["rain"].where(table.index % 6 != 0))
    gaps.to_csv("gaps.csv")  # with the row numbers that pandas adds
    found = document(capsys, "complete", "gaps.csv")
    assert found["observed"] == int(gaps["rain"].notna().sum()) and found["names"] == ["station", "year"]
    assert found["files"] == ["gaps.safetensors", "gaps-completed.csv"]
    filled = pandas.read_csv("gaps-completed.csv")
    pandas.testing.assert_frame_equal(filled, table, rtol=1e-4)
    result = tg.load("gaps.safetensors")
    np.testing.assert_allclose(result.predict([("s3", 2004)]), X[3, 4], rtol=1e-3)
    assert "station (9: s0 to s8)" in call(capsys, "show", "gaps.safetensors")


def test_a_table_without_gaps_gets_all_combinations(capsys, table):
    call(capsys, "complete", "rain.csv", "-o", "all.csv", "-o", "all.npy")
    every = tg.read("all.csv")
    assert list(every.columns) == list(table.columns) and len(every) == X.size
    np.testing.assert_allclose(every["rain"], X.ravel(), rtol=1e-4)
    np.testing.assert_allclose(np.load("all.npy"), X, rtol=1e-4)
    known = every.merge(table, on=["station", "year"])
    np.testing.assert_array_equal(known["rain_x"], known["rain_y"])  # they keep their values


def test_values_are_read_to_the_bit(folder):
    draw = np.random.default_rng(0)
    values = draw.standard_normal(500) * 10.0 ** draw.integers(-300, 300, 500)
    pandas.DataFrame({"i": range(500), "v": values}).to_csv("v.csv", index=False)
    np.testing.assert_array_equal(tg.read("v.csv")["v"], values)


def test_parquet_names_bounds_and_hidden_entries(capsys, table):
    pytest.importorskip("pyarrow")
    table[["rain", "station", "year"]].to_parquet("rain.parquet", index=False)
    options = ("--key", "rain", "--names", "where,when", "--bounds", "0.5,", "--observed", "0.8")
    found = document(capsys, "complete", "rain.parquet", *options, "-o", "filled.parquet", "--predict-all")
    assert found["names"] == ["where", "when"]
    # The error is that of what is answered: a bound that the data does not keep is part of it.
    free = document(
        capsys, "complete", "rain.parquet", "--key", "rain", "--observed", "0.8", "-o", "free.parquet"
    )
    assert free["test_error"] < 1e-3 < found["test_error"]
    filled = pandas.read_parquet("filled.parquet")
    assert list(filled.columns) == ["rain", "where", "when"]
    np.testing.assert_allclose(filled["rain"], table["rain"].clip(lower=0.5), rtol=1e-3)


def test_a_structure_is_fitted_to_a_table(capsys, table):
    found = document(capsys, "fit", "rain.csv", "-s", "train", "--rank", "2", "-o", "all.csv")
    assert found["shape"] == [9, 7] and found["relative_error"] < 1e-3
    np.testing.assert_allclose(pandas.read_csv("all.csv")["rain"], X.ravel(), rtol=1e-2)


def test_too_many_combinations(capsys, folder, monkeypatch):
    where = np.random.default_rng(0).integers(0, 60, (400, 2))
    frame = pandas.DataFrame({"a": where[:, 0], "b": where[:, 1], "v": 1.0 + where.sum(1)})
    frame.to_csv("large.csv", index=False)
    monkeypatch.setattr("tensorgrow.cli.tables.MOST_ROWS", 1000)
    found = document(capsys, "complete", "large.csv", "--max-seconds", "1", "--effort", "fast")
    assert found["files"] == ["large.safetensors"]
    call(capsys, "complete", "large.csv", "-o", "all.csv", code=2)


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("a,b\n1,2\n", ["complete", "--mask", "x.npy"], "--mask goes with arrays"),
        ("a,b\n1,2\n", ["complete", "--tensorize", "4x4"], "--tensorize goes with arrays"),
        ("a,b\n1,2\n", ["complete", "--key", "c"], "has the columns ['a', 'b']"),
        ("a\n1\n", ["complete"], "index columns are needed"),
        ("a,b\n1,x\n", ["complete"], "the value column 'b' of t.csv holds"),
        ("", ["complete"], "is not a CSV file or is damaged (truncated"),
        ("a,b\n,1.5\n2,3\n", ["complete"], "1 of 2 rows have no value in the index column 'a'"),
        ("a,b\n0.5,1.5\n2,3\n", ["complete"], "numbers with fractions"),
        ("a,b\n1,2\n", ["decompose"], "is a table, which only `complete` and `fit` take"),
        ("a,b\n1,2\n", ["complete", "--bounds", "3"], "give LOW,HIGH"),
        ("a,b\n1,2\n", ["complete", "--bounds", "2,1"], "must be the least and the largest"),
        ("a,b\n1,2\n", ["complete", "--observed", "2"], "must lie between 0 and 1"),
    ],
)
def test_bad_tables(capsys, folder, content, arguments, message):
    (folder / "t.csv").write_text(content)
    np.save("x.npy", np.ones(3))
    from tensorgrow.cli import run

    assert run([arguments[0], "t.csv", *arguments[1:]]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0], lines
