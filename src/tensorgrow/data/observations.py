"""Some entries of a tensor: what is accepted as data with missing entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Number
from typing import Any

import numpy as np
import torch

from ..errors import DataError, OptionError, warn
from .arrays import add_at, as_floats, as_target, as_tensor
from .axes import Axes, is_frame
from .labels import Labels, find_missing, number_labels


class Observations:
    """Listed entries of a tensor.

    Parameters
    ----------
    indices
        Positions, whole numbers of shape ``(n, order)``, counted from 0.
    values
        The ``n`` entries, real or complex.
    shape
        Shape of the tensor; by default just large enough for the indices.
    weights
        Weight of each entry's squared residual; by default 1. Entries of weight 0 are dropped.

    Notes
    -----
    A position listed several times counts as repeated measurements: it becomes one entry, with the weighted
    mean as its value and the sum of the weights.

    Examples
    --------
    >>> o = Observations([[0, 0], [1, 2]], [1.0, 2.0], (2, 3))
    >>> len(o), o.shape, o.order
    (2, (2, 3), 2)
    """

    __slots__ = ("axes", "indices", "shape", "values", "weights")

    indices: torch.Tensor
    values: torch.Tensor
    shape: tuple[int, ...]
    weights: torch.Tensor | None
    axes: Axes | None

    def __init__(
        self, indices: Any, values: Any, shape: Sequence[int] | None = None, *, weights: Any = None
    ) -> None:
        self.indices = _whole_numbers(indices)
        self.values = _vector(values, "values", len(self.indices))
        self.shape = _shape(shape, self.indices)
        self.weights = None if weights is None else _weights(weights, len(self.indices))
        self.axes = None
        _check_range(self.indices, self.shape)
        self.indices = self.indices.to(self.values.device)
        if self.weights is not None:
            self.weights = self.weights.to(self.values.device)

    @classmethod
    def from_dense(cls, x: Any, mask: Any = None, *, weights: Any = None) -> Observations:
        """List the observed entries of a dense tensor: where `mask` is True, or where `x` is not NaN."""
        dense = _as_floats(x)
        if isinstance(x, np.ma.MaskedArray) and mask is None:
            mask = ~np.ma.getmaskarray(x)
        known = ~torch.isnan(dense) if mask is None else _mask(mask, tuple(dense.shape)).to(dense.device)
        if weights is not None:
            spread = _as_floats(weights)
            if spread.shape != dense.shape:
                raise DataError(f"weights have shape {tuple(spread.shape)}, the tensor {tuple(dense.shape)}")
            weights = spread.to(dense.device)[known]
        return cls(known.nonzero(), dense[known], tuple(dense.shape), weights=weights)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        value: str | None = None,
        index: Sequence[str] | None = None,
        shape: Sequence[int] | None = None,
        weights: str | None = None,
        like: Axes | None = None,
    ) -> Observations:
        """Read entries from a pandas data frame with one row each.

        Parameters
        ----------
        frame
            Index columns and a value column.
        value
            Name of the value column; by default the last one.
        index
            Names of the index columns in the order of the modes; by default all others. Whole numbers counted
            from 0 are positions: the smallest is 0, and at least a tenth of those up to the largest occurs.
            All else (ids, names, dates, categories) are labels, numbered in sorted order and kept in `axes`.
            Numbers with fractions or below 0 are labels only in columns that are named here.
        shape
            Shape of the tensor, in which whole numbers are positions; by default just large enough.
        weights
            Name of a column of weights.
        like
            Axes of data that was read before: the columns are named alike, and the same ones hold labels.

        Notes
        -----
        Rows whose value is missing are entries that are not observed: only their labels count.
        """
        names = list(frame.columns)
        if like is not None:
            value, index = value or like.value, index or like.names
        value = names[-1] if value is None else value
        is_named = index is not None
        index = [n for n in names if n not in (value, weights)] if index is None else list(index)
        missing = [n for n in (value, *index, *([] if weights is None else [weights])) if n not in names]
        if missing or not index:
            raise DataError(f"the frame has the columns {names}; {missing or 'index columns'} are missing")
        columns: list[Any] = []
        labels: dict[str, Labels | None] = {}
        for k, name in enumerate(index):
            is_counted = True if shape is not None else None
            if like is not None:
                is_counted = like.labels[k] is None
            positions, labels[str(name)] = number_labels(
                frame[name].to_numpy(), str(name), is_counted=is_counted, is_named=is_named
            )
            columns.append(positions)
        where, values = np.stack(columns, 1), frame[value].to_numpy()
        sizes = None if weights is None else frame[weights].to_numpy()
        if shape is None:
            shape = tuple(int(c.max()) + 1 if len(c) else 0 for c in columns)
        known = ~find_missing(values)
        if not known.all():
            where, values, sizes = where[known], values[known], None if sizes is None else sizes[known]
        if values.dtype.kind == "O" and all(isinstance(v, Number) for v in values):
            values = np.array(values.tolist())  # a nullable column
        entries = cls(where, values, shape, weights=sizes)
        entries.axes = Axes.of_columns(labels, str(value))
        return entries

    @property
    def labels(self) -> tuple[Labels | None, ...] | None:
        """Labels of every axis, where there are some; `Axes.labels`."""
        return None if self.axes is None else self.axes.labels

    def __len__(self) -> int:
        return len(self.values)

    @property
    def order(self) -> int:
        """Number of modes."""
        return len(self.shape)

    @property
    def density(self) -> float:
        """Listed entries as a share of the tensor."""
        return len(self) / math.prod(self.shape)

    def __repr__(self) -> str:
        weighted = "" if self.weights is None else ", weighted"
        return f"Observations({len(self):,} of shape {self.shape}{weighted})"

    def merge(self) -> tuple[Observations, int]:
        """List every position once, in order, and drop weights of 0.

        Returns
        -------
        observations, count
            Also the number of positions that were listed with different values.
        """
        used = self
        if self.weights is not None and bool((self.weights == 0).any()):
            used = self.at(self.weights > 0)
        if len(used) == 0:
            raise DataError("there are no observations with a positive weight; at least one is needed")
        first, group = position_groups(used.indices, used.shape)
        if len(first) == len(used):
            return used.at(first), 0
        ones = torch.ones(len(used), dtype=torch.float64, device=used.values.device)
        weights = ones if used.weights is None else used.weights
        total = weights.new_zeros(len(first))
        add_at(total, group, weights)
        share = weights / total[group]  # in double precision, whatever the values are
        wide = used.values * share
        mean = wide.new_zeros(len(first))
        add_at(mean, group, wide)
        off = (used.values - mean[group]).abs()
        differ = int(torch.unique(group[off > 1e-6 * used.values.abs().max()]).numel())
        out = used.at(first)
        out.values, out.weights = mean.to(used.values.dtype), total
        return out, differ

    def like(self, other: Observations) -> Observations:
        """Return the same entries where, and in the precision in which, others are."""
        return Observations(self.indices, self.values.to(other.values), self.shape, weights=self.weights)

    def at(self, rows: torch.Tensor) -> Observations:
        """Return some of the entries, by a mask or their numbers."""
        out = object.__new__(Observations)  # everything was checked before
        out.indices, out.values = self.indices[rows], self.values[rows]
        out.weights = None if self.weights is None else self.weights[rows]
        out.shape, out.axes = self.shape, self.axes
        return out


def warn_of_differences(count: int) -> None:
    """Warn where positions are listed with different values."""
    if count:
        warn(
            f"{count} entries are listed more than once with different values; their weighted means are used"
        )


def as_observations(x: Any, mask: Any = None, weights: Any = None, dtype: Any = None) -> Observations:
    """Convert observations of any form: each position once, in the dtype to compute in."""
    entries = _convert(x, mask, weights)
    if len(entries) == 0:
        raise DataError(f"none of the entries of a tensor of shape {entries.shape} is observed")
    entries, differ = entries.merge()
    warn_of_differences(differ)
    entries.values = as_target(entries.values, dtype)
    return entries


def _is_sparse_torch(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout != torch.strided


def is_listed(x: Any) -> bool:
    """Whether `x` lists entries instead of being a dense tensor."""
    sparse_other = not isinstance(x, torch.Tensor) and hasattr(x, "tocoo")
    return isinstance(x, Observations) or is_frame(x) or _is_sparse_torch(x) or sparse_other


def _convert(x: Any, mask: Any, weights: Any) -> Observations:
    if not is_listed(x):
        return Observations.from_dense(x, mask, weights=weights)
    if mask is not None:
        raise OptionError("a mask goes with a dense tensor; listed entries are all observed")
    if isinstance(x, Observations):
        if weights is None:
            return x
        weighted = Observations(x.indices, x.values, x.shape, weights=weights)
        weighted.axes = x.axes
        return weighted
    if is_frame(x):
        entries = Observations.from_frame(x)
        return entries if weights is None else _convert(entries, None, weights)
    if _is_sparse_torch(x):  # repeated positions of sparse formats are sums by convention
        coo = x.detach().to_sparse_coo()
        merged = coo.coalesce()
        if weights is None or merged._nnz() < coo._nnz():
            _refuse_weights(weights, coo._nnz(), merged._nnz())
            coo = merged
        if coo.dense_dim():
            raise DataError(f"a sparse tensor with {coo.dense_dim()} dense axes was given; 0 are needed")
        return Observations(coo._indices().T, coo._values(), tuple(coo.shape), weights=weights)
    coo, merged = x.tocoo(copy=True), x.tocoo(copy=True)
    merged.sum_duplicates()
    if weights is None or merged.nnz < coo.nnz:  # sums come in another order than the stored entries
        _refuse_weights(weights, coo.nnz, merged.nnz)
        coo = merged
    coords = coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)
    return Observations(np.stack(coords, 1), coo.data, coo.shape, weights=weights)


def _refuse_weights(weights: Any, stored: int, distinct: int) -> None:
    if weights is not None:
        raise DataError(
            f"weights go with stored entries, but the {stored} of the sparse array are sums at {distinct} "
            "positions. Sum them first, or give Observations"
        )


def _as_floats(x: Any) -> torch.Tensor:
    """Copy an array, masked or not, into a floating tensor."""
    tensor = as_floats(np.ma.getdata(x) if isinstance(x, np.ma.MaskedArray) else x, copy=True)
    if tensor.dim() == 0:
        raise DataError("a single number was given; a tensor needs at least one axis")
    return tensor


def _mask(mask: Any, shape: tuple[int, ...]) -> torch.Tensor:
    known = as_tensor(mask, "the mask", copy=True)
    if tuple(known.shape) != shape:
        raise DataError(f"the mask has shape {tuple(known.shape)}, the tensor {shape}; they must agree")
    if known.dtype != torch.bool:
        if not bool(((known == 0) | (known == 1)).all()):
            raise DataError(f"the mask has dtype {known.dtype} and other values than 0 and 1; give booleans")
        known = known.bool()
    return known


def _whole_numbers(indices: Any) -> torch.Tensor:
    where = as_tensor(indices, "the list of indices", copy=True).detach()
    if where.numel() == 0:
        raise DataError("indices are empty: at least one observation is needed")
    if where.dim() != 2:
        raise DataError(f"indices have shape {tuple(where.shape)}; (number of entries, order) is needed")
    if where.is_complex() or where.dtype == torch.bool:
        raise DataError(f"indices have dtype {where.dtype}; whole numbers are needed")
    whole = where.long()
    if where.is_floating_point() and not bool((whole == where).all()):
        raise DataError("indices must be whole numbers")
    return whole


def _vector(values: Any, name: str, count: int) -> torch.Tensor:
    tensor = _as_floats(values)
    if tensor.dim() != 1 or len(tensor) != count:
        raise DataError(f"{name} have shape {tuple(tensor.shape)}, but there are {count} positions")
    bad = ~torch.isfinite(tensor)
    if bool(bad.any()):
        raise DataError(
            f"{int(bad.sum())} of {count} observed {name} are not finite, the first is number "
            f"{int(bad.int().argmax())}. Leave such entries out of the mask or the list"
        )
    return tensor


def _weights(weights: Any, count: int) -> torch.Tensor:
    tensor = _vector(weights, "weights", count)
    if tensor.is_complex() or bool((tensor < 0).any()):
        raise DataError("weights must be real and not negative")
    return tensor.double()


def _shape(shape: Sequence[int] | None, indices: torch.Tensor) -> tuple[int, ...]:
    if shape is None:
        return tuple(int(k) + 1 for k in indices.amax(0))
    dims = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not all(isinstance(d, Integral) and d > 0 for d in dims):
        raise DataError(f"shape={shape!r} must be positive whole numbers")
    if len(dims) != indices.shape[1]:
        raise DataError(f"indices have {indices.shape[1]} columns, but the shape {dims} has {len(dims)} axes")
    return tuple(int(d) for d in dims)


def _check_range(indices: torch.Tensor, shape: tuple[int, ...]) -> None:
    limits = torch.tensor(shape, device=indices.device)
    bad = ((indices < 0) | (indices >= limits)).any(1)
    if bool(bad.any()):
        first = int(bad.int().argmax())
        raise DataError(
            f"{int(bad.sum())} of {len(indices)} positions lie outside the shape {shape}; the first is "
            f"{tuple(indices[first].tolist())} (number {first}). Positions count from 0"
        )


def position_groups(indices: torch.Tensor, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """First entry of every distinct position, and the distinct position of every entry."""
    if math.prod(shape) < 2**62:  # positions can be numbered
        codes = indices.new_zeros(len(indices))
        for k, d in enumerate(shape):
            codes = codes * d + indices[:, k]
        distinct, group = torch.unique(codes, return_inverse=True)
    else:
        distinct, group = torch.unique(indices, dim=0, return_inverse=True)
    number = torch.arange(len(indices), device=indices.device)
    first = number.new_full((len(distinct),), len(indices)).scatter_reduce_(0, group, number, "amin")
    return first, group
