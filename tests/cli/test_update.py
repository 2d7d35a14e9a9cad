from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run
from tests.cli.conftest import call, document

pytest.importorskip("typer")
FAST = ("--effort", "fast", "--max-seconds", "20", "-q")


@pytest.fixture
def days(tensor):
    """The tensor with gaps; its first axis without the last slice is completed as old.safetensors."""
    known = np.random.default_rng(0).random(tensor.shape) < 0.8
    np.save("now.npy", np.where(known, tensor, np.nan))
    np.save("before.npy", np.where(known, tensor, np.nan)[:, :-1])
    return tensor, known


def test_an_array_that_has_grown(capsys, days):
    tensor, known = days
    call(capsys, "complete", "before.npy", "-o", "old.safetensors", "--bounds=-9,9", *FAST)
    printed = document(capsys, "update", "old.safetensors", "now.npy", *FAST)
    assert printed["shape"] == list(tensor.shape) and printed["observed"] == known.sum()
    assert printed["files"] == ["now.safetensors", "now-completed.npy"]
    filled, result = np.load("now-completed.npy"), tg.load("now.safetensors")
    assert np.array_equal(filled[known], tensor[known]) and result.info["bounds"] == [-9, 9]
    assert np.linalg.norm(filled - tensor) < 0.1 * np.linalg.norm(tensor)
    # The oldest slice is gone, and the file that is updated is never replaced.
    np.save("now.npy", np.load("now.npy")[:, 1:])
    printed = document(capsys, "update", "now.safetensors", "now.npy", "--forget", "1=1", *FAST)
    assert printed["shape"][1] == tensor.shape[1] - 1 and printed["files"][0] == "now-result.safetensors"


def test_tables_with_new_labels(capsys, folder):
    pandas = pytest.importorskip("pandas")
    rows = [(f"p{i}", f"2024-03-{d:02}", h) for i in range(5) for d in range(1, 9) for h in range(6)]
    values = [(1 + len(d) + int(d[-2:])) * (2 + h) + 3 * int(i[1]) for i, d, h in rows]
    table = pandas.DataFrame(rows, columns=["place", "day", "hour"]).assign(rain=values)
    table = table.sample(frac=0.8, random_state=0)
    is_last = table["day"] == "2024-03-08"
    table[~is_last].to_csv("rain.csv", index=False)
    table[is_last].to_csv("today.csv", index=False)
    call(capsys, "complete", "rain.csv", "-o", "rain.safetensors", *FAST)
    printed = document(capsys, "update", "rain.safetensors", "today.csv", "-o", "all.csv", *FAST)
    assert printed["shape"] == [5, 8, 6]
    filled = pandas.read_csv("all.csv").merge(table, on=["place", "day", "hour"])
    assert len(pandas.read_csv("all.csv")) == 240
    today = filled["day"] == "2024-03-08"
    assert np.allclose(filled["rain_x"][today], filled["rain_y"][today])  # known entries keep their values
    assert np.allclose(filled["rain_x"], filled["rain_y"], rtol=0.1, atol=1.0)
    assert "rain" in call(capsys, "show", "rain.safetensors")


def test_one_day_of_a_named_array(capsys, folder):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    values = np.einsum("i,j,k->ijk", np.arange(1.0, 6), np.arange(2.0, 8), np.arange(3.0, 8))
    x = xarray.DataArray(
        values, dims=("place", "day", "hour"), coords={"day": np.arange(100, 106)}, name="rain"
    )
    x[:, :-1].where(np.random.default_rng(0).random((5, 5, 5)) < 0.8).to_netcdf("rain.nc", engine="h5netcdf")
    x[:, -1:].to_netcdf("today.nc", engine="h5netcdf")
    call(capsys, "complete", "rain.nc", "-o", "rain.safetensors", *FAST)
    call(capsys, "update", "rain.safetensors", "today.nc", "-o", "all.nc", *FAST)
    filled = tg.read("all.nc")
    assert (filled.day == x.day).all() and np.allclose(filled, values, rtol=0.02)


def test_bad_updates(capsys, days):
    call(capsys, "complete", "before.npy", "-o", "old.safetensors", "-p", "40", *FAST)
    np.save("short.npy", np.load("now.npy")[:, :2])
    tg.load("old.safetensors").network.save("bare.safetensors")
    for arguments, text in (
        (("old.safetensors", "short.npy"), "forget={1: 2}"),
        (("old.safetensors", "now.npy", "--forget", "day"), "such as day=1"),
        (("old.safetensors", "now.npy", "--tensorize", "auto"), "leave it out"),
        (("bare.safetensors", "now.npy"), "the result of a run is needed"),
        (("old.safetensors", "now.npy", "-o", "old.safetensors"), "result to update"),
    ):
        assert run(["update", *arguments]) == 2
        assert text in capsys.readouterr().err.replace("\n", " ")
