"""How the slices of new data go with those of data known before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..errors import DataError, OptionError, check_whole
from .axes import Axes, Coordinate, default_names
from .labels import Labels, Positions, in_kind, look_up

Forget = Mapping[int | str, int]
"""How many of the first slices along an axis, by its number or name, are gone."""


@dataclass(frozen=True, eq=False)
class AxisMatch:
    """One axis, before and now.

    Attributes
    ----------
    old
        For every slice now its number before; -1 where it is new.
    given
        For every slice of the new data its number now.
    labels
        Of the slices now; None where positions are the labels.
    """

    old: Positions
    given: Positions
    labels: Labels | None

    @property
    def size(self) -> int:
        """Slices now."""
        return len(self.old)

    @property
    def kept(self) -> Positions:
        """Slices now that were known before."""
        return np.flatnonzero(self.old >= 0)


@dataclass(frozen=True)
class Before:
    """What is known of the axes of earlier data.

    Attributes
    ----------
    shape
        Of the array.
    axes
        Names and labels, where there are some.
    gone
        How many of the first slices of every axis are not in the new data; empty for none.
    """

    shape: tuple[int, ...]
    axes: Axes | None = None
    gone: tuple[int, ...] = ()

    def without(self, forget: Forget | None) -> Before:
        """The same without the first slices along some axes."""
        gone = [0] * len(self.shape)
        for axis, count in (forget or {}).items():
            k = self._find(axis)
            gone[k] = check_whole(f"forget[{axis!r}]", count, 0)
            if gone[k] >= self.shape[k]:
                raise OptionError(f"forget[{axis!r}]={count} leaves none of the {self.shape[k]} slices")
        return replace(self, gone=tuple(gone))

    def _find(self, axis: int | str) -> int:
        names = () if self.axes is None else self.axes.names
        if axis in names:
            return names.index(str(axis))
        if isinstance(axis, int) and 0 <= axis < len(self.shape):
            return axis
        known = f", {', '.join(map(repr, names))}" if names else ""
        raise OptionError(f"forget names the axis {axis!r}; known are 0 to {len(self.shape) - 1}{known}")

    @property
    def share(self) -> float:
        """Share of the entries that is left."""
        return math.prod(1.0 - g / n for g, n in zip(self.gone, self.shape))

    def match(
        self, shape: Sequence[int], axes: Axes | None, *, listed: bool, keep: bool
    ) -> tuple[AxisMatch, ...]:
        """Find the slices of new data among those of before, by their labels where both have some.

        Parameters
        ----------
        shape, axes
            Of the new data.
        listed
            Whether it lists entries: its shape is then the least one.
        keep
            Whether labelled slices of before that the new data does not have are kept.
        """
        if len(shape) != len(self.shape):
            raise DataError(
                f"the new data has shape {tuple(shape)}, the network is for {self.shape}: the number of axes "
                "must be the same"
            )
        if axes is not None and self.axes is not None and axes.names != self.axes.names:
            raise DataError(
                f"the axes of the new data are {axes.names}, those of the network {self.axes.names}; they "
                "must be the same"
            )
        named = axes or self.axes
        names = default_names(len(shape)) if named is None else named.names
        given = [None] * len(shape) if axes is None else axes.labels
        return tuple(
            self._match_axis(k, names[k], shape[k], given[k], listed, keep) for k in range(len(shape))
        )

    def _match_axis(
        self, k: int, name: str, size: int, given: Labels | None, listed: bool, keep: bool
    ) -> AxisMatch:
        known, gone = None if self.axes is None else self.axes.labels[k], self.gone[k] if self.gone else 0
        left = self.shape[k] - gone
        if known is not None and given is not None:
            return _match_labels(name, known[gone:], given, gone, keep)
        if given is not None and listed:
            raise DataError(
                f"the axis {name!r} of the network has no labels: positions are needed, not {given[0]!r}"
            )
        if size < left and not listed:
            raise DataError(
                f"the new data has {size} slices along {name!r}, the network {left}. Give all of them, NaN "
                f"where nothing is known; list entries as Observations; or say forget={{{k}: {left - size}}} "
                "where the first ones are gone"
            )
        size = max(size, left)
        if known is not None and size > left:
            raise DataError(
                f"the new data has {size - left} more slices along {name!r} but no labels for them: give a "
                "table, or an xarray.DataArray with this coordinate"
            )
        old = np.concatenate([np.arange(gone, self.shape[k]), np.full(size - left, -1)])
        return AxisMatch(old, np.arange(size), given if known is None else known[gone:])


def _match_labels(name: str, known: Labels, given: Labels, gone: int, keep: bool) -> AxisMatch:
    if in_kind(given, known) is None:
        raise DataError(
            f"the labels of {name!r} are such as {given[0]!r}, those of the network such as {known[0]!r}; "
            "they must be of one kind"
        )
    place, found = look_up(known, given)
    if not keep:
        return AxisMatch(np.where(found, place + gone, -1), np.arange(len(given)), given)
    where = np.where(found, place, len(known) + np.cumsum(~found) - 1)
    old = np.concatenate([np.arange(gone, gone + len(known)), np.full(int((~found).sum()), -1)])
    return AxisMatch(old, where, np.concatenate([known, given[~found]]))


def relabel(axes: Axes, matches: Sequence[AxisMatch]) -> Axes:
    """Return axes with the labels of now; other coordinates are left out where their slices changed."""
    now = dict(zip(axes.names, matches))
    same = {n for n, m in now.items() if np.array_equal(m.old, np.arange(m.size))}
    coordinates = {key: c for key, c in axes.coordinates.items() if same.issuperset(c.dims)}
    for name, match in now.items():
        if match.labels is not None:
            attrs = axes.coordinates[name].attrs if name in axes.coordinates else {}
            coordinates[name] = Coordinate((name,), match.labels, attrs)
    return replace(axes, coordinates=coordinates)


def draw_kept(matches: Sequence[AxisMatch], count: int, generator: torch.Generator) -> torch.Tensor:
    """Draw about `count` different positions of now among slices that were known before."""
    kept = [torch.from_numpy(m.kept) for m in matches]
    total = math.prod(map(len, kept))
    if total <= max(4 * count, 1 << 20):
        codes = torch.randperm(total, generator=generator)[:count]
        drawn = torch.stack(torch.unravel_index(codes, [len(k) for k in kept]), 1)
    else:  # so few of so many that hardly any is drawn twice
        columns = [torch.randint(len(k), (count,), generator=generator) for k in kept]
        drawn = torch.unique(torch.stack(columns, 1), dim=0)
    return torch.stack([k[column] for k, column in zip(kept, drawn.T)], 1)
