"""Completions at one rank after the other, as a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import torch

from ..errors import OptionError
from ..results import Result
from ..search import Context, Fitted, Limits, NetworkSearch, NetworkState
from ..steps import StopReason
from ..tasks.task import Task
from .common import refuse_checkpoint

# Ranks in a row that may fail to lower the held-out error: fewer would end at a chance rise.
PATIENCE = 3


@dataclass(frozen=True)
class RankProblem:
    """Ranks to fit."""

    method: str
    fit: Callable[[int, float | None], Result]  # fits a rank within that many seconds
    size: Callable[[int], int]  # parameters of a rank
    ranks: tuple[int, ...] | None  # None: 1, 2, 3, ... until the held-out error no longer falls
    max_parameters: float
    max_evaluations: int | None = None
    is_single: bool = False  # whether the method is one fit, whose end is the end of the run


@dataclass
class RankState(NetworkState):
    """What a `RankSearch` keeps."""

    size: int = 0  # parameters of the last rank
    stale: int = 0  # ranks since the held-out error fell
    last: Result | None = None
    winner: Result | None = None  # the fit with the smallest held-out error


class RankSearch(NetworkSearch[RankProblem, RankState]):
    """Fits one rank after the other and keeps the one with the smallest held-out error; see `Search`."""

    @property
    def patience(self) -> int | None:
        return PATIENCE if self.problem.ranks is None else None

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._fit_next, "rise": self._fit_next}

    def _fit_next(self) -> None:
        state, problem, number = self.state, self.problem, len(self.state.steps)
        if problem.ranks is not None and number == len(problem.ranks):
            return self._end(StopReason.FINISHED)
        rank = number + 1 if problem.ranks is None else problem.ranks[number]
        size = problem.size(rank)
        if size > problem.max_parameters:
            return self._end(StopReason.MAX_PARAMETERS)
        if size == state.size and problem.ranks is None:
            return self._end(StopReason.SATURATED)
        result = problem.fit(rank, self.context.seconds_left)
        loss, counted = result.history[-1].loss, result.info.get("num_parameters")
        state.phase, state.size, state.last = "rise", size, result
        state.current = Fitted(result.network, loss, result.validation_error, counted)
        state.stale += 1
        if state.winner is None or _measure(result) < _measure(state.winner):
            state.winner, state.best, state.stale = result, state.current, 0
        self._record(result.history[-1].kind)
        reason = self._why_stop(result)
        return None if reason is None else self._end(reason)

    def _why_stop(self, result: Result) -> StopReason | None:
        state, problem = self.state, self.problem
        if problem.is_single or result.stop is StopReason.INTERRUPTED:
            return result.stop
        if self.limits.max_error is not None and _measure(result) <= self.limits.max_error:
            return StopReason.TARGET_REACHED
        if self.context.is_out_of_time:
            return StopReason.MAX_SECONDS
        if problem.max_evaluations is not None and len(state.steps) >= problem.max_evaluations:
            return StopReason.MAX_EVALUATIONS
        return StopReason.VALIDATION if problem.ranks is None and state.stale >= PATIENCE else None

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        assert self.state.last is not None
        return self.state.last.history[-1].relative_error, fitted.validation


@dataclass
class RankTask(Task[RankSearch, Result]):
    """A completion at one rank after the other."""

    problem: RankProblem
    limits: Limits
    generator: torch.Generator

    def search(self) -> RankSearch:
        return RankSearch(self.problem, self.limits, RankState(), Context(self.generator))

    def identity(self, search: RankSearch) -> NoReturn:
        refuse_checkpoint(self.problem.method)

    def finish(self, search: RankSearch) -> Result:
        state = search.state
        winner, stop = state.winner, state.stop
        if winner is None or stop is None:
            raise OptionError(
                "nothing was fitted: ranks is empty, or the smallest rank is above max_parameters"
            )
        history, path = tuple(state.steps), tuple(state.path)
        info = {**winner.info, "method": self.problem.method, "seconds": state.elapsed}
        if not self.problem.is_single:
            info["evaluations"] = len(history)
        return replace(winner, history=history, path=path, stop=stop, info=info)


def _measure(result: Result) -> float:
    """Held-out error, else the error on what was fitted."""
    return result.relative_error if result.validation_error is None else result.validation_error
