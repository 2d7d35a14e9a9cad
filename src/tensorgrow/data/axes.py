"""The axes of the user's data: names, labels, and what else an array says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ..errors import DataError, FileFormatError, OptionError, import_package
from .labels import KINDS, Labels, find_labels, pack_labels, unpack_labels
from .tensorization import Tensorization

Container = Literal["numpy", "torch", "xarray", "frame"]
"""Kind of array that the user gave, and gets back."""

# Names of the axes of a matrix in a frame, where it has none.
SIDES = ("row", "column")


@dataclass(frozen=True, eq=False)
class Coordinate:
    """Labels along some axes, as xarray calls them.

    Attributes
    ----------
    dims
        Names of the axes.
    values
        Text, whole numbers, bools, floats, dates or durations, as `as_labels` makes them.
    attrs
        Whatever describes them, such as their unit.
    """

    dims: tuple[str, ...]
    values: Labels
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Axes:
    """Names and labels of the axes of the user's data; positions where there are no labels.

    Attributes
    ----------
    names
        One per axis.
    coordinates
        By name. One that is named as an axis holds the labels of that axis.
    value
        What the entries are: the name of the value column, or of the `xarray.DataArray`.
    attrs
        What else the `xarray.DataArray` says of itself.

    Examples
    --------
    >>> axes = Axes.of(None, 2, ("user", "item"))
    >>> axes.names, axes.labels
    (('user', 'item'), (None, None))
    """

    names: tuple[str, ...]
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    value: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, c in self.coordinates.items():
            if c.values.ndim != len(c.dims):
                raise DataError(f"the coordinate {key!r} has {c.values.ndim} axes, but is one of {c.dims}")

    @classmethod
    def of(cls, x: Any, order: int, names: Sequence[str] | None = None) -> Axes | None:
        """Take what data of `order` axes says of itself; None where it says nothing.

        Parameters
        ----------
        x
            An `xarray.DataArray`, a frame that is a matrix, anything with `axes` of this class, or anything
            that says nothing.
        names
            Names that the user gives; they replace those of the data.
        """
        axes = x if isinstance(x, Axes) else getattr(x, "axes", None)
        if is_xarray(x):
            axes = _from_xarray(x)
        elif is_frame(x):
            axes = _from_matrix(x)
        axes = axes if isinstance(axes, Axes) else None
        if names is None:
            return axes
        names = check_names(names, order)
        return cls(names) if axes is None else axes.renamed(names)

    @classmethod
    def of_columns(cls, labels: Mapping[str, Labels | None], value: str | None = None) -> Axes:
        """Return axes with labels by name; None where positions are the labels."""
        known = {n: Coordinate((n,), values) for n, values in labels.items() if values is not None}
        return cls(tuple(labels), known, value)

    @property
    def labels(self) -> tuple[Labels | None, ...]:
        """Labels of every axis; None where positions are the labels."""
        own = (self.coordinates.get(name) for name in self.names)
        return tuple(None if c is None or c.dims != (name,) else c.values for c, name in zip(own, self.names))

    @property
    def has_labels(self) -> bool:
        """Whether an axis has labels."""
        return any(known is not None for known in self.labels)

    def renamed(self, names: Sequence[str]) -> Axes:
        """Return the same axes with other names."""
        new = dict(zip(self.names, names))
        moved = {
            new.get(key, key): replace(c, dims=tuple(new.get(d, d) for d in c.dims))
            for key, c in self.coordinates.items()
        }
        return replace(self, names=tuple(names), coordinates=moved)

    # -- names of the legs -----------------------------------------------------------------------------

    def leg_names(self, how: Tensorization | None = None) -> tuple[str, ...]:
        """Name the legs of a network: the axes, or the digits that axes were cut into.

        ``x÷16`` is the digit of ``x`` that counts steps of 16, so that ``x÷1`` is the finest one; a leg that
        holds digits of several axes is ``x÷16·y÷16``. The digits of an array that was flattened first are
        those of all its axes together: ``(x,y)÷4``.
        """
        if how is None:
            return self.names
        names = self.names if how.flattened is None else (f"({','.join(self.names)})",)

        def digit(axis: int, place: int) -> str:
            sizes = how.digits[axis]
            if len(sizes) == 1:
                return names[axis]
            step = int(np.prod(sizes[place + 1 :], dtype=object))
            return f"{names[axis]}÷{step}"

        return tuple("·".join(digit(a, k) for a, k in mode) or "-" for mode in how.modes)

    # -- from labels to positions ----------------------------------------------------------------------

    def positions(self, rows: Any) -> npt.NDArray[np.int64]:
        """Look labels up.

        Parameters
        ----------
        rows
            A frame that has a column for every axis, by its name; or rows with one label per axis. An axis
            without labels takes positions.

        Returns
        -------
        array of shape (n, number of axes)
        """
        columns = self._columns(rows)
        found = [find_labels(*c) for c in zip(self.names, self.labels, columns)]
        return np.stack(found, 1) if found else np.empty((0, 0), np.int64)

    def _columns(self, rows: Any) -> list[Any]:
        if is_frame(rows):
            columns = {str(c): c for c in rows.columns}
            missing = [n for n in self.names if n not in columns]
            if missing:
                raise DataError(
                    f"the frame has the columns {list(columns)}; {missing} are missing: give one column for "
                    f"each of {list(self.names)}"
                )
            return [rows[columns[name]].to_numpy() for name in self.names]
        if isinstance(rows, torch.Tensor):
            rows = rows.detach().cpu().numpy()
        count = len(self.names)
        if isinstance(rows, np.ndarray):
            given, fits = f"an array of shape {rows.shape}", rows.ndim == 2 and rows.shape[1] == count
        else:  # columns may be of different kinds, which one array cannot hold
            rows = [row if isinstance(row, Sequence) and not isinstance(row, str) else (row,) for row in rows]
            wrong = next((row for row in rows if len(row) != count), ())
            given, fits = f"a row {tuple(wrong)}", not wrong
        if not fits:
            raise DataError(
                f"{given} was given; one label for each of {list(self.names)} is needed, in a list of tuples "
                "or in a frame with these columns"
            )
        return [[row[k] for row in rows] for k in range(count)] if isinstance(rows, list) else list(rows.T)

    # -- back to the user's kind of array --------------------------------------------------------------

    def to_xarray(self, array: Any) -> Any:
        """Return an array as an `xarray.DataArray` with names, coordinates and attributes."""
        xarray = import_package("xarray", "this result came from xarray", "io")
        coords = {key: (c.dims, c.values, dict(c.attrs)) for key, c in self.coordinates.items()}
        return xarray.DataArray(array, coords, self.names, self.value, dict(self.attrs))

    def to_frame(self, array: Any) -> Any:
        """Return a matrix as a pandas frame with the labels of its rows and columns."""
        pandas = import_package("pandas", "this result came from a frame", "io")
        rows, columns = self.labels
        names = (None if name == default else name for name, default in zip(self.names, SIDES))
        frame = pandas.DataFrame(array, index=rows, columns=columns)
        return frame.rename_axis(index=next(names), columns=next(names))

    # -- plain data ------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form; `from_dict` is its inverse."""
        return {
            "names": list(self.names),
            "coordinates": {
                key: {"dims": list(c.dims), "attrs": plain(c.attrs), **pack_labels(c.values)}
                for key, c in self.coordinates.items()
            },
            "value": self.value,
            "attrs": plain(self.attrs),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Axes:
        """Rebuild axes written by `to_dict`."""
        try:
            coordinates = {
                str(key): Coordinate(tuple(map(str, c["dims"])), unpack_labels(c), dict(c["attrs"]))
                for key, c in data["coordinates"].items()
            }
            value = data["value"]
            names = tuple(str(n) for n in data["names"])
            return cls(names, coordinates, None if value is None else str(value), dict(data["attrs"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(f"the file has damaged axes: {error!r}") from error

    def __repr__(self) -> str:
        known = (f"{n}: {len(v)} labels" if v is not None else n for n, v in zip(self.names, self.labels))
        return f"Axes({', '.join(known)})"


def check_names(names: Sequence[str], order: int) -> tuple[str, ...]:
    """Return names of axes, one each and all different, or raise `OptionError`."""
    parts = names.split(",") if isinstance(names, str) else names
    given = tuple(str(n).strip() for n in parts)
    if len(given) != order or len(set(given)) != order or not all(given):
        raise OptionError(f"names={names!r} must be {order} different names, one for each axis of the data")
    return given


def default_names(order: int) -> tuple[str, ...]:
    """Return names of axes that have none."""
    return tuple(f"axis{k}" for k in range(order))


# -- kinds of arrays ---------------------------------------------------------------------------------------


def is_frame(x: Any) -> bool:
    """Whether `x` is a data frame in memory."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def is_xarray(x: Any) -> bool:
    """Whether `x` is an `xarray.DataArray`, by its names, so that nothing is imported."""
    return (type(x).__module__.partition(".")[0], type(x).__name__) == ("xarray", "DataArray")


def one_variable(x: Any) -> Any:
    """Return the variable of an `xarray.Dataset` that has one beside its coordinates; others as they are."""
    if (type(x).__module__.partition(".")[0], type(x).__name__) != ("xarray", "Dataset"):
        return x
    names = list(map(str, x.data_vars))
    if len(names) != 1:
        raise DataError(f"the dataset has the variables {names}; choose one, such as dataset[name]")
    return x[next(iter(x.data_vars))]


def container_of(x: Any) -> Container:
    """Return the kind of array that the user gave; NumPy for all that have no kind of their own."""
    if isinstance(x, torch.Tensor):
        return "torch"
    if is_xarray(x):
        return "xarray"
    return "frame" if is_frame(x) else "numpy"


def present(tensor: torch.Tensor, container: Container, axes: Axes | None) -> Any:
    """Return a tensor of the user's axes as the kind of array that the user gave."""
    if container == "torch":
        return tensor
    array = tensor.detach().resolve_conj().resolve_neg().cpu().numpy()
    if container == "numpy" or axes is None or len(axes.names) != array.ndim:
        return array
    return axes.to_xarray(array) if container == "xarray" else axes.to_frame(array)


def present_like(x: Any, tensor: torch.Tensor) -> Any:
    """Return a tensor of the shape of `x` as the kind of array that `x` is, with the labels of `x`."""
    container = container_of(x)
    if container == "torch":
        return tensor
    array = present(tensor, "numpy", None)
    if container == "xarray":
        return x.copy(data=array)
    return (
        type(x)(array, index=x.index, columns=x.columns)
        if hasattr(x, "index") and container == "frame"
        else array
    )


def _from_xarray(x: Any) -> Axes:
    coordinates = {}
    for key, c in x.coords.items():
        values = _as_coordinate(c.to_numpy())
        levels = getattr(x.indexes.get(key), "nlevels", 1)
        if values is not None and levels == 1:  # an index of several levels is no list of labels
            coordinates[str(key)] = Coordinate(tuple(map(str, c.dims)), values, dict(c.attrs))
    value = None if x.name is None else str(x.name)
    return Axes(tuple(map(str, x.dims)), coordinates, value, dict(x.attrs))


def _from_matrix(frame: Any) -> Axes | None:
    """Names and labels of a frame that is a matrix; None for frames that label no rows."""
    if not hasattr(frame, "index"):
        return None
    labels: dict[str, Labels | None] = {}
    for default, side in zip(SIDES, (frame.index, frame.columns)):
        own = default if side.name is None else str(side.name)
        values = _as_coordinate(side.to_numpy())
        is_counted = (
            values is not None and values.dtype.kind == "i" and bool((values == range(len(side))).all())
        )
        labels[default if own in labels else own] = None if is_counted else values
    return Axes.of_columns(labels)


def _as_coordinate(values: Labels) -> Labels | None:
    """Return values as labels; objects become text, and what cannot be labels None."""
    kind = values.dtype.kind
    if kind == "O":
        return np.array([str(v) for v in values.flat]).reshape(values.shape)
    if kind in "Su":
        return values.astype(str if kind == "S" else np.int64)
    return values if kind in KINDS else None


def plain(value: Any) -> Any:
    """Return attributes as JSON can hold them: NumPy values as numbers and lists, other objects as text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
