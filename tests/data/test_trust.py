"""Files from elsewhere run no code, show no other files and take no memory unasked."""

from __future__ import annotations

import json
import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data import devices
from tensorgrow.data.array_files import read_array
from tensorgrow.data.trust import check_zarr

X = np.random.default_rng(0).standard_normal((4, 5))


class Trap:
    """Leaves a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


# -- zarr --------------------------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A path that exists once something was unpickled, with a numcodecs that allows it."""
    numcodecs = pytest.importorskip("numcodecs")
    pytest.importorskip("zarr")
    monkeypatch.setattr(numcodecs.pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    yield tmp_path / "trapped"
    assert not (tmp_path / "trapped").exists()


def make_zarr(folder, trap, dtype, **codecs):
    """A zarr folder of format 2 with one chunk, a pickle."""
    folder.mkdir(parents=True)
    metadata = {"zarr_format": 2, "shape": [4, 5], "chunks": [4, 5], "dtype": dtype, "order": "C"}
    metadata |= {"fill_value": 0, "compressor": None, "filters": None} | codecs
    (folder / ".zarray").write_text(json.dumps(metadata))
    (folder / "0.0").write_bytes(pickle.dumps(Trap(trap)))
    return folder


PICKLED = {
    "object dtype": {"dtype": "|O", "filters": [{"id": "pickle", "protocol": 4}]},
    "harmless codec first": {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}]},
    "filter of numbers": {"dtype": "<f8", "filters": [{"id": "pickle", "protocol": 4}]},
    "compressor of numbers": {"dtype": "<f8", "compressor": {"id": "pickle", "protocol": 4}},
}


@pytest.mark.parametrize("name", PICKLED)
@pytest.mark.parametrize("inside", [False, True], ids=["array", "group"])
def test_a_zarr_folder_is_never_unpickled(tmp_path, trap, name, inside):
    root = tmp_path / "x.zarr"
    make_zarr(root / "deep" if inside else root, trap, **PICKLED[name])
    if inside:
        (root / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(tg.FileFormatError) as caught:
        read_array(root)
    assert "\n" not in str(caught.value)


def test_a_zarr_array_with_pickles_is_not_read_block_by_block(tmp_path, trap):
    zarr = pytest.importorskip("zarr")
    array = zarr.open(str(make_zarr(tmp_path / "x.zarr", trap, **PICKLED["harmless codec first"])), mode="r")
    for call in (tg.Blocks, lambda x: tg.decompose(x, max_error=0.1)):
        with pytest.raises(tg.FileFormatError, match="an array of numbers is needed"):
            call(array)


@pytest.mark.parametrize(
    "metadata",
    [
        {"filters": [{"id": "delta"}, {"id": "pickle"}]},
        {"compressor": {"id": "Pickle"}},
        {"codecs": [{"name": "shards", "configuration": {"codecs": ({"name": "numcodecs.pickle"},)}}]},
    ],
)
def test_numbers_stored_as_pickles_are_refused(metadata):
    """This version of zarr does not open them; others did."""
    array = SimpleNamespace(dtype=np.dtype("f8"), metadata=SimpleNamespace(to_dict=lambda: metadata))
    with pytest.raises(tg.FileFormatError, match=r"codec '.*pickle', which can run code"):
        check_zarr(array, "x.zarr")


def test_other_codecs_are_read(tmp_path):
    zarr = pytest.importorskip("zarr")
    for name, more in {
        "sharded": {"shards": (4, 5), "chunks": (2, 5)},
        "plain": {"compressors": None},
        "gzip": {"compressors": zarr.codecs.GzipCodec()},
    }.items():
        zarr.create_array(str(tmp_path / f"{name}.zarr"), data=X, **more)
        assert np.array_equal(read_array(tmp_path / f"{name}.zarr")[0], X)


# -- HDF5 --------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path):
    """A file that is not ours to show."""
    path = tmp_path / "secret.bin"
    path.write_bytes(X.tobytes())
    return path


def external(h5py, path, secret):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", X.shape, "f8", external=[(str(secret), 0, X.nbytes)])


def virtual(h5py, path, secret):
    other = path.with_name("other.h5")
    with h5py.File(other, "w") as file:
        file["x"] = X
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[...] = h5py.VirtualSource(str(other), "x", X.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


@pytest.mark.parametrize("suffix", ["h5", "nc", "mat"])
@pytest.mark.parametrize("make", [external, virtual])
def test_numbers_of_other_files_are_not_shown(tmp_path, secret, make, suffix):
    h5py = pytest.importorskip("h5py")
    if suffix == "nc":
        pytest.importorskip("h5netcdf")
    path = tmp_path / f"x.{suffix}"
    make(h5py, path, secret)
    if suffix == "mat":
        pytest.importorskip("scipy")
        whole = path.read_bytes()  # MATLAB 7.3 is HDF5 behind a header
        path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + bytes([0, 2]) + b"IM" + bytes(384) + whole)
    with pytest.raises(tg.FileFormatError, match="takes its numbers from another file") as caught:
        read_array(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["h5", "nc"])
def test_links_to_other_files_are_not_followed(tmp_path, suffix):
    h5py = pytest.importorskip("h5py")
    if suffix == "nc":
        pytest.importorskip("h5netcdf")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = X
    path = tmp_path / f"x.{suffix}"
    with h5py.File(path, "w") as file:
        file["group/link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "x")
    with pytest.raises(tg.FileFormatError, match=r"holds 0 arrays|has the link 'group/link' to another file"):
        read_array(path)
    with pytest.raises(tg.FileFormatError, match=r"has no array|has the link 'group/link' to another file"):
        read_array(path, "group/link")


def test_virtual_datasets_within_one_file_are_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    layout = h5py.VirtualLayout(X.shape, "f8")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["whole"] = X
        layout[...] = h5py.VirtualSource(".", "whole", X.shape)
        file.create_virtual_dataset("view", layout)
    assert np.array_equal(read_array(tmp_path / "x.h5", "view")[0], X)


# -- memory ------------------------------------------------------------------------------------------------


def bomb_zarr(path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(str(path), shape=(10**6, 10**6), chunks=(10**3, 10**3), dtype="f8")


def bomb_zarr_chunk(path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(str(path), shape=(2, 2), chunks=(10**6, 10**6), dtype="f8")


def bomb_hdf5(path):
    with pytest.importorskip("h5py").File(path, "w") as file:
        file.create_dataset("x", (10**6, 10**6), "f8", chunks=(10**3, 10**3))


def bomb_netcdf(path):
    with pytest.importorskip("h5netcdf").File(path, "w") as file:
        file.dimensions = {"a": 10**6, "b": 10**6}
        file.create_variable("x", ("a", "b"), "f8", chunks=(10**3, 10**3))


@pytest.mark.parametrize(
    "suffix, make", [("zarr", bomb_zarr), ("zarr", bomb_zarr_chunk), ("h5", bomb_hdf5), ("nc", bomb_netcdf)]
)
def test_what_a_small_file_claims_to_hold_is_refused_before_it_takes_memory(tmp_path, suffix, make):
    make(tmp_path / f"x.{suffix}")
    with pytest.raises(tg.MemoryLimitError, match=r"needs about 8,000\.00 GB, but .* GB are free") as caught:
        read_array(tmp_path / f"x.{suffix}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["npz", "mat", "png"])
def test_what_unpacks_to_more_than_is_free_is_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(devices, "free_memory", lambda device: 1e6)
    monkeypatch.setattr(devices, "SMALL_BYTES", 0)
    path, x = tmp_path / f"x.{suffix}", np.zeros((500, 400))
    if suffix == "npz":
        np.savez_compressed(path, x=x)
    elif suffix == "mat":
        pytest.importorskip("scipy.io").savemat(path, {"x": x}, do_compression=True)
    else:
        pytest.importorskip("PIL.Image").fromarray(x > 0).save(path)
    assert path.stat().st_size < 10_000
    with pytest.raises(tg.MemoryLimitError, match=r"GB are free"):
        read_array(path)


def test_a_small_picture_with_too_many_pixels_is_refused(tmp_path):
    """21 kilobytes that took 1.35 gigabytes."""
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("1", (13_000, 13_000)).save(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size < 50_000
    with pytest.raises(tg.FileFormatError, match=r"exceeds limit of \d+ pixels") as caught:
        read_array(tmp_path / "x.png")
    assert "\n" not in str(caught.value)


def test_the_test_would_notice(tmp_path, trap):
    """The trap works: this is what reading without a look at the codecs does."""
    zarr = pytest.importorskip("zarr")
    array = zarr.open(str(make_zarr(tmp_path / "x.zarr", trap, **PICKLED["harmless codec first"])), mode="r")
    with pytest.raises(Exception):  # noqa: B017 - None is no array
        array[...]
    assert trap.exists()
    trap.rmdir()
