"""What users know of an axis: values change slowly along it, its places are the nodes of a graph, and so on.

Every quadratic prior is a positive semi-definite matrix ``L`` between the places of an axis. A fit adds
``strength * g * <C, L C>`` to the squared residual for the core ``C`` that holds the axis. Here ``g`` is the
mean diagonal of the core's Gram matrices, so that a strength means the same for any data. ``L`` is scaled to
a mean diagonal of 2, which that of a long chain has, so that a strength means the same for any prior too.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from .errors import DataError, OptionError, check_choice, check_positive, check_whole, is_whole

__all__ = ["Prior", "Priors", "Quadratic", "autoregressive", "graph", "nonnegative", "periodic", "smooth"]

# Strength of a prior that no held-out data can choose: among those tried on photographs, in steps of three,
# the best or next to it.
DEFAULT_STRENGTH = 0.1

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """A symmetric positive semi-definite matrix by its entries, each place at most once.

    Attributes
    ----------
    size
        Rows, and columns.
    rows, columns, values
        Its entries, on both sides of the diagonal.
    """

    size: int
    rows: Places
    columns: Places
    values: Floats

    @classmethod
    def of_differences(cls, size: int, places: Places, values: Floats) -> Quadratic:
        """``D^T D`` for a matrix ``D`` with a few entries in each row: their columns, and their values."""
        each = values[:, :, None] * values[:, None, :]
        flat = (places[:, :, None] * size + places[:, None, :]).reshape(-1)
        return cls._added(size, flat, each.reshape(-1))

    @classmethod
    def _added(cls, size: int, flat: Places, values: Floats) -> Quadratic:
        where, group = np.unique(flat, return_inverse=True)
        return cls(
            size, where // size, where % size, np.bincount(group, values, len(where)).astype(np.float64)
        )

    def __add__(self, other: Quadratic) -> Quadratic:
        flat = [q.rows * self.size + q.columns for q in (self, other)]
        return self._added(self.size, np.concatenate(flat), np.concatenate([self.values, other.values]))

    def times(self, factor: float) -> Quadratic:
        """Multiply by a number."""
        return Quadratic(self.size, self.rows, self.columns, factor * self.values)

    def within(self, before: int, after: int) -> Quadratic:
        """``1 (x) L (x) 1``: the same along one of several digits that share a mode."""
        outer, inner = np.divmod(np.arange(before * after), after)

        def place(mine: Places) -> Places:
            return ((outer[:, None] * self.size + mine) * after + inner[:, None]).reshape(-1)

        values = np.tile(self.values, before * after)
        return Quadratic(before * self.size * after, place(self.rows), place(self.columns), values)

    def moved(self, shift: int) -> Quadratic:
        """The same for places that were moved cyclically."""
        rows, columns = ((mine + shift) % self.size for mine in (self.rows, self.columns))
        return Quadratic(self.size, rows, columns, self.values)

    def normalised(self) -> Quadratic:
        """Scale to a mean diagonal of 2; zero stays zero."""
        total = float(self.values[self.rows == self.columns].sum())
        return self.times(2.0 * self.size / total) if total > 0.0 else self

    @cached_property
    def chain(self) -> Floats:
        """Its diagonal, and what is below it: zeros where nothing is. For bandwidths up to 1."""
        out, below = np.zeros((2, self.size)), self.rows >= self.columns
        out[(self.rows - self.columns)[below], self.columns[below]] = self.values[below]
        return out

    @cached_property
    def bandwidth(self) -> int:
        """How far from the diagonal entries lie at most."""
        return int(np.abs(self.rows - self.columns).max(initial=0))

    def to_dense(self) -> Floats:
        """All entries."""
        out = np.zeros((self.size, self.size))
        out[self.rows, self.columns] = self.values
        return out


class Prior(ABC):
    """What is known of an axis.

    Attributes
    ----------
    strength
        Weight of a quadratic prior; None: chosen on held-out data.
    """

    strength: float | None = None
    needs_whole_axis: ClassVar[bool] = True  # whether it says nothing about the digits of an axis

    @abstractmethod
    def matrix(self, size: int) -> Quadratic | None:
        """The matrix of a quadratic prior for an axis of a size; None for other priors."""

    def along_digit(self, size: int, place: int) -> Prior:
        """The prior along one digit of an axis that is cut into several.

        Parameters
        ----------
        size
            Of the digit.
        place
            Places of the axis that one step of the digit is.
        """
        raise OptionError(
            f"{self} ties places of an axis that lie apart, and the axis is cut into digits; leave it whole, "
            "for example by `tensorize=False`, or use `smooth`"
        )

    def describe(self) -> dict[str, object]:
        """JSON-friendly form that tells this prior from others."""
        return {"prior": str(self)}


def _check_strength(strength: float | None) -> None:
    if strength is not None:
        check_positive("strength", strength, finite=True, more=", or None to have it chosen")


@dataclass(frozen=True)
class Smooth(Prior):
    """See `smooth`."""

    strength: float | None = None
    order: int = 1
    weight: float = 1.0
    needs_whole_axis = False

    def __post_init__(self) -> None:
        _check_strength(self.strength)
        if self.order not in (1, 2):
            raise OptionError(f"order={self.order!r} must be 1 (differences) or 2 (differences of these)")

    def matrix(self, size: int) -> Quadratic:
        stencil = np.array([-1.0, 1.0]) if self.order == 1 or size < 3 else np.array([1.0, -2.0, 1.0])
        first = np.arange(max(size - len(stencil) + 1, 0))
        places = first[:, None] + np.arange(len(stencil))
        rows = np.broadcast_to(stencil, places.shape)
        return Quadratic.of_differences(size, places, rows).normalised().times(self.weight)

    def along_digit(self, size: int, place: int) -> Smooth:
        """What changes by one per place changes by the place value per step of a digit.

        Squared differences along coarse digits are larger by the square of that, and weigh less by it.
        """
        return Smooth(self.strength, self.order, self.weight / float(place) ** (2 * self.order))


@dataclass(frozen=True)
class Periodic(Prior):
    """See `periodic`."""

    period: int | None = None
    strength: float | None = None

    def __post_init__(self) -> None:
        _check_strength(self.strength)
        if self.period is not None:
            check_whole("period", self.period, more=", or None for the length of the axis")

    def matrix(self, size: int) -> Quadratic:
        if self.period is None:
            first = np.arange(size if size > 2 else size - 1)  # both neighbours of two places are the same
            places = np.stack([first, (first + 1) % size], 1)
        else:
            if self.period >= size:
                raise OptionError(
                    f"period={self.period} along an axis of size {size}: no two places are that far apart. "
                    "Leave the period out where the axis itself is one"
                )
            first = np.arange(size - self.period)
            places = np.stack([first, first + self.period], 1)
        rows = np.broadcast_to([-1.0, 1.0], places.shape)
        return Quadratic.of_differences(size, places, rows).normalised()

    def along_digit(self, size: int, place: int) -> Prior:
        if self.period is None:
            return super().along_digit(size, place)
        if place == self.period and size > 1:  # one step of this digit is one period
            return Smooth(self.strength)
        return NOTHING


@dataclass(frozen=True)
class Autoregressive(Prior):
    """See `autoregressive`."""

    lags: tuple[int, ...]
    coefficients: tuple[float, ...]
    strength: float | None = None

    def matrix(self, size: int) -> Quadratic:
        longest = max(self.lags)
        if longest >= size:
            raise OptionError(f"a lag of {longest} along an axis of size {size}: it must be shorter")
        now = np.arange(longest, size)
        places = now[:, None] - np.array([0, *self.lags])
        rows = np.broadcast_to([1.0, *(-c for c in self.coefficients)], places.shape)
        return Quadratic.of_differences(size, places, rows).normalised()


@dataclass(frozen=True, eq=False)
class Graph(Prior):
    """See `graph`."""

    rows: Places
    columns: Places
    weights: Floats
    size: int
    strength: float | None = None

    def __post_init__(self) -> None:
        _check_strength(self.strength)

    def matrix(self, size: int) -> Quadratic:
        if size != self.size:
            raise DataError(
                f"the graph has {self.size} nodes, the axis {size} places; every place needs its node, one "
                "without edges where nothing is known"
            )
        places = np.stack([self.rows, self.columns], 1)
        root = np.sqrt(self.weights)[:, None]
        return Quadratic.of_differences(size, places, root * [-1.0, 1.0]).normalised()

    def __str__(self) -> str:
        return f"graph of {self.size} nodes and {len(self.weights)} edges, strength={self.strength}"

    def describe(self) -> dict[str, object]:
        content = b"".join(a.tobytes() for a in (self.rows, self.columns, self.weights))
        return {**super().describe(), "digest": hashlib.sha256(content).hexdigest()}


@dataclass(frozen=True)
class Nonnegative(Prior):
    """See `nonnegative`."""

    needs_whole_axis = False

    def matrix(self, size: int) -> None:
        return None

    def along_digit(self, size: int, place: int) -> Nonnegative:
        return self


@dataclass(frozen=True)
class Nothing(Prior):
    """No knowledge: what a digit is left with that a prior says nothing about."""

    def matrix(self, size: int) -> None:
        return None


NOTHING = Nothing()


@dataclass(frozen=True, eq=False)
class Shared(Prior):
    """A prior along one of several digits that share a mode, or along an axis that was moved cyclically.

    Attributes
    ----------
    size, before, after
        Sizes of the digit, and products of those of the digits before and after it in the mode.
    shift
        By how much the places were moved.
    """

    prior: Prior
    size: int
    before: int = 1
    after: int = 1
    shift: int = 0

    @property
    def strength(self) -> float | None:  # type: ignore[override]
        """That of the prior."""
        return self.prior.strength

    def matrix(self, size: int) -> Quadratic | None:
        mine = self.prior.matrix(self.size)
        return None if mine is None else mine.moved(self.shift).within(self.before, self.after)

    def describe(self) -> dict[str, object]:
        return {**self.prior.describe(), "digit": [self.before, self.size, self.after, self.shift]}


# -- what users call ---------------------------------------------------------------------------------------


def smooth(strength: float | None = None, *, order: int = 1) -> Smooth:
    """Neighbours along an axis are alike: time, space, wavelength, the rows of a picture.

    Parameters
    ----------
    strength
        None: chosen on held-out data, together for all priors that leave it open; 0.1 where nothing is held
        out.
    order
        1: differences of neighbours are small. 2: the slope changes little, so that gaps and ends continue a
        trend.
    """
    return Smooth(strength, order)


def graph(adjacency: Any, strength: float | None = None) -> Graph:
    """Places of an axis are the nodes of a graph, and those that are joined are alike: sensors, stations.

    Parameters
    ----------
    adjacency
        Weights of the edges: a square array, NumPy, torch or SciPy sparse, none of them negative. Only their
        proportions matter, and the diagonal does not. Where the weight from i to j is not that from j to i,
        their mean is used: alike is mutual.
    strength
        As for `smooth`.
    """
    if hasattr(adjacency, "tocoo"):
        sparse = adjacency.tocoo()
        shape, weights = tuple(sparse.shape), np.asarray(sparse.data)
        where: tuple[Any, ...] = (sparse.row, sparse.col)
    else:
        array = np.asarray(adjacency.cpu() if hasattr(adjacency, "cpu") else adjacency)
        if array.dtype.kind not in "biuf":
            raise DataError(f"the adjacency of a graph must be numbers, not {array.dtype}")
        shape, where = array.shape, np.nonzero(array)
        weights = array[where] if array.ndim == 2 else array
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise DataError(f"the adjacency of a graph must be a square array; this has the shape {shape}")
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise DataError(
            f"the weights of a graph must be finite and not negative; the smallest is {np.min(weights):g}. "
            "Leave out edges between places that are not alike"
        )
    size = int(shape[0])
    low, high = np.minimum(*where).astype(np.int64), np.maximum(*where).astype(np.int64)
    flat, group = np.unique(low * size + high, return_inverse=True)
    total = np.bincount(group, weights, len(flat)) / 2.0
    keep = (flat // size != flat % size) & (total > 0.0)
    flat = flat[keep]
    return Graph(flat // size, flat % size, total[keep], size, strength)


def periodic(period: int | None = None, strength: float | None = None) -> Periodic:
    """An axis repeats itself.

    Parameters
    ----------
    period
        Places that are so far apart are alike: 7 for days, 24 for hours. None: the axis is one period, hours
        of a day or angles, whose neighbours are alike and whose last place is the neighbour of the first.
    strength
        As for `smooth`.
    """
    return Periodic(period, strength)


def autoregressive(
    lags: int | Sequence[int], coefficients: Sequence[float] | None = None, strength: float | None = None
) -> Autoregressive:
    """A place of an axis is a weighted sum of earlier ones.

    Parameters
    ----------
    lags
        How far back they lie: ``(1, 24)`` for the last hour and the same hour of the day before.
    coefficients
        Their weights; by default the same for each, with the sum one.
    strength
        As for `smooth`.
    """
    given = tuple(lags) if isinstance(lags, Sequence) else (lags,)
    if not given or len(set(given)) < len(given):
        raise OptionError(f"lags={lags!r} must be one or more different whole numbers of at least 1")
    whole = tuple(check_whole("a lag", lag) for lag in given)
    weights = [1.0 / len(whole)] * len(whole) if coefficients is None else list(coefficients)
    if len(weights) != len(whole) or not all(isinstance(c, Real) and np.isfinite(c) for c in weights):
        raise OptionError(f"coefficients={coefficients!r}: one finite number is needed for each of {whole}")
    _check_strength(strength)
    return Autoregressive(whole, tuple(map(float, weights)), strength)


def nonnegative() -> Nonnegative:
    """The core that holds an axis has no negative entries.

    With all axes no core has any, nor has the tensor, and every rank adds something: parts instead of
    differences. ``priors="nonnegative"`` says so of all axes. Negative values are refused then. With some
    axes the others carry the signs. Complex values, and losses under which the network stands for logarithms
    or log-odds, are refused.
    """
    return Nonnegative()


# -- which axes --------------------------------------------------------------------------------------------

Priors = Mapping[Any, Prior | Sequence[Prior]] | str
"""By axis, its number or its name, one prior or several; or "nonnegative" for all axes."""
ModePriors = dict[int, tuple[Prior, ...]]
"""By the number of an axis or mode."""


def by_axis(priors: Priors | None, shape: Sequence[int], names: Sequence[str] | None = None) -> ModePriors:
    """Find the axes that priors are about, and check that they fit.

    Parameters
    ----------
    shape, names
        Of the axes.
    """
    if priors is None:
        return {}
    if isinstance(priors, str):
        check_choice("priors", priors, ("nonnegative",))
        return {axis: (nonnegative(),) for axis in range(len(shape))}
    if not isinstance(priors, Mapping):
        raise OptionError(
            f"priors={priors!r} must be a mapping from axes to priors, such as "
            '{0: tensorgrow.priors.smooth()}, or "nonnegative"'
        )
    found: ModePriors = {}
    for key, given in priors.items():
        axis = _axis(key, len(shape), names)
        if axis in found:
            raise OptionError(f"priors name axis {axis} twice; give it a list of priors")
        several = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not several or not all(isinstance(p, Prior) for p in several):
            raise OptionError(
                f"the prior of axis {key!r} is {given!r}; one or a list of tensorgrow.priors.smooth(), "
                "graph(adjacency), periodic(), autoregressive(lags), nonnegative() is needed"
            )
        for prior in several:
            prior.matrix(int(shape[axis]))  # refuses what does not fit
        found[axis] = several
    return dict(sorted(found.items()))


def _axis(key: object, order: int, names: Sequence[str] | None) -> int:
    if isinstance(key, str) and names is not None and key in names:
        return list(names).index(key)
    if is_whole(key, -order, order):
        return int(key) % order
    called = "; name the axes with `names`" if isinstance(key, str) else ""
    called = called if names is None else f", or one of the names {list(names)}"
    raise OptionError(f"priors name the axis {key!r}; axes are numbers from 0 to {order - 1}{called}")


def describe(priors: ModePriors) -> dict[str, list[dict[str, object]]]:
    """JSON-friendly form of priors by axis."""
    return {str(axis): [p.describe() for p in several] for axis, several in priors.items()}
