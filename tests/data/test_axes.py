"""Names and labels of the user's axes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.axes import Axes, container_of, present, present_like
from tensorgrow.data.tensorization import plan

TABLE = Axes.of_columns({"user": np.array(["ann", "bob"]), "day": None}, "score")


def weather():
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(
        np.arange(24.0).reshape(2, 3, 4),
        {
            "x": ("x", [0.5, 1.5], {"units": "m"}),
            "t": np.array(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"], dtype="datetime64[s]"),
            "height": (("x", "y"), np.ones((2, 3))),
            "run": 7,
        },
        ("x", "y", "t"),
        "temperature",
        {"units": "K", "valid": np.float32(2.0), "levels": np.array([1, 2])},
    )


def test_nothing_is_known_of_a_plain_array():
    assert Axes.of(np.ones((2, 3)), 2) is None
    assert Axes.of(None, 2, ("a", "b")).names == Axes.of(None, 2, "a, b").names == ("a", "b")


@pytest.mark.parametrize("names", [("a",), ("a", "a"), ("a", ""), "a,b,c"])
def test_bad_names(names):
    with pytest.raises(tg.OptionError, match="2 different names, one for each axis"):
        Axes.of(np.ones((2, 3)), 2, names)


def test_xarray_there_and_back_through_a_file():
    x = weather()
    axes = Axes.of(x, 3)
    assert axes.names == ("x", "y", "t") and axes.value == "temperature"
    assert axes.labels[1] is None and axes.labels[0].tolist() == [0.5, 1.5]
    again = Axes.from_dict(json.loads(json.dumps(axes.to_dict())))
    back = again.to_xarray(x.to_numpy())
    assert back.equals(x) and back.dims == x.dims and back.name == x.name
    assert set(back.coords) == set(x.coords) and back.x.attrs == {"units": "m"}
    assert back.attrs == {"units": "K", "valid": 2.0, "levels": [1, 2]}
    moved = axes.renamed(("a", "b", "c")).to_xarray(x.to_numpy())
    assert (
        moved.dims == ("a", "b", "c") and moved.height.dims == ("a", "b") and moved.a.attrs == {"units": "m"}
    )


def test_labels_that_are_objects_become_text():
    xarray = pytest.importorskip("xarray")
    pandas = pytest.importorskip("pandas")
    codes = np.array([b"no", b"de"])
    x = xarray.DataArray(np.ones((2, 2)), {"a": codes, "b": np.array(["u", "v"], dtype=object)}, ("a", "b"))
    assert [v.tolist() for v in Axes.of(x, 2).labels] == [["no", "de"], ["u", "v"]]
    pairs = pandas.MultiIndex.from_tuples([(0, "x"), (1, "y")], names=("k", "l"))
    stacked = xarray.DataArray(np.ones(2), xarray.Coordinates.from_pandas_multiindex(pairs, "a"), ("a",))
    assert Axes.of(stacked, 1).labels == (None,)


@pytest.mark.parametrize(
    ("shape", "sizes", "order", "expected"),
    [
        ((8, 6), ((2, 4), (6,)), "C", ("x÷4", "x÷1", "y")),
        ((8, 6), ((2, 2, 2), (3, 2)), "interleaved", None),
        ((4, 4), ((2, 2), (2, 2)), "grouped", ("x÷2·y÷2", "x÷1·y÷1")),
        ((4, 4), (2, 8), "C", ("(x,y)÷8", "(x,y)÷1")),
    ],
)
def test_names_of_digits(shape, sizes, order, expected):
    how = plan(shape, sizes, order=order)
    axes = Axes(("x", "y"))
    names = axes.leg_names(how)
    assert expected is None or names == expected
    # Each digit is what its name says: the position divided by the step, modulo the size of the digit.
    where = np.argwhere(np.ones(shape))
    for name, size, column in zip(names, how.dims, how.positions(where).T):
        if "·" in name or "(" in name:
            continue
        axis, _, step = name.partition("÷")
        assert np.array_equal(where[:, "xy".index(axis)] // int(step or 1) % size, column)
    assert axes.leg_names() == ("x", "y")


@pytest.mark.parametrize("order", ["C", "F", "interleaved", "grouped"])
@pytest.mark.parametrize("sizes", [((2, 2), (2, 2)), (2, 8), ((2, 2), (5,))])
def test_positions_in_the_tensor_are_those_of_the_array(order, sizes):
    if sizes == (2, 8) and order in ("interleaved", "grouped"):
        pytest.skip("not laid over the axes")
    x = np.arange(16.0).reshape(4, 4)
    how = plan(x.shape, sizes, order=order)
    where = np.argwhere(np.ones_like(x))
    assert np.array_equal(how.apply(x)[tuple(how.positions(where).T)], x[tuple(where.T)])
    with pytest.raises(tg.DataError, match=r"\(4, 0\) lies outside"):
        how.positions(np.array([[4, 0]]))


@pytest.mark.parametrize(
    "rows",
    [
        [("bob", 3), ("ann", 0)],
        np.array([["bob", 3], ["ann", 0]], dtype=object),
    ],
)
def test_rows_of_labels(rows):
    assert TABLE.positions(rows).tolist() == [[1, 3], [0, 0]]


def test_frames_of_labels():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"score": [1.0], "day": [3], "user": ["bob"]})
    assert TABLE.positions(frame).tolist() == [[1, 3]]
    with pytest.raises(tg.DataError, match=r"\['user'\] are missing"):
        TABLE.positions(frame[["day"]])


@pytest.mark.parametrize("rows", [[("bob",)], ["bob"], np.ones(3), np.ones((2, 3))])
def test_rows_of_another_length(rows):
    with pytest.raises(tg.DataError, match=r"one label for each of \['user', 'day'\] is needed"):
        TABLE.positions(rows)


def test_kinds_of_arrays():
    x = torch.arange(6.0).reshape(2, 3)
    assert present(x, "torch", None) is x
    assert isinstance(present(x.requires_grad_(), "numpy", None), np.ndarray)
    assert present((1j * torch.ones(2)).conj(), "numpy", None).tolist() == [-1j, -1j]
    assert container_of(x) == "torch" and container_of([1.0]) == "numpy"


def test_frames_that_are_matrices():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.ones((2, 3)), index=["a", "b"], columns=pandas.Index([5, 6, 7], name="year"))
    axes = Axes.of(frame, 2)
    assert axes.names == ("row", "year") and axes.labels[1].tolist() == [5, 6, 7]
    pandas.testing.assert_frame_equal(present(torch.ones(2, 3).double(), "frame", axes), frame)
    pandas.testing.assert_frame_equal(present_like(frame, torch.ones(2, 3).double()), frame)
    plain = pandas.DataFrame(np.ones((2, 3)))
    assert Axes.of(plain, 2).labels == (None, None)


@pytest.mark.parametrize(
    "damage",
    [
        {"names": 3},
        {"coordinates": []},
        {"coordinates": {"a": {"dims": ["a"], "attrs": {}, "dtype": "O", "shape": [1], "values": [1]}}},
        {
            "coordinates": {
                "a": {"dims": ["a"], "attrs": {}, "dtype": "<i8", "shape": [2, 1], "values": [1, 2]}
            }
        },
        {"attrs": 1},
    ],
)
def test_damaged_axes(damage):
    with pytest.raises(tg.FileFormatError, match="damaged axes"):
        Axes.from_dict({**TABLE.to_dict(), **damage})
