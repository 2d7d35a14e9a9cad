"""Arrays in files: NumPy, MATLAB, pictures, HDF5, zarr and netCDF, through the usual libraries."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ..errors import DataError, FileFormatError, MemoryLimitError, TensorgrowError, import_package
from .atomic_file import replacing
from .axes import Axes, default_names, is_xarray
from .devices import free_memory
from .trust import NUMBERS, check_hdf5, check_hdf5_file, check_room, check_zarr

Array = npt.NDArray[Any]

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
# Pictures that do not keep every number.
LOSSY = (".jpg", ".jpeg", ".webp")
HDF5 = (".h5", ".hdf5", ".hdf")
NETCDF = (".nc", ".nc4", ".cdf")
# Of entries; `table_files` reads them.
TABLES = (".csv", ".parquet")
READABLE = (".npy", ".npz", ".mat", *PICTURES, *HDF5, ".zarr", *NETCDF)
WRITABLE = (".npy", ".npz", ".mat", *PICTURES, *HDF5, ".zarr", *NETCDF)
# What netCDF holds as attributes; all else becomes text.
_ATTRIBUTES = (str, int, float, list, np.ndarray, np.number)


@dataclass(frozen=True)
class Source:
    """Where an array came from."""

    name: str  # of the file, without its folder
    kind: Literal["array", "picture", "table"] = "array"
    levels: int | None = None  # of a picture: the value of white in the file; the array goes from 0 to 1
    key: str | None = None  # name of the array inside the file, where that holds several

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form."""
        return asdict(self)

    @property
    def is_picture(self) -> bool:
        return self.kind == "picture"


def read_array(path: str | Path, key: str | None = None) -> tuple[Any, Source]:
    """Read one array, from netCDF as an `xarray.DataArray` with its names, coordinates and attributes.

    Parameters
    ----------
    path
        The file; its ending says what it is. Pictures become arrays from 0 to 1 of shape ``(height, width)``,
        or ``(height, width, 3)`` in colour.
    key
        Name of the array in a file that holds several. Coordinates of others do not count, unless named.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if path.is_dir() and suffix != ".zarr":
        raise FileFormatError(f"{path} is a folder; a file is needed")
    if suffix in TABLES:
        raise FileFormatError(f"{path} is a table, which only `complete` and `fit` take; an array is needed")
    if suffix not in READABLE:
        raise FileFormatError(f"cannot read {path}: give a file that ends in {', '.join(READABLE)}")
    if key is not None and suffix in (".npy", *PICTURES):
        raise FileFormatError(f"{path} holds a single array; leave the key {key!r} out")
    what = "picture" if suffix in PICTURES else f"{suffix.removeprefix('.')} file"
    with reading(path, what):
        if suffix in PICTURES:
            return _read_picture(path)
        if suffix == ".npy":
            return _read_npy(path), Source(path.name)
        if suffix in _OPENERS:
            stored, name = _OPENERS[suffix](path, key)
            return _take(stored, f"{name} of {path}" if name else str(path)), Source(path.name, key=name)
        array, name = _READERS[suffix](path, key)
        return array if is_xarray(array) else np.asarray(array), Source(path.name, key=name)


def open_large(path: str | Path, key: str | None = None) -> tuple[Any, Source] | None:
    """Open a zarr or HDF5 array of more than a quarter of the free memory without reading it.

    In memory it would take its own size, that of a copy as a tensor, and what a search takes. None for all
    other files, which `read_array` reads.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _OPENERS or not path.exists():
        return None
    with reading(path, f"{suffix.removeprefix('.')} file"):
        stored, name = _OPENERS[suffix](path, key)
    if 4 * stored.dtype.itemsize * math.prod(stored.shape) > free_memory(torch.device("cpu")):
        return stored, Source(path.name, key=name)
    _close(stored)
    return None


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Say in one line that a file is damaged, whatever the library that reads it raises."""
    try:
        yield
    except (TensorgrowError, PermissionError):
        raise
    except MemoryError as error:
        raise MemoryLimitError(f"{path} does not fit in memory: {_one_line(error)}") from error
    except Exception as error:
        raise FileFormatError(
            f"{path} is not a {what} or is damaged (truncated, other format): {_one_line(error)}"
        ) from error


def write_array(
    path: str | Path, array: Array, *, levels: int | None = None, axes: Axes | None = None
) -> None:
    """Write one array; the ending says how.

    Parameters
    ----------
    levels
        The value of white in a picture, for an array from 0 to 1. Without it, the array is stretched so that
        its smallest value is black and its largest white.
    axes
        Names, coordinates and attributes, which netCDF keeps.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in WRITABLE:
        raise FileFormatError(f"cannot write {path}: give a name that ends in {', '.join(WRITABLE)}")
    # h5py raises RuntimeError where a disk is full.
    with replacing(path, RuntimeError, folder=suffix == ".zarr") as temporary:
        if suffix in PICTURES:
            _write_picture(temporary, array, levels)
        elif suffix == ".npy":
            np.save(temporary, array)
        elif suffix == ".npz":
            np.savez_compressed(temporary, x=array)
        elif suffix == ".mat":
            _package("scipy.io", "scipy", path).savemat(temporary, {"x": array})
        elif suffix == ".zarr":
            zarr = _package("zarr", "zarr", path)
            stored = zarr.open_array(str(temporary), mode="w", shape=array.shape, dtype=array.dtype)
            # One at a time: of many at once, those that are left would go on writing after one has failed.
            for part in _chunk_slices(array.shape, stored.chunks):
                stored[part] = array[part]
        elif suffix in NETCDF:
            _write_netcdf(temporary, array, axes or Axes(default_names(array.ndim)))
        else:
            with _package("h5py", "h5py", path).File(temporary, "w") as file:
                file["x"] = array


# -- one reader per format ---------------------------------------------------------------------------------


def _read_npy(path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except ValueError as error:
        if "Object arrays" in str(error):
            raise FileFormatError(f"{path} holds Python objects; an array of numbers is needed") from error
        if "pickle" in str(error):  # NumPy's guess for anything without its header
            raise ValueError("it does not begin as one") from error
        raise
    return array


def _read_npz(path: Path, key: str | None) -> tuple[Array, str]:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        for member in file.zip.infolist():
            check_room(f"{member.filename} of {path}", (member.file_size,), 1)
        name = _choose(path, key, {k: file[k].shape for k in file.files if file[k].dtype.kind in NUMBERS})
        return file[name], name


def _read_mat(path: Path, key: str | None) -> tuple[Array, str]:
    reader = _package("scipy.io", "scipy", path)
    try:
        for name, shape, _ in reader.whosmat(path):
            check_room(f"{name} of {path}", shape, 16)  # a complex number; others take less
        variables = reader.loadmat(path)
    except NotImplementedError:  # version 7.3 is HDF5, with the axes the other way round
        stored, name = _open_hdf5(path, key)
        return _take(stored, f"{name} of {path}").T, name
    arrays = {k: v for k, v in variables.items() if isinstance(v, np.ndarray) and v.dtype.kind in NUMBERS}
    name = _choose(path, key, {k: v.shape for k, v in arrays.items()})
    return arrays[name], name


def _open_hdf5(path: Path, key: str | None) -> tuple[Any, str]:
    """Find a dataset; its file stays open as long as somebody holds it."""
    h5py = _package("h5py", "h5py", path)
    file = h5py.File(path, "r")
    shapes: dict[str, tuple[int, ...]] = {}
    scales: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in NUMBERS:
            shapes[name] = item.shape
            if item.is_scale:
                scales.append(name)

    try:
        file.visititems(note)
        name = _choose(path, key, shapes, scales)
        check_hdf5(file[name], f"{name} of {path}")
    except BaseException:
        file.close()
        raise
    return file[name], name


def _take(stored: Any, place: str) -> Array:
    """Read all of a zarr or HDF5 array into memory, where that has room for it."""
    try:
        for shape in (stored.shape, stored.chunks or ()):  # a chunk is decoded as a whole
            check_room(place, shape, stored.dtype.itemsize)
        return np.asarray(stored[...])
    finally:
        _close(stored)


def _close(stored: Any) -> None:
    if hasattr(stored, "file"):  # of HDF5
        stored.file.close()


def _open_zarr(path: Path, key: str | None) -> tuple[Array, str]:
    zarr = _package("zarr", "zarr", path)
    opened = zarr.open(str(path), mode="r")
    arrays = dict(_zarr_arrays(opened, "")) if isinstance(opened, zarr.Group) else {"": opened}
    coordinates = [k for k, v in arrays.items() if _zarr_dims(v) == (k.rpartition("/")[2],)]
    shapes = {k: v.shape for k, v in arrays.items() if k == "" or v.dtype.kind in NUMBERS}
    name = _choose(path, key, shapes, coordinates)
    array, place = arrays[name], f"{name} of {path}" if name else str(path)
    check_zarr(array, place)
    return array, name


def _zarr_dims(array: Any) -> tuple[str, ...]:
    """Names of the axes, as xarray writes them to both formats of zarr; none where there are none."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    return tuple(map(str, names or ()))


def _zarr_arrays(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, array in group.arrays():
        yield prefix + name, array
    for name, below in group.groups():
        yield from _zarr_arrays(below, f"{prefix}{name}/")


def _read_netcdf(path: Path, key: str | None) -> tuple[Any, str]:
    xarray = _package("xarray", "xarray", path)
    with path.open("rb") as opened:
        is_classic = opened.read(3) == b"CDF"
    if not is_classic:  # netCDF 4 is HDF5
        h5py = _package("h5py", "h5py", path)
        if find_spec("netCDF4") is None:  # either of them reads it for xarray
            _package("h5netcdf", "h5netcdf", path)
        with h5py.File(path, "r") as file:
            check_hdf5_file(h5py, file, str(path))
    # "all": bounds and grid mappings, too, belong to the coordinates.
    with xarray.open_dataset(path, decode_coords="all") as data:
        shapes = {str(k): v.shape for k, v in data.variables.items() if v.dtype.kind in NUMBERS}
        name = _choose(path, key, shapes, tuple(map(str, data.coords)))
        check_room(f"{name} of {path}", data[name].shape, data[name].dtype.itemsize)
        return data[name].load(), name


def _chunk_slices(shape: Sequence[int], chunks: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Slices of the chunks of an array."""
    starts = (range(0, size, step) for size, step in zip(shape, chunks))
    for corner in product(*starts):
        yield tuple(slice(start, start + step) for start, step in zip(corner, chunks))


def _write_netcdf(path: Path, array: Array, axes: Axes) -> None:
    if np.iscomplexobj(array):
        raise DataError("netCDF has no complex numbers; write a .npy file instead")
    for package in ("xarray", "h5netcdf"):
        _package(package, package, Path("x.nc"))
    named = axes.to_xarray(array)
    for described in (named, *named.coords.values()):
        described.attrs = {k: v if isinstance(v, _ATTRIBUTES) else str(v) for k, v in described.attrs.items()}
    named.rename(axes.value or "x").to_netcdf(path, engine="h5netcdf")


_READERS: dict[str, Callable[[Path, str | None], tuple[Any, str]]] = {
    ".npz": _read_npz,
    ".mat": _read_mat,
    **dict.fromkeys(NETCDF, _read_netcdf),
}

_OPENERS: dict[str, Callable[[Path, str | None], tuple[Any, str]]] = {
    ".zarr": _open_zarr,
    **dict.fromkeys(HDF5, _open_hdf5),
}


def _choose(
    path: Path, key: str | None, shapes: Mapping[str, tuple[int, ...]], coordinates: Collection[str] = ()
) -> str:
    """Return the name of the one array that is no coordinate of others, or of the one that the key names."""

    def listed(names: Collection[str]) -> str:
        sizes = {k: "x".join(map(str, shapes[k])) or "a number" for k in sorted(names)}
        return ", ".join(f"{k} ({size})" for k, size in sizes.items()) or "none"

    if key is not None:
        key = key.strip("/")
        if key not in shapes:
            raise FileFormatError(f"{path} has no array {key!r}; it has {listed(shapes)}")
        return key
    data = {k: shape for k, shape in shapes.items() if k not in coordinates} or shapes
    arrays = [k for k, shape in data.items() if len(shape) > 0] or list(data)
    if len(arrays) != 1:
        raise FileFormatError(f"{path} holds {len(arrays)} arrays; choose one by its key: {listed(arrays)}")
    return arrays[0]


def _package(module: str, package: str, path: Path) -> Any:
    return import_package(module, f"{path.suffix} files need {package}", "io")


# -- pictures ----------------------------------------------------------------------------------------------


def _read_picture(path: Path) -> tuple[Array, Source]:
    pillow = _package("PIL.Image", "pillow", path)
    with warnings.catch_warnings():
        # A few kilobytes can hold a picture that fills the memory: from this many pixels on Pillow warns.
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        with pillow.open(path) as picture:
            check_room(str(path), (picture.height, picture.width, len(picture.getbands())), 8 + 1)
            picture.load()
            if picture.mode.startswith("I;16") or picture.mode == "I":
                return np.asarray(picture) / 65535.0, Source(path.name, "picture", 65535)
            if picture.mode == "F":  # nothing says which numbers are black and white
                return np.asarray(picture), Source(path.name)
            grey = picture.mode in ("1", "L", "LA")
            pixels = np.asarray(picture.convert("L" if grey else "RGB"))
    return pixels / 255.0, Source(path.name, "picture", 255)


def _write_picture(path: Path, array: Array, levels: int | None) -> None:
    pillow = _package("PIL.Image", "pillow", path)
    if np.iscomplexobj(array) or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise DataError(
            f"an array of shape {array.shape} and dtype {array.dtype} is no picture; real numbers of shape "
            "(height, width) or (height, width, 3) are needed. Write it to a .npy file instead"
        )
    values = array.astype(np.float64)
    if levels is None:
        low, high = float(values.min()), float(values.max())
        values = (values - low) / ((high - low) or 1.0)
    values = np.clip(np.nan_to_num(values), 0.0, 1.0)
    if levels == 65535 and array.ndim == 2 and path.suffix.lower() in (".png", ".tif", ".tiff"):
        pillow.fromarray(np.rint(values * 65535).astype(np.uint16)).save(path)
    else:
        pillow.fromarray(np.rint(values * 255).astype(np.uint8)).save(path)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
