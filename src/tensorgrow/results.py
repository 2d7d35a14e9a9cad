"""What comes back: the network, its errors, and the error-size path."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import torch

from .algebra.uncertainty import Uncertainty, check_level, combine
from .data.arrays import as_tensor
from .data.axes import Axes, Container, container_of, default_names, is_frame, present, present_like
from .data.tensorization import Tensorization
from .errors import DataError, OptionError, check_bounds, counted, import_package
from .files import check_fields, check_value, write_file
from .losses import as_loss
from .network import TensorNetwork
from .steps import Step, StopReason
from .structure import Structure

if TYPE_CHECKING:
    import matplotlib.axes

    from .tasks.update import UpdateKeywords

RESULT_KIND = "result"

ErrorKind = Literal["relative", "deviance", "loss", "nats"]


ERROR_NAMES: dict[ErrorKind, str] = {
    "relative": "relative error",
    "deviance": "relative deviance",
    "loss": "loss",
    "nats": "nats",
}


@dataclass(frozen=True)
class Errors:
    """How well a network does, and what kind of number says so.

    Attributes
    ----------
    total
        On all data the network was fitted to in the end.
    kind
        "relative": the norm of the residual relative to that of the data. "deviance": root of the deviance
        relative to that of a network of zeros. "loss": the value of a loss. "nats": a mean negative
        log-likelihood.
    train, validation
        Where data was held out: on the fitted and on the held-out data, before the last fit to both.
    test
        Where the truth is known: on entries that were not observed.
    """

    total: float
    kind: ErrorKind = "relative"
    train: float | None = None
    validation: float | None = None
    test: float | None = None

    @property
    def name(self) -> str:
        """What to call the numbers in texts, tables and pictures."""
        return ERROR_NAMES[self.kind]

    @property
    def is_relative(self) -> bool:
        """Whether the numbers are relative to the data: 0 is perfect, 1 is what a network of zeros has."""
        return self.kind in ("relative", "deviance")

    @property
    def measure(self) -> float:
        """What `max_error` is compared with: the error on held-out data where there is some."""
        return self.total if self.validation is None else self.validation


@dataclass(frozen=True)
class PathPoint:
    """A network on the error-size path.

    Attributes
    ----------
    error
        On held-out data where there is some; of the kind that `Errors.kind` of the result names.
    counted
        Parameters, where the network also holds fixed numbers.
    """

    network: TensorNetwork
    error: float
    counted: int | None = None

    @property
    def num_parameters(self) -> int:
        return self.network.num_parameters if self.counted is None else self.counted


def add_to_path(path: list[PathPoint], point: PathPoint) -> None:
    """Insert a point unless another beats it, and drop those it beats: larger and no better."""
    for other in path:
        if other.num_parameters <= point.num_parameters and other.error <= point.error:
            return
    path[:] = [p for p in path if p.num_parameters < point.num_parameters or p.error < point.error]
    path.append(point)
    path.sort(key=lambda p: p.num_parameters)


def pack_path(
    path: Sequence[PathPoint], prefix: str = ""
) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Header and named tensors of a path for a file; `unpack_path` is its inverse."""
    points: list[dict[str, Any]] = []
    tensors: dict[str, torch.Tensor] = {}
    for n, point in enumerate(path):
        structure, cores = point.network.pack(f"{prefix}path.{n}")
        counted = {} if point.counted is None else {"num_parameters": point.counted}
        points.append({"structure": structure, "relative_error": point.error, **counted})
        tensors |= cores
    return points, tensors


def unpack_path(
    points: Sequence[Mapping[str, Any]], tensors: Mapping[str, torch.Tensor], prefix: str = ""
) -> list[PathPoint]:
    """Rebuild a path from what `pack_path` returned."""
    return [
        PathPoint(
            TensorNetwork.unpack(p["structure"], tensors, f"{prefix}path.{n}"),
            p["relative_error"],
            p.get("num_parameters"),
        )
        for n, p in enumerate(points)
    ]


def best_on_path(
    path: Sequence[PathPoint], max_error: float | None, max_parameters: int | None
) -> PathPoint | None:
    """Return the smallest point within both limits; without `max_error`, the best one. None without any."""
    fitting = [
        p
        for p in path
        if (max_error is None or p.error <= max_error)
        and (max_parameters is None or p.num_parameters <= max_parameters)
    ]
    if not fitting:
        return None
    return fitting[-1] if max_error is None else fitting[0]


@dataclass(frozen=True)
class Result:
    """A learned network, the path to it, and why the run stopped.

    Attributes
    ----------
    network
        The network.
    errors
        Numbers and what kind they are. `relative_error` is ``||x - x_hat|| / ||x||``, recomputed in double
        precision from the residual, where the run minimised that.
    history
        One `Step` per move.
    stop
        Why the run ended.
    path
        Networks that no other visited one beats in both size and error, by size.
    info
        Options, seed and library versions of the run. Where its cores hold fixed numbers that are no
        parameters (CP spells its hyperedge out by copy tensors), ``info["num_parameters"]`` is the honest
        count.
    tensorization
        How the tensor was made from an array, where it was: `to_array` inverts it. Set it with
        ``dataclasses.replace(result, tensorization=...)``; it is saved in the file.
    axes
        Names and labels of the axes of the data, where they are known; saved in the file.
    members
        Of a committee: the results it consists of. `predict`, `fill` and `to_array` give their mean by
        `member_weights`; the errors are those of that mean, and `num_parameters` counts all of them.
        Everything else, such as `network`, `history` and `path`, is of the member with the least held-out
        error.
    uncertainty
        Of a completion that held entries out: what `std` and intervals are computed from.
    """

    network: TensorNetwork
    errors: Errors
    history: tuple[Step, ...]
    stop: StopReason
    path: tuple[PathPoint, ...] = field(repr=False, default=())
    info: Mapping[str, Any] = field(repr=False, default_factory=dict)
    tensorization: Tensorization | None = field(repr=False, default=None)
    axes: Axes | None = field(repr=False, default=None)
    members: tuple[Result, ...] = field(repr=False, default=())
    uncertainty: Uncertainty | None = field(repr=False, default=None)

    @property
    def relative_error(self) -> float:
        """Error relative to the data; of a completion, on all observed entries after the last fit."""
        if not self.errors.is_relative:
            raise AttributeError(
                f"this result has no relative error: the run minimised a loss ({self.errors.kind}); "
                "errors.total is its value"
            )
        return self.errors.total

    @property
    def train_error(self) -> float | None:
        """On the fitted data, before the last fit to all of it; None where nothing was held out."""
        return self.errors.train

    @property
    def validation_error(self) -> float | None:
        """On the held-out data, before the last fit to all of it; None where nothing was held out."""
        return self.errors.validation

    @property
    def test_error(self) -> float | None:
        """On entries that were not observed; None where the truth is not known."""
        return self.errors.test

    @property
    def structure(self) -> Structure:
        """Structure of the network."""
        return self.network.structure

    @property
    def num_parameters(self) -> int:
        """Size of the network; of a CP decomposition, of its factors."""
        return int(self.info.get("num_parameters", self.network.num_parameters))

    @property
    def compression_ratio(self) -> float:
        """Dense entries per parameter."""
        return self.structure.compression_ratio * (self.network.num_parameters / self.num_parameters)

    @property
    def num_bytes(self) -> int:
        """Bytes of the parameters, in the precision of the network."""
        return self.num_parameters * self.network.cores[0].element_size()

    @property
    def data_bytes(self) -> int:
        """Bytes of the array as it was given: of a picture as its pixels, else in the network's precision."""
        how, source = self.tensorization, self.info.get("source") or {}
        entries = self.structure.num_entries if how is None else math.prod(how.shape)
        levels = source.get("levels")
        each = self.network.cores[0].element_size() if levels is None else 1 if levels < 256 else 2
        return entries * each

    def at(self, *, max_error: float | None = None, max_parameters: int | None = None) -> TensorNetwork:
        """Return the smallest visited network with at most this error, or the best one of at most this size.

        Errors are those measured during the run.
        """
        if max_error is None and max_parameters is None:
            raise OptionError("give max_error or max_parameters")
        point = best_on_path(self.path, max_error, max_parameters)
        if point is None and not self.path:
            raise OptionError(
                "this result was saved without a path; it has only `network`. Save the whole run, with "
                "--history on the command line or save(path) in Python"
            )
        if point is None:
            least = min(self.path, key=lambda p: p.error)
            small = min(self.path, key=lambda p: p.num_parameters)
            limits = {"max_error": max_error, "max_parameters": max_parameters}
            wanted = " and ".join(f"{name}={limit}" for name, limit in limits.items() if limit is not None)
            raise OptionError(
                f"no network on the path has {wanted}; "
                f"the path goes from {small.num_parameters} parameters (error {small.error:.3g}) to "
                f"{least.num_parameters} (error {least.error:.3g})"
            )
        return point.network

    @property
    def leg_names(self) -> tuple[str, ...] | None:
        """Names of the dangling legs: see `Axes.leg_names`; None where no axis has a name or was cut."""
        how, axes = self.tensorization, self.axes
        if axes is None:
            if how is None or (how.flattened is None and all(len(digits) == 1 for digits in how.digits)):
                return None
            axes = Axes(default_names(len(how.shape)))
        names = axes.leg_names(how)
        return names if len(names) == self.structure.order else None

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

    def _mean(self, answer: Callable[[Result], torch.Tensor]) -> torch.Tensor:
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

    def update(self, x: Any, mask: Any = None, **keywords: Unpack[UpdateKeywords]) -> Result:
        """Return a result that knows new data too: more entries, new slices along an axis, a later window.

        It starts from this network: the slices of before are found by their labels, or by their positions,
        and new ones begin as the mean of the others, or where sweeps are not cheap as what fits them best. A
        few sweeps follow, and growths for as long as they lower the error on held-out entries. That takes a
        small part of the time of a new run.

        Parameters
        ----------
        x, mask
            As for `complete`. Best all data that still counts, old and new: a result does not hold the data
            it was made from. Arrays grow at the end of their axes; where there are labels, new ones are new
            slices, and slices whose labels are gone are dropped. A table has the columns of the first one.
        forget
            Slices that are gone, by the number or the name of an axis: ``{"day": 1}`` drops the first day.
            Positions in `x` count from the first slice that is left.
        only_new
            Whether `x` lists only what is new. Entries of this network at random positions then stand for the
            data it was made from, as many as that had (``info["remembered"]``), and no slice is dropped but
            by `forget`. By default where `x` has less than half as many entries of old slices as were known.
        loss, bounds
            By default those of this result. A loss with parameters of its own, or one of yours, must be
            given again.
        priors
            As for `complete`; those of this result must be given again.
        weights, validation, truth
            As for `complete`. Only entries of `x` are held out. This network has seen some of them, so that
            the error on them is a little too good.
        effort, options
            Growths in a row that may fail to pay: 1 with "fast", 2 with "balanced"; "thorough" searches as
            `complete` does. The ridge, and the strength of the same priors, stay unless the data grew or
            shrank by more than a quarter.
        max_error, max_parameters, max_steps, max_seconds, edges, split_nodes
            As for `complete`; ``max_steps=0`` only fits.
        random_state, device, dtype, memory_limit, progress, callbacks, checkpoint
            As for `complete`.

        Returns
        -------
        Result
            Its history is that of the update; ``info["updates"]`` counts updates.

        Examples
        --------
        >>> import numpy as np, tensorgrow as tg
        >>> x = np.einsum("i,j,k->ijk", np.arange(1.0, 7.0), np.linspace(1, 2, 8), np.ones(9))
        >>> mask = np.random.default_rng(0).random(x.shape) < 0.5
        >>> week = tg.complete(x[:, :7], mask[:, :7], random_state=0)
        >>> r = week.update(x, mask)  # one day more
        >>> r.structure.dims, bool(np.abs(r.fill(x, mask) - x).max() < 1e-6)
        ((6, 8, 9), True)
        """
        from .tasks.update import update

        return update(self, x, mask, **keywords)

    def to_array(self) -> Any:
        """Return what the network stands for, in the shape and the kind of the array it was learned from.

        NumPy gives NumPy, torch a tensor on the device of the network, `xarray.DataArray` one with its names,
        coordinates and attributes, a pandas frame that is a matrix a frame. What has no such kind (files,
        zarr, dask, lists of entries) gives NumPy. A result read from a file answers as the saved one.
        """
        dense = self._mean(lambda m: m._dense())
        return present(dense, self.container, self.axes)

    def save(self, path: str | Path, *, whole: bool = True) -> None:
        """Write network, history and options to one safetensors file; `tensorgrow.load` reads it.

        Parameters
        ----------
        path
            The file.
        whole
            Also write the networks of the path, which are most of the file. Without them `at` has nothing to
            choose from; everything else is the same.
        """
        document, tensors = self.pack(whole=whole)
        packed = [name for name in ("history", "members") if name in document and not whole]
        write_file(path, RESULT_KIND, document, tensors, packed=tuple(packed))

    def pack(self, prefix: str = "", *, whole: bool = True) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Header and named tensors for a file; `unpack` is its inverse."""
        header, tensors = self.network.pack(f"{prefix}core")
        points, cores = pack_path(self.path if whole else (), prefix)
        tensors |= cores
        document = {
            "network": header,
            "errors": {**self.errors.__dict__},
            "stop": self.stop.name,
            "history": [s.to_dict() for s in self.history],
            "path": points,
            "info": dict(self.info),
        }
        if self.tensorization is not None:
            document["tensorization"] = self.tensorization.to_dict()
        if self.axes is not None:
            document["axes"] = self.axes.to_dict()
        if self.uncertainty is not None:
            document["uncertainty"], numbers = self.uncertainty.pack(prefix)
            tensors |= numbers
        if self.members:
            packed = [m.pack(f"{prefix}member.{n}.", whole=whole) for n, m in enumerate(self.members)]
            document["members"] = [member for member, _ in packed]
            for _, cores in packed:
                tensors |= cores
        return document, tensors

    # -- for people ------------------------------------------------------------------------------------
    # Pictures and pages know results, not the other way round: these methods load them when called (an
    # exception in the layering contract).

    def plot(
        self, *, rivals: Mapping[str, Any] | None = None
    ) -> tuple[matplotlib.axes.Axes, matplotlib.axes.Axes]:
        """Draw the network and the error against the number of parameters (extra `plot`).

        Parameters
        ----------
        rivals
            Other methods by name: a `Result` of theirs, parameters and error as in ``(1968, 0.08)``, or a
            list of such pairs.

        Returns
        -------
        tuple of matplotlib axes
            Of the network and of the curve; ``axes[0].figure.savefig("run.png")`` saves them.
        """
        from .plotting import plot_result

        return plot_result(self, rivals=rivals)

    def report(
        self,
        path: str | Path,
        *,
        title: str | None = None,
        image: Callable[[np.ndarray[Any, Any]], Any] | Sequence[int] | None = None,
        truth: Any = None,
        observed: Any = None,
        rivals: Mapping[str, Any] | None = None,
        saved_as: str | None = None,
    ) -> Path:
        """Write one self-contained HTML page about the run.

        Parameters
        ----------
        path
            The file.
        title
            Heading of the page.
        image
            Where the tensor is a picture: a function from the dense tensor (NumPy) to an array of shape
            ``(height, width)`` or ``(height, width, 3)``, or such a shape (row-major) of the array. The page
            then shows the reconstruction at each step.
        truth
            The tensor itself, or the array it was made from: the page then says the peak signal to noise and
            the largest deviation, and of pictures shows the original and the difference.
        observed
            Of a completion: the same with NaN where entries are missing. The page then shows what was known
            and filled in, beside what interpolation makes of it.
        rivals
            Other methods on the error curve and in a table, as for `plot`.
        saved_as
            The file from which the page says the run can be loaded; by default the one of the same name that
            ends in .safetensors.

        Returns
        -------
        Path
            The file written.
        """
        from .report import write_report

        return write_report(
            self,
            path,
            title=title,
            image=image,
            truth=truth,
            observed=observed,
            rivals=rivals,
            saved_as=saved_as,
        )

    def _repr_html_(self) -> str:
        """Numbers and a drawing, for notebooks."""
        from .report import result_html

        return result_html(self)

    @classmethod
    def unpack(
        cls, header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], prefix: str = ""
    ) -> Result:
        """Rebuild a result from the contents of a file."""
        how, axes, known = (header.get(name) for name in ("tensorization", "axes", "uncertainty"))
        network = TensorNetwork.unpack(header["network"], tensors, f"{prefix}core")
        for name, kind in _INFO.items():
            check_value(f"{name} of a run", header["info"].get(name), kind | None)
        check_bounds(header["info"].get("bounds"))
        return check_fields(
            cls(
                network,
                check_fields(_read_errors(header)),
                tuple(check_fields(Step.from_dict(s)) for s in header["history"]),
                StopReason[header["stop"]],
                tuple(map(check_fields, unpack_path(header["path"], tensors, prefix))),
                header["info"],
                None if how is None else Tensorization.from_dict(how),
                None if axes is None else Axes.from_dict(axes),
                tuple(
                    cls.unpack(member, tensors, f"{prefix}member.{n}.")
                    for n, member in enumerate(header.get("members", ()))
                ),
                None
                if known is None
                else check_fields(Uncertainty.unpack(known, tensors, network.structure, prefix)),
            )
        )

    def __repr__(self) -> str:
        e = self.errors
        parts = {"train": e.train, "validation": e.validation, "test": e.test}
        more = ", ".join(f"{name} {value:.4g}" for name, value in parts.items() if value is not None)
        committee = f"{len(self.members)} members, " if self.members else ""
        gaps = self.info.get("gaps", "random")
        pattern = "" if gaps == "random" else f", gaps: {gaps}"
        return (
            f"Result({committee}{self.num_parameters:,} parameters, {e.name} {e.total:.4g}"
            f"{f' ({more})' if more else ''}{pattern}, {self.compression_ratio:.3g}x smaller, "
            f"{counted(len(self.history), 'step')}, stop={self.stop.name})"
        )


# What of `Result.info` is computed with.
_INFO: dict[str, Any] = {
    "num_parameters": int,
    "seconds": float,
    "source": Mapping[str, Any],
    "container": Container,
    "bounds": list[float | None],
    "member_weights": list[float],
}


def _read_errors(header: Mapping[str, Any]) -> Errors:
    """Errors of a file; in format version 1 they have no kind, and the total stands beside them."""
    if "relative_error" not in header:
        return Errors(**header["errors"])
    parts = {k.removesuffix("_error"): v for k, v in header.get("errors", {}).items()}
    kinds: dict[str, ErrorKind] = {"density": "nats", "loss": "deviance", "training": "loss"}
    kind: ErrorKind = next((kinds[name] for name in kinds if name in header["info"]), "relative")
    return Errors(header["relative_error"], kind, **parts)
