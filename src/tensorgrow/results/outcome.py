"""What comes back from a run, and its file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch

from ..algebra.uncertainty import Uncertainty
from ..data.axes import Axes, Container, default_names
from ..data.tensorization import Tensorization
from ..errors import OptionError, check_bounds, counted
from ..files import check_fields, check_value, write_file
from ..network import TensorNetwork
from ..steps import Step, StopReason
from .accuracy import Errors, read_errors
from .answers import Answers
from .path import PathPoint, best_on_path, pack_path, unpack_path

if TYPE_CHECKING:
    import matplotlib.axes

    from ..tasks.update import UpdateKeywords

RESULT_KIND = "result"
# ``info["method"]`` of a member of a committee that is no network: it interpolates between known neighbours.
INTERPOLATION = "thin plate"
# What of `Result.info` is computed with.
_INFO: dict[str, Any] = {
    "num_parameters": int,
    "seconds": float,
    "source": Mapping[str, Any],
    "container": Container,
    "bounds": list[float | None],
    "member_weights": list[float],
    "noise_power": float,
}


@dataclass(frozen=True)
class Result(Answers):
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
        error. One of them may interpolate (``info["method"]`` is "thin plate"): its network is a vector of
        all entries, and counts as many parameters as entries are known.
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
        from ..tasks.update import update

        return update(self, x, mask, **keywords)

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
        from ..plotting import plot_result

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
        from ..report import write_report

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
        from ..report import result_html

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
                check_fields(read_errors(header)),
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


def networks_among(members: Sequence[Result]) -> list[Result]:
    """Members of a committee that were learned; the others interpolate."""
    return [m for m in members if m.info.get("method") != INTERPOLATION]


def best_network(members: Sequence[Result]) -> Result:
    """Return the member with the least held-out error among those that were learned."""
    return min(networks_among(members), key=lambda m: m.errors.measure)
