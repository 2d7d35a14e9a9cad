"""The same array in every kind of storage; a disk that is full."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

CHUNKS = (6, 7, 5, 11)


def in_zarr(folder: Path, x: np.ndarray):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(folder / "x.zarr"), shape=x.shape, chunks=CHUNKS, dtype=x.dtype)
    array[:] = x
    return array


def in_memmap(folder: Path, x: np.ndarray):
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def in_hdf5(folder: Path, x: np.ndarray):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("group/x", data=x, chunks=CHUNKS)
    return h5py.File(folder / "x.h5", "r")["group/x"]


def in_netcdf(folder: Path, x: np.ndarray):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    named = xarray.DataArray(x, dims=list("abcd"), name="x")
    named.to_netcdf(folder / "x.nc", engine="h5netcdf")
    return xarray.open_dataarray(folder / "x.nc", engine="h5netcdf")


def in_dask(folder: Path, x: np.ndarray):
    dask = pytest.importorskip("dask.array")
    return dask.from_array(x, chunks=CHUNKS)


def in_dask_xarray(folder: Path, x: np.ndarray):
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(in_dask(folder, x), dims=list("abcd"))


STORAGE = [in_zarr, in_memmap, in_hdf5, in_netcdf, in_dask, in_dask_xarray]


@contextmanager
def file_size_limit(most):
    """A disk with room for files of so many bytes: writing more fails as it does on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
