"""Data of any form in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import FileFormatError
from .array_files import TABLES, open_large, read_array
from .table_files import read_table


def read(path: str | Path, key: str | None = None) -> Any:
    """Read data from a file, as the command line does.

    Parameters
    ----------
    path
        The file; its ending says what it is: .npy, .npz, .mat, a picture, HDF5, zarr, netCDF, .csv, .parquet.
    key
        Name of the array in a file that holds several.

    Returns
    -------
    array, xarray.DataArray or pandas.DataFrame
        What `decompose`, `complete` and `fit` take. Pictures become numbers from 0 to 1 of shape
        ``(height, width)``, or ``(height, width, 3)`` in colour; netCDF keeps names, coordinates and
        attributes; tables become frames. A zarr or HDF5 array of more than a quarter of the free memory is
        not read here: it comes as a `zarr.Array` or `h5py.Dataset`, which is read block by block.
    """
    if Path(path).suffix.lower() not in TABLES:
        return (open_large(path, key) or read_array(path, key))[0]
    if key is not None:
        raise FileFormatError(f"{path} holds a single table; leave the key {key!r} out")
    return read_table(path)
