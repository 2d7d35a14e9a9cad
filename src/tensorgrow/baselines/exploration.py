"""What every structure search by fitting shares: rounds of structures, limits, the best one, the history.

A *strategy* is a generator: it yields the structures it wants fitted, in rounds, and is sent what came of
them. It knows neither limits nor fits, callbacks or processes.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from ..network import TensorNetwork
from ..search import Context, Fitted, Limits, NetworkSearch, NetworkState
from ..steps import StopReason
from ..structure import Edge, Structure
from .inner_fit import FitTask, InnerFit

Map = Callable[..., Iterable[Any]]


@dataclass(frozen=True)
class Proposal:
    """A structure to fit, from `init` or else from random cores, unless it was fitted from these before."""

    structure: Structure
    init: TensorNetwork | None = None
    kind: str = "fit"
    edge: Edge | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a structure."""

    structure: Structure
    relative_error: float
    network: TensorNetwork | None = None  # None where the structure was too large to be fitted
    counted: int | None = None  # parameters, where the network also holds fixed numbers
    kind: str = "fit"
    edge: Edge | None = None

    @property
    def num_parameters(self) -> int:
        return self.structure.num_parameters if self.counted is None else self.counted


Strategy = Generator[Sequence[Proposal | Outcome], list[Outcome], None]


@dataclass(frozen=True)
class Goal:
    """Which of the fitted structures is the answer."""

    max_error: float | None = None
    max_parameters: int | None = None
    error_weight: float | None = None  # None: the error alone counts

    def fitness(self, outcome: Outcome) -> float:
        """``F = parameters / entries + error_weight * error^2``, lower is better.

        A structure that was not fitted counts as if it explained nothing.
        """
        squared = outcome.relative_error**2
        if self.error_weight is None:
            return squared
        ratio = outcome.num_parameters / outcome.structure.num_entries
        return ratio + self.error_weight * squared

    def admits(self, structure: Structure) -> bool:
        """Whether a structure is worth a fit: smaller than the data, and within the budget."""
        most = structure.num_entries if self.max_parameters is None else self.max_parameters
        return structure.num_parameters <= most

    def is_reached(self, outcome: Outcome) -> bool:
        return self.max_error is not None and outcome.relative_error <= self.max_error

    def holds(self, outcome: Outcome) -> bool:
        """Whether an outcome is within the budget."""
        return self.max_parameters is None or outcome.num_parameters <= self.max_parameters

    def rank(self, outcome: Outcome) -> tuple[int, float]:
        """Order of preference: smallest within the error; else best error within the budget; else best F."""
        if not self.holds(outcome):
            return (2, self.fitness(outcome))
        if self.is_reached(outcome):
            return (0, outcome.num_parameters)
        only_budget = self.max_error is None and self.max_parameters is not None
        return (1, outcome.relative_error if only_budget else self.fitness(outcome))


@dataclass(frozen=True)
class ExplorationProblem:
    """What an exploration works on."""

    fit: InnerFit
    goal: Goal
    error: Callable[[TensorNetwork], float]  # relative, in double precision
    map: Map = field(default=builtins.map, repr=False)  # fits the structures of a round
    memory_limit: float = math.inf
    max_evaluations: int | None = None

    @property
    def norm(self) -> float:
        """Norm of the data; 1 where that is zero."""
        return self.fit.objective.norm or 1.0


@dataclass
class ExplorationState(NetworkState):
    """What an `Exploration` keeps."""

    winner: Outcome | None = None  # the best by the goal
    evaluations: int = 0  # structures fitted
    rounds: int = 0  # sweeps or gradient steps, over all fits


class Exploration(NetworkSearch[ExplorationProblem, ExplorationState]):
    """Drives a strategy, one new structure per move; see `Search`.

    It can be paused, but neither packed nor resumed after a move that broke off: the strategy is a generator.
    """

    def __init__(
        self, problem: ExplorationProblem, limits: Limits, strategy: Strategy, context: Context
    ) -> None:
        super().__init__(problem, limits, ExplorationState(), context)
        self._known: dict[Structure, Outcome] = {}
        self._moves = self._explore(strategy)

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        # Limits do not end the first phase: it lasts until there is a network to return.
        return {"start": self._moves.__next__, "explore": self._moves.__next__}

    def _explore(self, strategy: Strategy) -> Iterator[None]:
        """The moves: one to every new outcome, one to the end of every round."""
        outcomes: list[Outcome] | None = None  # what a generator that has not started yet must be sent
        most = self.problem.max_evaluations
        while True:
            try:
                proposals = list(strategy.send(outcomes))  # type: ignore[arg-type]
            except StopIteration:
                break
            outcomes = []
            for outcome, is_new in self._evaluate(proposals):
                outcomes.append(outcome)
                if is_new and outcome.network is not None:
                    self._note(outcome, outcome.network)
                    yield
            if most is not None and self.state.evaluations >= most:
                self._end(StopReason.MAX_EVALUATIONS)
            elif self.context.is_out_of_time:
                self._end(StopReason.MAX_SECONDS)
            yield
        self._end(StopReason.FINISHED)
        yield

    def _evaluate(self, proposals: list[Proposal | Outcome]) -> Iterator[tuple[Outcome, bool]]:
        """Outcomes in order and whether each is new; a limit may leave some out."""
        state, problem = self.state, self.problem
        to_fit = self._select(proposals)
        fits = iter(problem.map(problem.fit, (self._task(p) for p in to_fit)))
        waiting = {id(p) for p in to_fit}
        for p in proposals:
            if isinstance(p, Outcome):
                state.evaluations += 1
                yield p, True
            elif id(p) in waiting:
                cores, loss, rounds = next(fits)
                state.evaluations += 1
                state.rounds += rounds
                network = TensorNetwork(p.structure, cores)
                outcome = Outcome(p.structure, loss / problem.norm, network, kind=p.kind, edge=p.edge)
                if problem.goal.is_reached(outcome):  # the loss of a fit has the precision of the data
                    outcome = replace(outcome, relative_error=problem.error(network))
                if p.init is None:
                    self._known[p.structure] = outcome
                yield outcome, True
            elif p.structure in self._known:
                yield self._known[p.structure], False
            else:
                return

    def _select(self, proposals: list[Proposal | Outcome]) -> list[Proposal]:
        """Those to fit now: new ones, once each, as many as allowed; too large ones become known."""
        selected: list[Proposal] = []
        seen: set[Structure] = set()
        most = self.problem.max_evaluations
        room = math.inf if most is None else most - self.state.evaluations
        for p in proposals:
            if isinstance(p, Outcome):
                continue
            if p.init is None and (p.structure in seen or p.structure in self._known):
                continue
            if not self._is_worth_fitting(p.structure):
                self._known[p.structure] = Outcome(p.structure, 1.0)
            elif len(selected) < room:
                seen.add(p.structure)
                selected.append(p)
        return selected

    def _is_worth_fitting(self, structure: Structure) -> bool:
        problem = self.problem
        if not problem.goal.admits(structure):
            return False
        # Even an exact fit would lose against a network without edges, which costs nothing to fit.
        if problem.goal.fitness(Outcome(structure, 0.0)) > self._without_edges:
            return False
        return problem.fit.objective.memory_needed(structure) <= problem.memory_limit

    @cached_property
    def _without_edges(self) -> float:
        """Fitness of rank one; infinite where the error alone counts."""
        problem = self.problem
        if problem.goal.error_weight is None:
            return math.inf
        structure = Structure.rank_one(problem.fit.target.shape)
        _, loss, _ = problem.fit(FitTask(structure, seed=0))
        return problem.goal.fitness(Outcome(structure, loss / problem.norm))

    def _task(self, p: Proposal) -> FitTask:
        seed = int(torch.randint(2**62, (), generator=self.context.generator))
        left = self.context.seconds_left
        seconds = math.inf if left is None else left
        return FitTask(p.structure, seed, None if p.init is None else p.init.cores, seconds)

    def _note(self, outcome: Outcome, network: TensorNetwork) -> None:
        state, goal = self.state, self.problem.goal
        loss = outcome.relative_error * self.problem.norm
        state.current = Fitted(network, loss, counted=outcome.counted)
        if state.winner is None or goal.rank(outcome) < goal.rank(state.winner):
            state.winner, state.best = outcome, state.current
        self._record(outcome.kind, outcome.edge)
        state.phase = "explore"

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        return fitted.loss / self.problem.norm, None

    def _end(self, reason: StopReason) -> None:
        if self.state.winner is not None:
            reason = self.limits.settle(reason, self.state.winner.relative_error)
        super()._end(reason)
