"""Array files with random damage: they are read, or refused in one line, whatever the library raises."""

from __future__ import annotations

import random
import shutil
import warnings

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.array_files import TABLES, read_array, write_array
from tensorgrow.data.table_files import read_table, write_table

X = np.random.default_rng(0).standard_normal((6, 5, 4))
PACKAGES = {
    ".mat": "scipy",
    ".h5": "h5py",
    ".nc": "h5netcdf",
    ".zarr": "zarr",
    ".png": "PIL",
    ".tiff": "PIL",
    ".parquet": "pyarrow",
}
CASES = 25


def write_whole(path):
    """A file as its libraries write it, compressed where they can."""
    suffix = path.suffix
    if suffix in PACKAGES:
        pytest.importorskip(PACKAGES[suffix])
    if suffix == ".npz":
        np.savez_compressed(path, x=X)
    elif suffix == ".mat":
        pytest.importorskip("scipy.io").savemat(path, {"x": X}, do_compression=True)
    elif suffix == ".h5":
        with pytest.importorskip("h5py").File(path, "w") as file:
            file.create_dataset("x", data=X, chunks=True, compression="gzip")
    elif suffix == ".nc":
        pytest.importorskip("xarray").Dataset({"x": (("a", "b", "c"), X)}).to_netcdf(path, engine="h5netcdf")
    elif suffix in TABLES:
        pandas = pytest.importorskip("pandas")
        write_table(path, pandas.DataFrame({"a": range(40), "b": list("abcd") * 10, "c": X.ravel()[:40]}))
    else:
        write_array(path, X[:, :, 0] if suffix in (".png", ".tiff") else X)


def damage(content: bytes, draw: random.Random) -> bytes:
    kind, where = draw.choice(["flip", "cut", "zeros", "noise", "double"]), draw.randrange(len(content))
    if kind == "cut":
        return content[:where]
    if kind == "double":
        return content[:where] + content
    length = {"flip": 1, "zeros": 8, "noise": 8}[kind]
    new = bytes(length) if kind == "zeros" else draw.randbytes(length)
    return content[:where] + new + content[where + length :]


@pytest.mark.parametrize("suffix", [".npy", ".npz", *PACKAGES, ".csv"])
def test_damage_is_harmless_or_one_line(tmp_path, suffix):
    whole, path, draw = tmp_path / f"whole{suffix}", tmp_path / f"x{suffix}", random.Random(suffix)
    write_whole(whole)
    refused = 0
    for _ in range(CASES):
        if whole.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(whole, path)
            broken = draw.choice(sorted(p for p in path.rglob("*") if p.is_file()))
            broken.write_bytes(damage(broken.read_bytes(), draw))
        else:
            path.write_bytes(damage(whole.read_bytes(), draw))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                array = read_table(path) if suffix in TABLES else read_array(path)[0]
            assert suffix in TABLES or np.asarray(array).dtype.kind in "biufc"
        except (tg.FileFormatError, tg.MemoryLimitError) as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
            refused += 1
    assert refused >= (0 if suffix == ".csv" else CASES // 8)  # almost any text is a table
