from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tests.cli.conftest import document

X = np.arange(60.0).reshape(3, 4, 5)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_hdf5():
    with pytest.importorskip("h5py").File("x.h5", "w") as file:
        file["a"], file["b"] = X, X[0]


def write_zarr():
    zarr = pytest.importorskip("zarr")
    zarr.open_array("x.zarr", mode="w", shape=X.shape, chunks=(2, 2, 5), dtype="f8")[...] = X


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr("tensorgrow.data.array_files.free_memory", lambda device: 4 * X.nbytes - 1.0)


def test_it_reads_what_the_command_line_reads(folder):
    np.save("x.npy", X)
    assert np.array_equal(tg.read("x.npy"), X)
    np.savez("x.npz", a=X, b=X[0])
    assert np.array_equal(tg.read("x.npz", key="b"), X[0])
    with pytest.raises(tg.FileFormatError, match="choose one by its key"):
        tg.read("x.npz")
    with pytest.raises(FileNotFoundError, match="no such file: missing"):
        tg.read("missing.zarr")


def test_arrays_that_fit_are_in_memory(folder):
    write_hdf5()
    write_zarr()
    for array in (tg.read("x.h5", key="a"), tg.read(folder / "x.zarr")):
        assert type(array) is np.ndarray and np.array_equal(array, X)
    write_hdf5()  # the file was closed


def test_pictures_are_numbers_from_0_to_1(folder):
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.array([[0, 255], [51, 102]], np.uint8)).save("x.png")
    assert tg.read("x.png").tolist() == [[0.0, 1.0], [0.2, 0.4]]


def test_tables_are_frames(folder):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"i": [0, 1], "j": [2, 3], "value": [0.5, 1.5]})
    frame.to_csv("x.csv", index=False)
    assert tg.read("x.csv").equals(frame)
    with pytest.raises(tg.FileFormatError, match="leave the key 'i' out"):
        tg.read("x.csv", key="i")


@pytest.mark.parametrize("name", ["x.h5", "x.zarr"])
def test_large_arrays_stay_in_their_file(folder, little_memory, name):
    write_hdf5()
    write_zarr()
    array = tg.read(name, key="a" if name == "x.h5" else None)
    assert type(array).__module__.startswith(("h5py", "zarr")) and tuple(array.shape) == X.shape
    assert tg.decompose(array, max_error=1e-6, random_state=0).relative_error <= 1e-6
    if name == "x.h5":
        assert type(tg.read(name, key="b")) is np.ndarray  # it is smaller


@pytest.mark.parametrize(
    "line", ["decompose x.zarr -e 1e-6", "decompose x.h5 -k a -e 1e-6", "fit x.zarr -s train --rank 2"]
)
def test_the_command_line_leaves_them_there_too(folder, little_memory, capsys, line):
    pytest.importorskip("typer")
    write_hdf5()
    write_zarr()
    printed = document(capsys, *line.split(), "-o", "back.npy")
    assert printed["input"].endswith("3x4x5, float64, read block by block")
    assert printed["shape"] == [3, 4, 5] and printed["tensorization"] is None
    assert printed["array_error"] == printed["relative_error"] < 1e-6
    assert np.allclose(np.load("back.npy"), X, atol=1e-4)


def test_they_are_not_cut_into_digits(folder, little_memory, capsys):
    pytest.importorskip("typer")
    from tensorgrow.cli import run

    write_zarr()
    assert run(["decompose", "x.zarr", "-t", "4x4x4"]) == 2
    assert "--tensorize and --order need x.zarr in memory" in capsys.readouterr().err
