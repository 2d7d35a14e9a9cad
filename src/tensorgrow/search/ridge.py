"""The choice of the ridge by the error on held-out data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..algebra.linalg import LEAST_RIDGE
from ..objectives import HeldOut
from .grow import refit
from .problem import Problem
from .state import Fitted

# Below this ridges hardly differ once there is noise: one step up from there leads here.
SMALL_RIDGE = 1e-3
# Another ridge must lower the held-out error by this share. Unless it is chosen anew after every step, a
# weaker one must do better: it pays at once and costs later, when there is more to overfit with.
RIDGE_GAIN, WEAKER_RIDGE_GAIN = 2e-3, 1e-2
# The ridge is chosen again when the network has grown by this factor; in large networks it only rises.
TUNE_EVERY = 1.25
# Refits of the last choice go far enough to tell: what a weaker ridge gains shows late.
FINE_SWEEPS, FINE_TOLERANCE = 12, 2e-4


@dataclass(frozen=True)
class HeldOutProblem(Problem):
    """A problem with held-out data to choose a ridge by."""

    objective: HeldOut


@dataclass(frozen=True)
class RidgeChooser:
    """Tries weaker and stronger ridges, and keeps what lowers the held-out error.

    Attributes
    ----------
    problem
        With the ridge that the search starts with.
    """

    problem: HeldOutProblem

    @property
    def default(self) -> float:
        """The ridge that the search starts with."""
        return self.problem.objective.ridge

    @property
    def is_free(self) -> bool:
        """Whether there is a choice: the user left it open, and there is data to choose by."""
        return self.problem.options.ridge is None and self.problem.holds_out

    def at(self, ridge: float) -> HeldOutProblem:
        """The problem with another ridge."""
        return replace(self.problem, objective=self.problem.objective.with_ridge(ridge))

    def is_due(self, fitted: Fitted, tuned: int) -> bool:
        """Whether a network has outgrown the choice at the size `tuned`."""
        cheap = self.problem.refits_fully(fitted.network.structure)
        return self.is_free and (cheap or fitted.size >= TUNE_EVERY * tuned)

    def choose(self, fitted: Fitted, ridge: float) -> tuple[Fitted, float]:
        """A network and its ridge after a growth."""
        structure = fitted.network.structure
        gain = RIDGE_GAIN if self.problem.refits_fully(structure) else WEAKER_RIDGE_GAIN
        if not self.problem.pace.is_slow(structure):
            weaker = self._move(-1.0, fitted, ridge, gain)
            if weaker[1] != ridge:
                return weaker
        return self._move(1.0, fitted, ridge, RIDGE_GAIN)

    def choose_finely(self, fitted: Fitted, ridge: float) -> tuple[Fitted, float]:
        """A network and its ridge at the end of a growth."""
        problem = self.at(ridge)
        if problem.refits_fully(fitted.network.structure):
            # It may still be near the network of a weaker ridge, and can only be judged where it settles.
            fitted = refit(problem, fitted.network, sweeps=300, tolerance=1e-5)
        # Every ridge has the same sweeps: otherwise what more sweeps gain would count for the other one.
        fitted = refit(problem, fitted.network, sweeps=FINE_SWEEPS, tolerance=FINE_TOLERANCE)
        gain = 3e-4  # nothing is left that could overfit later: any gain above rounding counts
        weaker = self._move(-1.0, fitted, ridge, gain, fine=True)
        return weaker if weaker[1] != ridge else self._move(1.0, fitted, ridge, gain, fine=True)

    def _move(
        self, direction: float, fitted: Fitted, ridge: float, gain: float, *, fine: bool = False
    ) -> tuple[Fitted, float]:
        """Move the ridge in one direction for as long as that lowers the held-out error by a share.

        Fine steps are small ones. Others grow while they lead downwards, and one step up leads to ridges that
        matter.
        """
        sweeps, tolerance = (FINE_SWEEPS, FINE_TOLERANCE) if fine else (None, None)
        if direction < 0 and fitted.size >= self.problem.objective.num_fitted:
            return fitted, ridge  # the ridge alone decides what the entries leave open
        # One above the default stalls the growth of large networks.
        cheap = self.problem.refits_fully(fitted.network.structure)
        largest = 1.0 if direction < 0 or cheap else self.default
        first_factor = factor = 2.0 if fine else 10.0**0.5
        if not fine and direction > 0 and ridge * factor < SMALL_RIDGE:
            factor = SMALL_RIDGE / ridge
        while not self.problem.context.is_out_of_time:
            other = min(max(ridge * factor**direction, LEAST_RIDGE), largest)
            if other == ridge:
                break
            trial = refit(self.at(other), fitted.network, sweeps=sweeps, tolerance=tolerance)
            if not trial.measure < fitted.measure * (1.0 - gain):
                break
            fitted, ridge = trial, other
            factor = min(factor**2, 1e4) if direction < 0 and not fine else first_factor
        return fitted, ridge
