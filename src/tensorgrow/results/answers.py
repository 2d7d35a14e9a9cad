"""What a result says of entries: their values, how sure they are, and the array with its gaps filled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..algebra.uncertainty import Uncertainty, check_level, combine
from ..data.arrays import as_tensor
from ..data.axes import Axes, Container, container_of, is_frame, present, present_like
from ..data.tensorization import Tensorization
from ..errors import DataError, OptionError, import_package
from ..losses import as_loss
from ..network import TensorNetwork
from ..structure import Structure


class Answers:
    """What a `Result` is asked for, which has these attributes; committees answer by the mean of members."""

    network: TensorNetwork
    info: Mapping[str, Any]
    tensorization: Tensorization | None
    axes: Axes | None
    members: tuple[Answers, ...]
    uncertainty: Uncertainty | None

    @property
    def structure(self) -> Structure:
        """Structure of the network."""
        return self.network.structure

    @property
    def container(self) -> Container:
        """Kind of array that `to_array` and `predict` answer in: the one that the run was given."""
        return self.info.get("container", "numpy")  # type: ignore[no-any-return]

    def predict(self, indices: Any, interval: float | None = None) -> Any:
        """Return entries of the tensor; after a completion with a loss, the values it expects there.

        Parameters
        ----------
        indices
            Where the data has labels: a frame with a column for every axis, or rows of labels, such as
            ``[("ann", 2024), ("bob", 2025)]``. Otherwise positions in the array, integers of shape
            ``(n, axes)``; of one that was cut into digits, also positions in the network.
        interval
            The share of observed values that intervals should hold, such as 0.9: of values as they would be
            observed, noise included. Their widths are measured on held-out entries, and are right for
            entries that are missing in the way these were.

        Returns
        -------
        array, or values, low, high
            For a frame a series with its index. Otherwise of the kind of the data: a torch tensor where that,
            or `indices`, is one, else a NumPy array. With `interval` three of them.
        """
        values = self._entries(self._of_each(indices))
        if interval is None:
            return self._present_entries(values, indices)
        widths = self._halfwidth(interval)
        if values.is_complex():
            raise OptionError("intervals are for real values, and these are complex; `std` is for both")
        half = widths * self._deviations(self._of_each(indices))
        ends = (self.expected((values.double() + off).to(values.dtype)) for off in (-half, half))
        return tuple(self._present_entries(a, indices) for a in (values, *ends))

    def std(self, indices: Any = None) -> Any:
        """Return root mean square errors to expect of predictions, measured on held-out entries.

        As of intervals (see `predict`), the noise of the data is part of them.

        Parameters
        ----------
        indices
            As for `predict`. By default all entries: an array such as `to_array` returns.
        """
        if indices is not None:
            return self._present_entries(self._deviations(self._of_each(indices)), indices)
        shape = self.structure.dims if self.tensorization is None else self.tensorization.shape
        self.network.check_dense((2 + len(shape)) * math.prod(shape))  # their positions, too
        every = np.indices(shape).reshape(len(shape), -1).T
        found = self._deviations([m._in_network(every) for m in self.members or (self,)])
        return present(found.reshape(shape), self.container, self.axes)

    def _of_each(self, indices: Any) -> list[Any]:
        """Positions in the network of each member, or of the only one."""
        return [m._positions(indices) for m in self.members or (self,)]

    def _entries(self, where: Sequence[Any]) -> torch.Tensor:
        """Expected values at positions in the network of each member."""
        places = iter(where)
        return self._mean(lambda m: m.expected(m.network.entries(next(places))))

    def _deviations(self, where: Sequence[Any]) -> torch.Tensor:
        """Errors to expect at positions in the network of each member.

        The variance of a committee is the mean of its members', and what these differ by.
        """
        known = self._known_errors
        if known.model is not None:
            unit = self.network.times_power(-known.model.exponent)
            places = self.network.check_indices(where[0])
            return known.size * known.model.std(unit.structure, unit.cores, places)
        pairs = [([place], m) for place, m in zip(where, self.members)]
        found = combine(
            self.member_weights,
            [m._deviations(place) for place, m in pairs],
            [m._entries(place) for place, m in pairs] if known.spreads else None,
        )
        return known.size * found

    def _halfwidth(self, level: float) -> float:
        """Half of the width of intervals of a level, in standard deviations."""
        level = check_level(level)  # whether or not there are errors to answer with
        return self._known_errors.halfwidth(level)

    @property
    def _known_errors(self) -> Uncertainty:
        """The uncertainty of the network, or the reason why there is none."""
        if self.uncertainty is not None:
            return self.uncertainty
        loss = self.info.get("loss")
        if "num_observations" not in self.info:
            why = "this network was not learned from some entries of a tensor (`complete`, or `fit`)"
        elif not self.info.get("num_held_out"):
            why = "this run held out none: validation=0.1 does"
        elif loss is not None:
            why = f"loss={loss!r} predicts no values: 'squared', 'absolute' and 'huber' do"
        else:
            why = "this run had its entries in partitions, or is of an earlier version: run again in memory"
        raise OptionError(f"how sure predictions are is measured on held-out entries, but {why}")

    def _present_entries(self, values: torch.Tensor, indices: Any) -> Any:
        """Return a number per row of `indices`, as `predict` says."""
        if is_frame(indices) and hasattr(indices, "index"):
            pandas = import_package("pandas", "frames need pandas", "io")
            name = None if self.axes is None else self.axes.value
            return pandas.Series(present(values, "numpy", None), indices.index, name=name)
        is_torch = "torch" in (self.container, container_of(indices))
        return present(values, "torch" if is_torch else "numpy", None)

    def _positions(self, indices: Any) -> Any:
        """Positions in the network of labels, or of positions in the array it was made from."""
        axes, how = self.axes, self.tensorization
        if is_frame(indices) and axes is None:
            raise DataError("a frame was given, but the data has no names: give positions, (n, order)")
        if axes is not None and (axes.has_labels or is_frame(indices)):
            return self._in_network(axes.positions(indices))
        if how is None:
            return indices
        where = np.asarray(indices.cpu() if isinstance(indices, torch.Tensor) else indices)
        is_array = where.ndim == 2 and where.shape[1] == len(how.shape) and where.dtype.kind in "iu"
        return self._in_network(where) if is_array else indices

    def _in_network(self, where: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Positions in the network of positions in the array it was made from."""
        return where if self.tensorization is None else self.tensorization.positions(where)

    @property
    def member_weights(self) -> tuple[float, ...]:
        """Share of every member of a committee in its answers."""
        count = len(self.members)
        return tuple(self.info.get("member_weights") or (1.0 / count for _ in range(count)))

    def _mean(self, answer: Callable[[Answers], torch.Tensor]) -> torch.Tensor:
        """Return the answer of this result; of a committee the weighted mean of its members' answers."""
        if not self.members:
            return answer(self)
        total: torch.Tensor | None = None
        for member, weight in zip(self.members, self.member_weights):
            part = weight * answer(member)
            total = part if total is None else total + part
        assert total is not None
        return total

    def _dense(self) -> torch.Tensor:
        """Return the network's tensor as expected values, in the shape of the array it was made from."""
        copies = 2 if self.tensorization or not self.info.keys().isdisjoint(("loss", "bounds")) else 1
        self.network.check_dense(copies * self.structure.num_entries)
        dense = self.expected(self.network.to_dense())
        return dense if self.tensorization is None else self.tensorization.invert(dense)

    def expected(self, values: torch.Tensor) -> torch.Tensor:
        """Return what entries of the network stand for: rates or probabilities under the loss of the run.

        Values outside the `bounds` of the run are moved to the nearest bound.
        """
        loss, bounds = self.info.get("loss"), self.info.get("bounds")
        expected = values if loss is None else as_loss(loss).mean(values)
        return expected if bounds is None else expected.clamp(*bounds)

    def fill(self, x: Any, mask: Any = None, *, keep_observed: bool = True) -> Any:
        """Return the completed tensor, or table.

        Parameters
        ----------
        x
            The tensor with missing entries: NumPy, torch, xarray or a frame that is a matrix. Or, where the
            data was a table, a frame with the same columns: entries of its rows. It is not modified.
        mask
            True where `x` is observed; by default where it is neither masked nor NaN.
        keep_observed
            Keep the observed values, and predict only the others; otherwise predict all.

        Returns
        -------
        array
            Of the kind of `x`.
        """
        if is_frame(x) and self.axes is not None and set(self.axes.names) <= set(map(str, x.columns)):
            return self._fill_table(x, mask, keep_observed)
        if isinstance(x, np.ma.MaskedArray) and mask is None:
            mask = ~np.ma.getmaskarray(x)
        tensor = as_tensor(np.ma.getdata(x) if isinstance(x, np.ma.MaskedArray) else x, copy=True).detach()
        how, shape = self.tensorization, tuple(tensor.shape)
        wanted = self.structure.dims if how is None else how.shape
        in_array = shape == wanted
        if not in_array and (shape != self.structure.dims or self.members):
            raise DataError(f"x has shape {shape}, the network is for {wanted}")
        self.network.check_dense(2 * self.structure.num_entries)  # the copy with what is known, too
        if in_array:
            dense = self._mean(lambda m: m._dense())
        else:
            dense = self.expected(self.network.to_dense())
        known = ~torch.isnan(tensor) if mask is None else torch.as_tensor(mask, device=tensor.device).bool()
        if known.shape != tensor.shape:
            raise DataError(f"mask has shape {tuple(known.shape)}, x has {tuple(tensor.shape)}")
        filled = dense.to(tensor.device)
        if tensor.is_floating_point() or tensor.is_complex():
            filled = filled.to(torch.promote_types(tensor.dtype, filled.dtype))
        if keep_observed:
            filled = torch.where(known, tensor.to(filled.dtype), filled)
        return present_like(x, filled)

    def _fill_table(self, table: Any, mask: Any, keep_observed: bool) -> Any:
        """Return a frame of entries with its value column filled."""
        assert self.axes is not None
        filled = table.copy()
        column = next((c for c in table.columns if str(c) == self.axes.value), self.axes.value or "value")
        predicted = self.predict(table)
        if keep_observed and column in table.columns:
            seen = table[column].notna() if mask is None else np.asarray(mask, dtype=bool)
            predicted = table[column].astype(predicted.dtype).where(seen, predicted)
        filled[column] = predicted
        return filled

    def to_array(self) -> Any:
        """Return what the network stands for, in the shape and the kind of the array it was learned from.

        NumPy gives NumPy, torch a tensor on the device of the network, `xarray.DataArray` one with its names,
        coordinates and attributes, a pandas frame that is a matrix a frame. What has no such kind (files,
        zarr, dask, lists of entries) gives NumPy. A result read from a file answers as the saved one.
        """
        dense = self._mean(lambda m: m._dense())
        return present(dense, self.container, self.axes)
