from __future__ import annotations

import sys

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.array_files import Source, read_array, write_array
from tensorgrow.data.axes import Axes

X = np.random.default_rng(0).standard_normal((4, 5, 3))


@pytest.mark.parametrize("suffix", ["npy", "npz", "mat", "h5", "hdf5", "zarr"])
def test_what_is_written_is_read(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    if suffix != "npy" and suffix != "npz":
        pytest.importorskip({"mat": "scipy", "zarr": "zarr"}.get(suffix, "h5py"))
    write_array(path, np.zeros(3))
    write_array(path, X)  # what was there is replaced
    array, source = read_array(path)
    assert np.array_equal(array, X)
    assert (source.name, source.kind, source.levels) == (path.name, "array", None)


@pytest.mark.parametrize("shape", [(6, 7), (6, 7, 3)])
@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff"])
def test_pictures_in_pictures_out(tmp_path, shape, suffix):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    pillow.fromarray(pixels).save(tmp_path / f"a.{suffix}")
    array, source = read_array(tmp_path / f"a.{suffix}")
    assert array.shape == shape
    assert (array.min() >= 0, array.max() <= 1) == (True, True)
    assert source == Source(f"a.{suffix}", "picture", 255)
    write_array(tmp_path / f"b.{suffix}", array, levels=255)
    assert np.array_equal(np.asarray(pillow.open(tmp_path / f"b.{suffix}")), pixels)


def test_kinds_of_pictures(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 7, 4)).astype(np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "alpha.png")
    pillow.fromarray(pixels[..., :3]).convert("P").save(tmp_path / "palette.png")
    pillow.fromarray(pixels[..., 0]).convert("1").save(tmp_path / "bits.png")
    deep = np.random.default_rng(0).integers(0, 65536, (6, 7)).astype(np.uint16)
    pillow.fromarray(deep).save(tmp_path / "deep.png")
    assert read_array(tmp_path / "alpha.png")[0].shape == (6, 7, 3)
    assert read_array(tmp_path / "palette.png")[0].shape == (6, 7, 3)
    assert set(np.unique(read_array(tmp_path / "bits.png")[0])) <= {0.0, 1.0}
    array, source = read_array(tmp_path / "deep.png")
    write_array(tmp_path / "deep2.png", array, levels=source.levels)
    assert np.array_equal(np.asarray(pillow.open(tmp_path / "deep2.png")), deep)


def test_pictures_of_numbers_are_arrays(tmp_path):
    """Nothing says where black and white are."""
    pillow = pytest.importorskip("PIL.Image")
    values = np.random.default_rng(0).standard_normal((6, 7)).astype(np.float32)
    pillow.fromarray(values).save(tmp_path / "x.tif")
    array, source = read_array(tmp_path / "x.tif")
    assert np.array_equal(array, values)
    assert source == Source("x.tif")


def test_arrays_that_are_no_pictures_are_stretched_to_grey(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    write_array(tmp_path / "x.png", np.array([[-3.0, 1.0], [5.0, -1.0]]))
    assert np.asarray(pillow.open(tmp_path / "x.png")).tolist() == [[0, 128], [255, 64]]
    with pytest.raises(tg.DataError, match="is no picture"):
        write_array(tmp_path / "x.png", np.ones((2, 2, 2, 2)))
    with pytest.raises(tg.DataError, match="is no picture"):
        write_array(tmp_path / "x.png", np.ones((2, 2), complex))


def several(path, arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".mat":
        pytest.importorskip("scipy.io").savemat(path, arrays)
    elif path.suffix == ".zarr":
        group = pytest.importorskip("zarr").open_group(str(path), mode="w")
        for name, array in arrays.items():
            group.create_array(name, data=array)
    elif path.suffix == ".nc":
        xarray = pytest.importorskip("xarray")
        pytest.importorskip("h5netcdf")
        data = {k: (tuple(f"{k}{n}" for n in range(v.ndim)), v) for k, v in arrays.items()}
        xarray.Dataset(data).to_netcdf(path, engine="h5netcdf")
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5", ".zarr", ".nc"])
def test_one_of_several_is_chosen_by_its_key(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    several(path, {"a": X, "b": X[0]})
    assert np.array_equal(read_array(path, "b")[0], X[0])
    assert read_array(path, "a")[1].key == "a"
    with pytest.raises(
        tg.FileFormatError, match=r"holds 2 arrays; choose one by its key: a \(4x5x3\), b \(5x3\)"
    ):
        read_array(path)
    with pytest.raises(tg.FileFormatError, match="has no array 'c'; it has a "):
        read_array(path, "c")


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5", ".nc"])
def test_a_single_array_needs_no_key(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    several(path, {"only": X})
    assert np.array_equal(read_array(path)[0], X)


def test_arrays_in_groups(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["run/first/data"] = X
        file["note"] = "text is no array"
    array, source = read_array(tmp_path / "x.h5")
    assert np.array_equal(array, X)
    assert source.key == "run/first/data"
    assert np.array_equal(read_array(tmp_path / "x.h5", "/run/first/data")[0], X)
    zarr = pytest.importorskip("zarr")
    zarr.open_group(str(tmp_path / "g.zarr"), mode="w").create_group("deep").create_array("x", data=X)
    assert np.array_equal(read_array(tmp_path / "g.zarr", "deep/x")[0], X)


def test_matlab_7_3_has_its_axes_the_right_way_round(tmp_path):
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("scipy")
    # MATLAB writes column-major arrays into HDF5 behind a header of 512 bytes.
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        file["x"] = X.T
    with open(tmp_path / "x.mat", "r+b") as file:
        header = b"MATLAB 7.3 MAT-file".ljust(124) + bytes([0, 2]) + b"IM"
        file.write(header)
    assert np.array_equal(read_array(tmp_path / "x.mat")[0], X)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat", ".png", ".jpg", ".h5", ".nc"])
@pytest.mark.parametrize("content", [b"", b"just text, 1, 2, 3\n", b"\x93NUMPY\x01"])
def test_files_that_are_not_what_they_say(tmp_path, suffix, content):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(tg.FileFormatError, match=r"is not a .*damaged") as caught:
        read_array(path)
    assert "\n" not in str(caught.value)


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(tg.FileFormatError, match="holds Python objects"):
        read_array(tmp_path / "x.npy")


def test_names_that_say_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_array(tmp_path / "x.npy")
    (tmp_path / "x.txt").write_text("1 2 3")
    with pytest.raises(tg.FileFormatError, match=r"ends in \.npy"):
        read_array(tmp_path / "x.txt")
    with pytest.raises(tg.FileFormatError, match=r"ends in \.npy"):
        write_array(tmp_path / "x.txt", X)
    (tmp_path / "y.npy").mkdir()
    with pytest.raises(tg.FileFormatError, match="is a folder"):
        read_array(tmp_path / "y.npy")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(tg.FileFormatError, match="single array"):
        read_array(tmp_path / "x.npy", "a")


@pytest.mark.parametrize(
    ("suffix", "module"), [(".png", "PIL.Image"), (".mat", "scipy.io"), (".h5", "h5py"), (".zarr", "zarr")]
)
def test_missing_packages_are_named(tmp_path, monkeypatch, suffix, module):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"x")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[io\]"):
        read_array(path)


# -- names and coordinates ---------------------------------------------------------------------------------


def in_netcdf(path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    days = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[s]")
    lat = ("lat", [50.0, 51.0, 52.0, 53.0], {"units": "degrees", "bounds": "lat_bounds"})
    data = xarray.Dataset(
        {
            "wind": (("lat", "lon", "time"), X, {"units": "m/s", "grid_mapping": "earth", "levels": [1, 2]}),
            "lat_bounds": (("lat", "side"), np.ones((4, 2))),
            "earth": ((), 0, {"grid_mapping_name": "sphere"}),
        },
        {"lat": lat, "time": days, "height": (("lat", "lon"), np.ones((4, 5)))},
    )
    data.to_netcdf(path, engine="h5netcdf")


def test_coordinates_do_not_count_and_are_kept(tmp_path):
    in_netcdf(tmp_path / "x.nc")
    array, source = read_array(tmp_path / "x.nc")
    assert source.key == "wind" and array.dims == ("lat", "lon", "time") and array.lat.units == "degrees"
    assert np.array_equal(read_array(tmp_path / "x.nc", "lat")[0], [50.0, 51.0, 52.0, 53.0])
    write_array(tmp_path / "y.nc", array.to_numpy(), axes=Axes.of(array, 3))
    again, _ = read_array(tmp_path / "y.nc", "wind")
    assert again.equals(array) and again.units == "m/s" and again.lat.units == "degrees"
    assert {"lat", "time", "height"} <= set(again.coords)


def test_coordinates_of_hdf5_and_zarr_do_not_count(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"], file["lat"] = X, np.arange(4.0)
        file["lat"].make_scale("lat")
    assert read_array(tmp_path / "x.h5")[1].key == "x"
    zarr = pytest.importorskip("zarr")
    for version in (2, 3):
        group = zarr.open_group(str(tmp_path / f"{version}.zarr"), mode="w", zarr_format=version)
        names = {} if version == 2 else {"dimension_names": ["lat"]}
        group.create_array("x", data=X)
        lat = group.create_array("lat", data=np.arange(4.0), **names)
        if version == 2:
            lat.attrs["_ARRAY_DIMENSIONS"] = ["lat"]
        assert read_array(tmp_path / f"{version}.zarr")[1].key == "x"


def test_netcdf_without_names_and_with_odd_attributes(tmp_path):
    pytest.importorskip("h5netcdf")
    write_array(tmp_path / "x.nc", X)
    array, source = read_array(tmp_path / "x.nc")
    assert source.key == "x" and array.dims == ("axis0", "axis1", "axis2") and np.array_equal(array, X)
    odd = Axes(("a", "b", "c"), attrs={"flag": None, "deep": {"a": 1}, "n": 3})
    write_array(tmp_path / "y.nc", X, axes=odd)
    attrs = read_array(tmp_path / "y.nc")[0].attrs
    assert attrs["flag"] == "None" and attrs["n"] == 3
    with pytest.raises(tg.DataError, match="no complex numbers"):
        write_array(tmp_path / "z.nc", 1j * X)
