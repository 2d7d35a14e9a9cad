"""Packages that tensorgrow can do without, and so can its tests: they skip what needs one that is missing."""

from __future__ import annotations

import sys

OPTIONAL = ["rich", "matplotlib", "scipy", "tensorly", "cotengrust", "threadpoolctl", "sklearn"]
OPTIONAL += ["typer", "PIL", "h5py", "zarr", "xarray", "quimb", "networkx", "tensorboard", "mlflow"]
OPTIONAL += ["pymoo", "dask", "distributed", "h5netcdf"]


def missing(error: BaseException | None) -> str | None:
    """The optional package whose absence is behind an error, if any is.

    Not one that a test itself takes away (``sys.modules[name] = None``), nor a part of one that is there.
    """
    while error is not None:
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if name in OPTIONAL and name not in sys.modules:
            return name
        error = error.__cause__ or error.__context__
    return None
