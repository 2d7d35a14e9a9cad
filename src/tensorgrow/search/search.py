"""What every search shares: one move after the other until a limit is met."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import torch

from ..errors import FileFormatError
from ..network import TensorNetwork
from ..results import PathPoint, add_to_path
from ..solvers.deadline import OutOfTime
from ..solvers.sweep_graphs import SweepGraphs
from ..steps import Record, Step, StopReason
from ..structure import Edge, Structure
from .limits import Limits
from .state import Fitted, Json, NetworkState, SearchState

# A lower error counts as a gain from this share on: less than that another sweep may gain as well.
LEAST_GAIN = 1e-4

P_co = TypeVar("P_co", covariant=True)
S_co = TypeVar("S_co", bound=SearchState, covariant=True)
N_co = TypeVar("N_co", bound=NetworkState, covariant=True)


@dataclass
class Context:
    """What changes while a problem stays the same: random numbers and the time that is left.

    Attributes
    ----------
    is_converged
        Whether the last fit ended by itself, and not by its number of sweeps or by the time.
    flops
        Arithmetic of all sweeps so far, as estimated.
    graphs
        Sweeps that a GPU can repeat.
    """

    generator: torch.Generator
    deadline: float = math.inf
    is_converged: bool = True
    flops: float = 0.0
    graphs: SweepGraphs = field(default_factory=SweepGraphs, repr=False)

    @property
    def is_out_of_time(self) -> bool:
        return time.perf_counter() > self.deadline

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, none once it is past; None where there is no deadline."""
        return None if math.isinf(self.deadline) else max(self.deadline - time.perf_counter(), 0.0)

    def noise(self, scale: float) -> float:
        """A log-normal factor that randomises scores."""
        return math.exp(scale * float(torch.randn((), generator=self.generator, dtype=torch.float64)))

    def choose(self, high: int) -> int:
        """A whole number from 1 to `high`."""
        return 1 + int(torch.randint(high, (), generator=self.generator))


class Search(ABC, Generic[P_co, S_co]):
    """Iterator of steps; pause it, look at `state`, resume it.

    Parameters
    ----------
    problem
        What is searched for; it never changes.
    limits
        When to stop.
    state
        Where to start or to resume.
    context
        Random numbers and the deadline.

    Attributes
    ----------
    uses
        Names of the `GreedyOptions` that the search reads; a task refuses others.
    began
        When the task began, a value of ``time.perf_counter()``: what it did before counts as time of the run.
    hit_limit
        Whether steps or time ended the run, so that it can be resumed with more of them.
    """

    uses: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, problem: P_co, limits: Limits, state: S_co, context: Context) -> None:
        self.problem = problem
        self.limits = limits
        self.state = state
        self.context = context
        self.hit_limit = False
        self.began: float | None = None
        self._begin = 0.0

    def __iter__(self) -> Iterator[Record]:
        """Advance until done; yield the steps of every move."""
        state = self.state
        begin, self.began = time.perf_counter() if self.began is None else self.began, None
        self._begin = begin - state.elapsed
        limit = self.limits.max_seconds
        self.context.deadline = math.inf if limit is None else self._begin + limit
        while state.stop is None:
            before = len(state.steps)
            try:
                with state.transaction(self.context.generator):
                    self._advance()
            except OutOfTime:
                if not self.has_answer:
                    raise
                self._break_off()
            state.elapsed = self.seconds
            yield from state.steps[before:]

    def pack(self) -> tuple[dict[str, Json], dict[str, torch.Tensor]]:
        """Header and tensors of a file from which `resume` continues."""
        header, tensors = self.state.pack()
        return header, {**tensors, "generator": self.context.generator.get_state()}

    def resume(self, header: Mapping[str, Json], tensors: dict[str, torch.Tensor]) -> None:
        """Continue from what `pack` returned."""
        self.state = type(self.state).unpack(header, tensors)
        if self.state.phase not in self._phases:
            raise FileFormatError(f"the file is damaged: there is no phase {self.state.phase!r:.80}")
        self.context.generator.set_state(tensors["generator"])

    @property
    def seconds(self) -> float:
        """Since the run began, those before a resume included."""
        return time.perf_counter() - self._begin

    @property
    @abstractmethod
    def has_answer(self) -> bool:
        """Whether there is something to return if the run ends now."""

    @property
    def patience(self) -> int | None:
        """Steps without a gain after which the run ends; None where that does not end it."""
        return None

    @property
    def best_size(self) -> int | None:
        """Parameters of the best result so far; None where the last step has it."""
        return None

    def describe(self) -> str:
        """The best result so far in a few words."""
        return ""

    def wind_down(self) -> bool:
        """A listener wants to stop. True: the run ends here; False: it first does what it must still do."""
        return True

    @property
    @abstractmethod
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        """The move of every phase."""

    def _advance(self) -> None:
        state = self.state
        if state.phase != "start":
            count = sum(s.kind != "start" for s in state.steps)
            limit = self.limits.stop_reason(count, self.seconds)
            if limit is not None:
                self.hit_limit = True
                self._end(limit)
                return
        self._phases[state.phase]()

    def _break_off(self) -> None:
        """End after a move that came too late and was undone."""
        self.hit_limit = True
        self._end(StopReason.MAX_SECONDS)

    def _end(self, reason: StopReason) -> None:
        self.state.stop = reason


AnySearch = Search[object, SearchState]
"""Any run, as those who listen to it see it."""


@dataclass(frozen=True)
class Start:
    """What a search for a network starts from.

    Attributes
    ----------
    init
        A network; None: a random one of rank one.
    proposals
        Networks that the data suggests: one after the other they come before random ones.
    blank
        Structure of a random one, where it is not of rank one.
    """

    init: TensorNetwork | None = None
    dtype: torch.dtype = torch.float64
    device: torch.device | str = "cpu"
    proposals: tuple[TensorNetwork, ...] = ()
    blank: Structure | None = None

    def random(self, structure: Structure, generator: torch.Generator) -> TensorNetwork:
        """Random cores for a structure."""
        return TensorNetwork.random(structure, random_state=generator, dtype=self.dtype, device=self.device)

    def first(self, dims: tuple[int, ...], generator: torch.Generator, number: int = 0) -> TensorNetwork:
        """The network to start from, the first time or once more."""
        if self.init is not None:
            return self.init.to(self.device, self.dtype)
        if number < len(self.proposals):
            return self.proposals[number].to(self.device, self.dtype)
        return self.random(self.blank or Structure.rank_one(dims), generator)


class NetworkSearch(Search[P_co, N_co]):
    """A search whose steps are networks; see `Search`."""

    def __init__(
        self, problem: P_co, limits: Limits, state: N_co, context: Context, start: Start | None = None
    ) -> None:
        super().__init__(problem, limits, state, context)
        self.start = Start() if start is None else start

    def resume(self, header: Mapping[str, Json], tensors: dict[str, torch.Tensor]) -> None:
        super().resume(header, tensors)
        if self.state.phase != "start" and self.state.current is None:
            raise FileFormatError("the file is damaged: the run has begun, but there is no network")

    @property
    def answer(self) -> Fitted | None:
        """Best network so far: smallest under the target, else lowest loss within the budget."""
        return self.state.best or self.state.current

    @property
    def has_answer(self) -> bool:
        return self.answer is not None

    @property
    def best_size(self) -> int | None:
        return None if self.state.best is None else self.state.best.size

    def describe(self) -> str:
        return "" if self.answer is None else repr(self.answer.network.structure)

    @property
    def current(self) -> Fitted:
        """The network that the next move starts from; there is one after the first move."""
        assert self.state.current is not None
        return self.state.current

    @property
    def best(self) -> Fitted:
        """The best network; only for moves that come after one was noted."""
        assert self.state.best is not None
        return self.state.best

    def _break_off(self) -> None:
        if not self.state.steps:  # the first move: its fit is there, what should follow is not
            self._record("start")
        super()._break_off()

    @abstractmethod
    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        """The relative error of a network, if there is one, and its error on held-out data."""

    def _record(self, kind: str, edge: Edge | None = None, fitted: Fitted | None = None) -> None:
        """Report a network, by default the current one, as a step."""
        state = self.state
        fitted = fitted or self.current
        error, held_out = self._errors(fitted)
        step = Step(
            index=len(state.steps),
            kind=kind,
            edge=edge,
            num_parameters=fitted.size,
            loss=fitted.loss,
            relative_error=error,
            validation_error=held_out,
            seconds=self.seconds,
            structure=fitted.network.structure,
            start=state.start,
        )
        state.steps.append(step)
        add_to_path(state.path, PathPoint(fitted.network, step.measure, fitted.counted))
