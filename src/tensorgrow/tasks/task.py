"""One run: what differs between forms of data is a `Task`; `run_task` does the rest."""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from numbers import Integral
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from .._version import __version__
from ..callbacks.checkpoint import Checkpoint
from ..callbacks.signals import Interrupts
from ..data.axes import Axes, Container
from ..data.devices import one_thread
from ..data.tensorization import Tensorization
from ..errors import DataError, FileFormatError, OptionError
from ..network import TensorNetwork
from ..results import Errors, PathPoint, Result
from ..search import AnySearch, EdgePolicy, NetworkSearch, NetworkState, Start, run
from ..steps import Step, StopReason
from ..structure import Structure
from .request import Audience, Request

S = TypeVar("S", bound=AnySearch)
R = TypeVar("R")
AnyNetworkSearch = NetworkSearch[object, NetworkState]
N = TypeVar("N", bound=AnyNetworkSearch)

# Share of a time limit by which the end of a run may exceed it: a last fit matters more than the last growth.
LATE_SHARE = 0.05
# Numbers in samples up to which one thread is faster.
FEW_NUMBERS = 1_000_000


class Task(ABC, Generic[S, R]):
    """What differs between runs: the search, what identifies it, and the result."""

    def trivial(self) -> R | None:
        """Return a result that needs no search; None where one is needed."""
        return None

    @abstractmethod
    def search(self) -> S:
        """Build a search that is ready to run; refuse what cannot work."""

    @abstractmethod
    def identity(self, search: S) -> Mapping[str, object]:
        """Return what a resumed run must share with the one that wrote the checkpoint, by name."""

    def check_resumed(self, search: S) -> None:
        """Refuse a state from a file that does not fit the data, although its identity does."""

    @abstractmethod
    def finish(self, search: S) -> R:
        """Do the last fit and report."""

    def threads(self) -> AbstractContextManager[None]:
        """Limit threads that would wait for each other longer than they compute."""
        return nullcontext()


def run_task(task: Task[S, R], audience: Audience) -> R:
    """Search, resuming from a checkpoint; report every step; Ctrl-C ends the search with its best so far.

    Once the search is over signals are held back until the result is complete, except in a last fit.
    """
    # Products of small float32 matrices set the "invalid" flag now and then although every entry is finite
    # (vector registers that are not full); losses that really are not finite are noticed by the solvers.
    with task.threads(), np.errstate(invalid="ignore"), Interrupts() as interrupts:
        trivial = task.trivial()
        if trivial is not None:
            return trivial
        search = task.search()
        listeners = audience.listeners()
        if audience.checkpoint is not None:
            checkpoint = Checkpoint(audience.checkpoint, task.identity(search))
            if checkpoint.load(search):
                task.check_resumed(search)
            listeners.insert(0, checkpoint)
        search.began = audience.begin
        run(search, listeners, interrupts)
        result = task.finish(search)
        if isinstance(result, Result):  # whatever the search took its error for
            reason = StopReason.INTERRUPTED if interrupts.count else result.stop
            result = replace(result, stop=search.limits.settle(reason, result.errors.measure))
        return result


class NetworkTask(Task[N, Result]):
    """A run that ends with a network for data of some form.

    Attributes
    ----------
    shape
        Legs of the network.
    home
        Device the result goes to.
    structure
        Fit this structure instead of learning one.
    draws_split
        Whether random numbers may also say which data is held out.
    axes, container
        Names and labels of the user's axes, and the kind of array that the user gave.
    how
        How the user's array became a tensor of that shape; None where it is the tensor.
    """

    request: Request
    shape: tuple[int, ...]
    home: torch.device
    generator: torch.Generator
    structure: Structure | None = None
    draws_split: bool = False
    axes: Axes | None = None
    container: Container = "numpy"
    how: Tensorization | None = None

    @property
    @abstractmethod
    def probe(self) -> torch.Tensor:
        """A tensor of the dtype and on the device that cores are computed with."""

    @property
    def exponent(self) -> int:
        """The power of two that the data was divided by; the network is multiplied by it at the end."""
        return 0

    @property
    def loss_scale(self) -> float:
        """What losses are multiplied by, to have them in the units of the user."""
        return 2.0**self.exponent

    @property
    def seed(self) -> int | None:
        """The seed that repeats the run; None where no number does.

        Without a seed from the user the split has a generator of its own (`Request.generators`), so that the
        seed of the search alone does not repeat the run.
        """
        random_state = self.request.random_state
        if isinstance(random_state, Integral):
            return int(random_state)
        return self.generator.initial_seed() if random_state is None and not self.draws_split else None

    @property
    def is_zero(self) -> bool:
        """Whether all data is zero."""
        return False

    @property
    def policy(self) -> EdgePolicy:
        """The edges that may be used."""
        return self.request.policy(len(self.shape))

    @property
    def first(self) -> Structure:
        """The structure that the search starts with."""
        if self.structure is not None:
            return self.structure
        init = self.request.init
        return self.blank if init is None else init.structure

    @property
    def blank(self) -> Structure:
        """The structure of random starts: of rank one, but for internal nodes of a graph that must stay.

        No edge of such a node can grow alone.
        """
        graph = self.request.edges
        if not isinstance(graph, Structure):
            return Structure.rank_one(self.shape)
        ranks = {e: 2 for e in graph.edges if graph.is_internal(e[1])}
        return Structure(self.shape, ranks, num_nodes=graph.num_nodes)

    @abstractmethod
    def fingerprint(self) -> Mapping[str, object]:
        """Return numbers that tell this data from other data, by name."""

    def about(self) -> Mapping[str, object]:
        """Return what else to note of the run in ``Result.info``."""
        return {}

    def check(self) -> None:
        """Refuse edges that do not exist, a start that does not fit, and a budget that is too small."""
        structure, init = self.structure, self.request.init
        if structure is not None and self.shape != structure.dims:
            raise DataError(f"the tensor has shape {self.shape}, the structure is for {structure.dims}")
        _ = self.policy
        if self.request.bounds is not None and self.probe.is_complex():
            raise OptionError(f"bounds={self.request.bounds} go with real data; this is complex")
        if init is not None:
            check_init(init, self.shape, self.probe)
        self.request.limits.check_size(self.first.num_parameters)
        if structure is not None and init is not None and init.structure != structure:
            raise OptionError(f"init has the structure {init.structure}, not the one to fit: {structure}")

    def trivial(self) -> Result | None:
        self.check()
        return self.zero() if self.is_zero else None

    def zero(self) -> Result:
        """Return the result for data that is zero throughout."""
        structure = self.first
        cores = [torch.zeros(s, dtype=self.probe.dtype, device=self.home) for s in structure.core_shapes]
        network = TensorNetwork(structure, cores)
        step = Step(0, "start", None, network.num_parameters, 0.0, 0.0, None, 0.0, structure)
        path = (PathPoint(network, 0.0),)
        notes = describe(self.probe)
        return self.build(network, Errors(0.0), (step,), StopReason.TARGET_REACHED, path, notes)

    def build(
        self,
        network: TensorNetwork,
        errors: Errors,
        steps: tuple[Step, ...],
        stop: StopReason,
        path: tuple[PathPoint, ...],
        notes: dict[str, Any],
    ) -> Result:
        """Return a result that knows the user's axes; every result of a task is made here."""
        if self.container != "numpy":
            notes["container"] = self.container
        if self.request.bounds is not None:
            notes["bounds"] = list(self.request.bounds)
        return Result(network, errors, steps, stop, path, notes, self.how, self.axes)

    def start(self) -> Start:
        """Return what the search starts from, in the units it computes in."""
        init = self.request.init
        init = None if init is None else init.times_power(-self.exponent)
        return Start(init, self.probe.dtype, self.probe.device, blank=self.blank)

    def identity(self, search: N) -> Mapping[str, object]:
        request, policy = self.request, self.policy
        return {
            "shape": list(self.shape),
            "dtype": str(self.probe.dtype),
            "max_error": request.limits.max_error,
            "max_parameters": request.limits.max_parameters,
            "edges": None if policy.pairs is None else sorted([list(e) for e in policy.pairs]),
            "split_nodes": request.splits_nodes(policy),
            "options": request.options.to_dict(),
            "training": None if request.training is None else request.training.to_dict(),
            "structure": None if self.structure is None else self.structure.to_dict(),
            "tensorization": None if self.how is None else self.how.to_dict(),
            **self.fingerprint(),
        }

    def check_resumed(self, search: N) -> None:
        state = search.state
        fitted = [f.network for f in (state.current, state.best) if f is not None]
        for network in (*fitted, *(p.network for p in state.path)):
            if network.structure.dims != self.shape or network.dtype != self.probe.dtype:
                raise FileFormatError(
                    f"the checkpoint is damaged: it holds a {network!r:.200}, the run is about {self.shape}"
                )

    def result(
        self,
        search: N,
        network: TensorNetwork,
        errors: Errors,
        *,
        history: tuple[Step, ...] | None = None,
        stop: StopReason | None = None,
        seconds: float | None = None,
        **info: object,
    ) -> Result:
        """Return a network in the units and on the device of the user, with what the search did.

        Parameters
        ----------
        network
            In the units of the search.
        history, stop, seconds
            By default those of the search.
        info
            What to note besides `about`.
        """
        stop = stop or search.state.stop
        assert stop is not None
        path = (PathPoint(self.bring_home(p.network), p.error, p.counted) for p in search.state.path)
        notes = describe(
            self.probe,
            effort=self.request.effort,
            options=self.request.options.to_dict(),
            **({} if self.request.training is None else {"training": self.request.training.to_dict()}),
            seconds=search.state.elapsed if seconds is None else seconds,
            seed=self.seed,
            **self.about(),
            **info,
        )
        steps = self.history(search) if history is None else history
        return self.build(self.bring_home(network), errors, steps, stop, tuple(path), notes)

    def bring_home(self, network: TensorNetwork) -> TensorNetwork:
        """Return a network in the units and on the device of the user."""
        return network.times_power(self.exponent).to(self.home)

    def history(self, search: N) -> tuple[Step, ...]:
        """Return the steps of a search in the units of the data."""
        scale = self.loss_scale
        return tuple(s if scale == 1.0 else replace(s, loss=s.loss * scale) for s in search.state.steps)


def check_init(init: TensorNetwork, shape: tuple[int, ...], probe: torch.Tensor) -> None:
    """Refuse a start that does not fit the data."""
    if not isinstance(init, TensorNetwork):
        raise OptionError(f"init must be a TensorNetwork, not {type(init).__name__}")
    if init.structure.dims != shape:
        raise OptionError(f"init is a network over {init.structure.dims}, but the tensor has shape {shape}")
    if init.is_complex and not probe.is_complex():
        raise OptionError("init is complex but the data is real; pass a real network or dtype=complex")
    if not all(bool(torch.isfinite(c).all()) for c in init.cores):
        raise OptionError("init has entries that are not finite")


def sample_flops(samples: torch.Tensor) -> float:
    """Arithmetic of a sweep, as far as "auto" takes a GPU for it: from three million numbers on."""
    return 10.0 * samples.numel()


def limit_threads(samples: torch.Tensor) -> AbstractContextManager[None]:
    """Compute on one thread where there are few samples."""
    return one_thread() if samples.numel() <= FEW_NUMBERS else nullcontext()


def deadline_of_last_fit(search: AnySearch) -> float:
    """Return when the fit after a search must end; the error is to be computed after it."""
    return search.context.deadline + LATE_SHARE * (search.limits.max_seconds or 0.0)


def describe(like: torch.Tensor, **more: Any) -> dict[str, Any]:
    """Return versions, device and whatever else describes a run."""
    return {
        "library_version": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": str(like.device),
        "dtype": str(like.dtype),
        **more,
    }
