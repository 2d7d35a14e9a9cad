"""The fit of one structure as a run: no edge grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..objectives import LeastSquares
from ..solvers import ALSFit, ALSSettings, als
from ..steps import StopReason
from ..structure import Structure
from .limits import Limits
from .search import Context, NetworkSearch, Start
from .state import Fitted, NetworkState


@dataclass(frozen=True)
class FitProblem:
    """A structure and what it is fitted to.

    Attributes
    ----------
    objectives
        Least squares with what each leaves out of the data; all but the last are approximations of the next,
        which the fit turns to only where that matters.
    """

    structure: Structure
    objectives: tuple[tuple[LeastSquares, float], ...]
    context: Context
    max_sweeps: int
    tolerance: float


@dataclass
class FitState(NetworkState):
    """Of a `FitSearch`: the sweeps so far."""

    sweeps: int = 0


class FitSearch(NetworkSearch[FitProblem, FitState]):
    """Alternating least squares until it converges or a limit is met; see `Search`."""

    def __init__(self, problem: FitProblem, limits: Limits, start: Start) -> None:
        super().__init__(problem, limits, FitState(), problem.context, start)
        self._norm = problem.objectives[0][0].norm

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._fit}

    def _fit(self) -> None:
        state, problem, limits = self.state, self.problem, self.limits
        if state.current is not None:
            if state.sweeps >= problem.max_sweeps:
                self.hit_limit = True
                self._end(StopReason.MAX_STEPS)
                return
            network = state.current.network
        elif self.start.init is not None:
            network = self.start.init
        else:
            network = Start(None, self.start.dtype).random(problem.structure, self.context.generator)
        network = network.to(self.start.device, self.start.dtype)
        is_random = state.current is None and self.start.init is None
        for number, (objective, rest) in enumerate(problem.objectives):
            settings = ALSSettings(
                max_sweeps=problem.max_sweeps - state.sweeps,
                tolerance=problem.tolerance,
                balance_first=number > 0 or not is_random,
            )
            goal = None if limits.max_error is None else limits.max_error * objective.norm
            fit = als(
                objective,
                network,
                settings,
                target=goal,
                deadline=self.context.deadline,
                keep_on_interrupt=True,
                graphs=self.context.graphs,
            )
            network, state.sweeps, self._norm = fit.network, state.sweeps + fit.num_sweeps, objective.norm
            stop = self._why(fit, goal)
            if rest <= 0.1 * fit.loss or stop != StopReason.CONVERGED:
                break  # what the approximation leaves out hardly matters, or the fit must end
        state.current = state.best = Fitted(network, fit.loss)
        self._record("fit")
        self.hit_limit = stop not in (StopReason.CONVERGED, StopReason.TARGET_REACHED)
        self._end(stop)

    def _why(self, fit: ALSFit, goal: float | None) -> StopReason:
        """Why a fit ended."""
        if fit.interrupted:
            return StopReason.INTERRUPTED
        if goal is not None and fit.loss <= goal:
            return StopReason.TARGET_REACHED
        if self.state.sweeps >= self.problem.max_sweeps:
            return StopReason.MAX_STEPS
        return StopReason.MAX_SECONDS if self.context.is_out_of_time else StopReason.CONVERGED

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        return fitted.loss / (self._norm or 1.0), None
