"""Runs that held-out data guides: the ridge, when to stop, and a last fit to everything."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..losses import squared
from ..network import TensorNetwork
from ..objectives import HeldOut
from ..results import Errors, Result
from ..search import Context, HeldOutProblem, HeldOutSearch
from ..solvers import ALSSettings, als
from ..steps import Step, StopReason
from ..structure import Structure
from .task import NetworkTask, deadline_of_last_fit, seed_of


@dataclass(frozen=True)
class _LastFit:
    """A network after its last fit, with what to report of it."""

    network: TensorNetwork
    error: float
    history: tuple[Step, ...]
    seconds: float
    is_interrupted: bool


class HeldOutTask(NetworkTask[HeldOutSearch]):
    """A run on data of which some may be held out.

    Attributes
    ----------
    structure
        Fit this structure instead of learning one.
    """

    structure: Structure | None = None

    @property
    @abstractmethod
    def num_held_out(self) -> int:
        """Numbers that are not fitted before the last fit."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What the run does, for messages about memory."""

    @property
    def seed(self) -> int | None:
        return seed_of(self.request.random_state)

    @property
    def default_ridge(self) -> float:
        """The ridge to start with."""
        return squared.ridge

    @abstractmethod
    def objective(self, ridge: float, *, everything: bool = False) -> HeldOut:
        """The loss on the fitted data, or on all."""

    @abstractmethod
    def errors(self, search: HeldOutSearch, network: TensorNetwork, total: float) -> Errors:
        """What to report of the answer, and of the network after its last fit."""

    @property
    def first(self) -> Structure:
        return super().first if self.structure is None else self.structure

    def search(self) -> HeldOutSearch:
        request, policy = self.request, self.policy
        ridge = request.options.ridge
        objective = self.objective(self.default_ridge if ridge is None else ridge)
        limits = request.limits
        problem = HeldOutProblem(
            objective,
            request.options,
            policy,
            Context(self.generator),
            target=(limits.max_error or 0.0) * (objective.validation_norm or objective.norm),
            max_parameters=self._most_parameters(objective.num_fitted),
            memory_limit=self.memory(objective, self.what),
            split_nodes=request.splits_nodes(policy),
            is_patient=self.structure is None,
        )
        return HeldOutSearch(problem, limits, self.start())

    def identity(self, search: HeldOutSearch) -> Mapping[str, object]:
        known = None if self.structure is None else self.structure.to_dict()
        return {**super().identity(search), "structure": known}

    def _most_parameters(self, fitted: int) -> int | None:
        """Where held-out data decides: no more parameters than numbers that could determine them."""
        most = self.request.limits.max_parameters
        if not self.num_held_out:
            return most
        enough = max(fitted, self.first.num_parameters)
        return enough if most is None else min(most, enough)

    def finish(self, search: HeldOutSearch) -> Result:
        last = self._fit_everything(search)
        stop = StopReason.INTERRUPTED if last.is_interrupted else search.state.stop
        errors = self.errors(search, last.network, last.error)
        if self.structure is not None and stop == StopReason.MAX_STEPS:
            goal = search.limits.max_error
            reached = goal is not None and (errors.validation or errors.total) <= goal
            stop = StopReason.TARGET_REACHED if reached else StopReason.CONVERGED
        result = self.result(
            search, last.network, errors, history=last.history, stop=stop, seconds=last.seconds
        )
        return replace(result, info={**result.info, "ridge": search.ridge})

    def _fit_everything(self, search: HeldOutSearch) -> _LastFit:
        """Fit the answer to all data, what was held out included."""
        answer, o, begin = search.answer, search.problem.options, time.perf_counter()
        assert answer is not None
        objective = self.objective(search.ridge, everything=True)
        history = self.history(search)
        network, interrupted = answer.network, False
        if search.problem.holds_out:
            settings = ALSSettings(
                max_sweeps=o.final_sweeps,
                tolerance=o.final_tolerance,
                ridge=o.rounding_ridge,
                balance_every=o.balance_every,
                accelerate=o.accelerate,
                momentum=search.problem.momentum(network.structure),
            )
            try:
                fit = als(
                    objective,
                    network,
                    settings,
                    deadline=deadline_of_last_fit(search),
                    keep_on_interrupt=True,
                )
                network, interrupted = fit.network, fit.interrupted
            except KeyboardInterrupt:  # before the first sweep was done: the network as it is
                interrupted = True
        loss = objective.loss(network.structure, objective.to_arrays(network))
        error = loss / (objective.norm or 1.0)
        seconds = search.state.elapsed + time.perf_counter() - begin
        if search.problem.holds_out:
            same = (s.start for s in reversed(history) if s.structure == network.structure)
            step = Step(
                index=len(history),
                kind="refit",
                edge=None,
                num_parameters=network.num_parameters,
                loss=loss * self.loss_scale,
                relative_error=error,
                validation_error=None,
                seconds=seconds,
                structure=network.structure,
                start=next(same, 0),
            )
            history = (*history, step)
        return _LastFit(network, error, history, seconds, interrupted)
