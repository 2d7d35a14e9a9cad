"""What every structure search by fitting shares: rounds of structures, limits, the best one, the history.

A *strategy* is a generator: it yields the structures it wants fitted, in rounds, and is sent what came of
them. It knows neither limits nor fits, callbacks or processes.
"""

from __future__ import annotations

import builtins
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from ..network import TensorNetwork
from ..results import PathPoint, Step, StopReason, add_to_path
from ..search import Fitted, Limits, Search
from ..structure import Edge, Structure
from .inner_fit import FitTask, InnerFit

__all__ = ["Exploration", "Goal", "Outcome", "Proposal", "Strategy"]

Map = Callable[..., Iterable[Any]]


@dataclass(frozen=True)
class Proposal:
    """A structure to fit.

    Attributes
    ----------
    init
        A network to start from; None: random cores, and what is known of the structure already is used again.
    """

    structure: Structure
    init: TensorNetwork | None = None
    kind: str = "fit"
    edge: Edge | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a structure.

    Attributes
    ----------
    network
        None where the structure was too large to be fitted.
    counted
        Parameters where the network has fixed numbers too.
    """

    structure: Structure
    relative_error: float
    network: TensorNetwork | None = None
    counted: int | None = None
    kind: str = "fit"
    edge: Edge | None = None

    @property
    def num_parameters(self) -> int:
        """Free parameters."""
        return self.structure.num_parameters if self.counted is None else self.counted


Strategy = Generator[Sequence[Proposal | Outcome], list[Outcome], None]


@dataclass(frozen=True)
class Goal:
    """Which of the fitted structures is the answer.

    Attributes
    ----------
    error_weight
        ``lambda`` of ``F = parameters / entries + lambda * error^2``; None: the error alone.
    """

    max_error: float | None = None
    max_parameters: int | None = None
    error_weight: float | None = None

    def fitness(self, outcome: Outcome) -> float:
        """``F``, lower is better; a structure that was not fitted counts as if it explained nothing."""
        squared = outcome.relative_error**2
        if self.error_weight is None:
            return squared
        ratio = outcome.num_parameters / outcome.structure.num_entries
        return ratio + self.error_weight * squared

    def admits(self, structure: Structure) -> bool:
        """Whether a structure is worth a fit: smaller than the data, and within the budget."""
        most = structure.num_entries if self.max_parameters is None else self.max_parameters
        return structure.num_parameters <= most

    def reached(self, outcome: Outcome) -> bool:
        """Whether the error is met."""
        return self.max_error is not None and outcome.relative_error <= self.max_error

    def rank(self, outcome: Outcome) -> tuple[int, float]:
        """Order of preference: smallest within the error; else best error within the budget; else best F."""
        if self.max_parameters is not None and outcome.num_parameters > self.max_parameters:
            return (2, self.fitness(outcome))
        if self.reached(outcome):
            return (0, outcome.num_parameters)
        only_budget = self.max_error is None and self.max_parameters is not None
        return (1, outcome.relative_error if only_budget else self.fitness(outcome))


@dataclass(frozen=True)
class _Counted(Fitted):
    """A fitted network whose parameters are counted apart."""

    counted: int = 0

    @property
    def size(self) -> int:
        """Free parameters."""
        return self.counted


@dataclass
class ExplorationProblem:
    """What an exploration works on."""

    fit: InnerFit
    goal: Goal
    generator: torch.Generator
    map: Map = field(default=builtins.map, repr=False)
    memory_limit: float = math.inf
    max_evaluations: int | None = None
    deadline: float = math.inf


class Exploration(Search):
    """Drives a strategy; see `Search`."""

    problem: ExplorationProblem

    def __init__(self, problem: ExplorationProblem, limits: Limits, strategy: Strategy) -> None:
        super().__init__(problem, limits)
        self.strategy = strategy
        self.known: dict[Structure, Outcome] = {}
        self.best: Outcome | None = None
        self.evaluations = 0
        self.rounds = 0  # sweeps or gradient steps, over all fits

    def __iter__(self) -> Iterator[Step]:
        """Advance until done; every structure that was fitted is yielded."""
        state, begin = self.state, time.perf_counter()
        limit = self.limits.max_seconds
        self.problem.deadline = math.inf if limit is None else begin + limit
        outcomes: list[Outcome] | None = None
        while state.stop is None:
            try:
                # The first value sent to a generator that has just started must be None.
                proposals = self.strategy.send(outcomes)  # type: ignore[arg-type]
            except StopIteration:
                self._end(StopReason.FINISHED)
                return
            outcomes = []
            for outcome, is_new in self._outcomes(list(proposals)):
                outcomes.append(outcome)
                if is_new and outcome.network is not None:
                    state.elapsed = time.perf_counter() - begin
                    yield self._note(outcome, begin)
            if self.is_spent:
                self._end(StopReason.MAX_EVALUATIONS)
            elif time.perf_counter() >= self.problem.deadline:
                self._end(StopReason.MAX_SECONDS)

    @property
    def is_spent(self) -> bool:
        """Whether no further structure may be fitted."""
        most = self.problem.max_evaluations
        return most is not None and self.evaluations >= most

    def _outcomes(self, proposals: list[Proposal | Outcome]) -> Iterator[tuple[Outcome, bool]]:
        """Outcomes in order, fewer where a limit is met; and whether each is news."""
        fits = self._to_fit(proposals)
        found = iter(self.problem.map(self.problem.fit, (self._task(p) for p in fits)))
        waiting = {id(p) for p in fits}
        for p in proposals:
            if isinstance(p, Outcome):
                self.evaluations += 1
                yield p, True
            elif id(p) in waiting:
                if time.perf_counter() >= self.problem.deadline and self.best is not None:
                    return
                cores, loss, rounds = next(found)
                self.evaluations += 1
                self.rounds += rounds
                network = TensorNetwork(p.structure, cores)
                error = loss / (self.problem.fit.objective.norm or 1.0)
                outcome = Outcome(p.structure, error, network, kind=p.kind, edge=p.edge)
                if p.init is None:
                    self.known[p.structure] = outcome
                yield outcome, True
            elif p.structure in self.known:
                yield self.known[p.structure], False
            else:
                return

    def _to_fit(self, proposals: list[Proposal | Outcome]) -> list[Proposal]:
        """Those to be fitted now: new ones, once each, as many as are allowed; the others become known."""
        chosen: list[Proposal] = []
        seen: set[Structure] = set()
        most = self.problem.max_evaluations
        room = math.inf if most is None else most - self.evaluations
        for p in proposals:
            if isinstance(p, Outcome):
                continue
            if p.init is None and (p.structure in seen or p.structure in self.known):
                continue
            if not self._worth_fitting(p.structure):
                self.known[p.structure] = Outcome(p.structure, 1.0)
            elif len(chosen) < room:
                seen.add(p.structure)
                chosen.append(p)
        return chosen

    def _worth_fitting(self, structure: Structure) -> bool:
        goal = self.problem.goal
        if not goal.admits(structure):
            return False
        # Even an exact fit would lose against a network without edges, which costs nothing to fit.
        if goal.fitness(Outcome(structure, 0.0)) > self._without_edges:
            return False
        needed = self.problem.fit.objective.memory_needed(structure)
        return needed <= self.problem.memory_limit

    @cached_property
    def _without_edges(self) -> float:
        """Fitness of rank one; infinite where the error alone counts."""
        if self.problem.goal.error_weight is None:
            return math.inf
        fit = self.problem.fit
        structure = Structure.rank_one(fit.target.shape)
        _, loss, _ = fit(FitTask(structure, seed=0))
        return self.problem.goal.fitness(Outcome(structure, loss / (fit.objective.norm or 1.0)))

    def _task(self, p: Proposal) -> FitTask:
        seed = int(torch.randint(2**62, (), generator=self.problem.generator))
        left = max(self.problem.deadline - time.perf_counter(), 0.0)
        return FitTask(p.structure, seed, None if p.init is None else p.init.cores, left)

    def _note(self, outcome: Outcome, begin: float) -> Step:
        state, goal = self.state, self.problem.goal
        assert outcome.network is not None
        loss = outcome.relative_error * self.problem.fit.objective.norm
        state.current = _Counted(outcome.network, loss, counted=outcome.num_parameters)
        if self.best is None or goal.rank(outcome) < goal.rank(self.best):
            self.best, state.best = outcome, state.current
        step = Step(
            index=len(state.steps),
            kind=outcome.kind,
            edge=outcome.edge,
            num_parameters=outcome.num_parameters,
            loss=loss,
            relative_error=outcome.relative_error,
            validation_error=None,
            seconds=time.perf_counter() - begin,
            structure=outcome.structure,
        )
        state.steps.append(step)
        add_to_path(state.path, PathPoint(outcome.network, outcome.relative_error, outcome.counted))
        return step

    def _end(self, reason: StopReason) -> None:
        if self.best is not None and self.problem.goal.reached(self.best):
            reason = StopReason.TARGET_REACHED
        super()._end(reason)
