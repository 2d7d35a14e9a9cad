"""Interpolation between known neighbours: what a completed array has to beat.

It has no network, hence no `Result`, and is not among the baselines that `run` calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, check_choice, import_package
from .common import copy_known

Method = Literal["linear", "cubic"]
Array = NDArray[Any]

# An axis of at most this many entries (colours, components) is no direction to interpolate along: its slices
# are filled one by one.
SHORT_AXIS = 4
# Known entries up to which interpolation takes seconds, by the number of directions: a point has 2 triangles,
# 7 tetrahedra, and in more directions too many cells.
AFFORDABLE = {1: 10_000_000, 2: 150_000, 3: 10_000}


def interpolate(x: Any, mask: Any = None, *, method: Method = "linear") -> Array:
    """Fill the gaps of an array by interpolation between known entries.

    Along one direction between the neighbours, along two or three in a Delaunay triangulation of the known
    entries (as `scipy.interpolate.griddata`); beyond them by the nearest known entry. An axis of at most four
    entries, such as the colours of a picture, is no direction: its slices are filled one by one.

    Parameters
    ----------
    x
        Array of real or complex numbers; without `mask`, NaN marks gaps.
    mask
        True where `x` is known.
    method
        "linear", or "cubic": pieces with continuous derivatives, along one or two directions.

    Returns
    -------
    numpy.ndarray
        A copy without gaps; known entries keep their values.

    Examples
    --------
    >>> import numpy as np
    >>> interpolate(np.array([0.0, np.nan, np.nan, 3.0, 4.0, np.nan]))
    array([0., 1., 2., 3., 4., 4.])
    """
    check_choice("method", method, ("linear", "cubic"))
    filled, known = copy_known(x, mask)
    if len(directions(filled.shape)) not in reaches(method):
        raise OptionError(
            f"{method} interpolation runs along {reaches(method)[0]} to {reaches(method)[-1]} axes of more "
            f"than {SHORT_AXIS} entries; x has shape {filled.shape}. Give it in another shape"
        )
    along = directions(filled.shape)
    level = filled[known].mean()  # of a slice of which nothing is known
    # Views: what is written to them is written to `filled`.
    last = range(-len(along), 0)
    values, there = np.moveaxis(filled, along, last), np.moveaxis(known, along, last)
    # Slices with gaps at the same places, such as whole pixels, share a triangulation.
    alike: dict[bytes, list[tuple[int, ...]]] = {}
    for k in np.ndindex(values.shape[: -len(along)]):
        alike.setdefault(np.packbits(there[k]).tobytes(), []).append(k)
    for group in alike.values():
        seen = there[group[0]]
        near = np.stack([values[k][seen] for k in group], 1) if seen.any() else None
        found = None if near is None or seen.all() else _between(near, seen, method)
        for n, k in enumerate(group):
            values[k][~seen] = level if found is None else found[:, n]
    return filled


def _between(near: Array, seen: NDArray[np.bool_], method: Method) -> Array:
    """Values ``(gaps, slices)`` at the gaps of slices from those ``(known, slices)`` at what was seen."""
    here, gaps = np.argwhere(seen), np.argwhere(~seen)
    if seen.ndim == 1 and method == "linear":
        return np.stack([np.interp(gaps[:, 0], here[:, 0], column) for column in near.T], 1)
    what = f"{method} interpolation along {seen.ndim} axes needs SciPy"
    scipy, spatial = (import_package(f"scipy.{name}", what, "io") for name in ("interpolate", "spatial"))
    try:
        if seen.ndim == 1:
            found = scipy.CubicSpline(here[:, 0], near, extrapolate=False)(gaps[:, 0])
        else:
            kind = scipy.LinearNDInterpolator if method == "linear" else scipy.CloughTocher2DInterpolator
            found = kind(spatial.Delaunay(here), near)(gaps)
    except (ValueError, spatial.QhullError):  # too few known entries, or all on one line
        found = np.full((len(gaps), near.shape[1]), np.nan)
    beyond = np.isnan(found).any(1)
    if beyond.any():
        found[beyond] = near[spatial.cKDTree(here).query(gaps[beyond])[1]]
    return np.asarray(found)


def directions(shape: Sequence[int]) -> tuple[int, ...]:
    """Axes along which neighbours can tell something: the long ones."""
    return tuple(axis for axis, size in enumerate(shape) if size > SHORT_AXIS)


def reaches(method: Method) -> range:
    """Along how many axes a method can interpolate."""
    return range(1, 3 if method == "cubic" else 4)


def affordable_methods(known: NDArray[np.bool_]) -> list[Method]:
    """Methods that fill the gaps of an array within seconds; none where it has no or too many directions."""
    along = directions(known.shape)
    methods: tuple[Method, Method] = ("linear", "cubic")
    is_affordable = int(known.sum()) <= AFFORDABLE.get(len(along), 0)
    return [m for m in methods if is_affordable and len(along) in reaches(m)]
