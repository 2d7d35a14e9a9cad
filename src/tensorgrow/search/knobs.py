"""Numbers that the error on held-out data chooses: the ridge, and the strength of priors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..algebra.linalg import LEAST_RIDGE
from ..objectives import HeldOut
from .grow import refit
from .problem import Problem
from .state import Fitted

# Another value must lower the held-out error by this share. Unless it is chosen anew after every step, a
# weaker one must do better: it pays at once and costs later, when there is more to overfit with.
KNOB_GAIN, WEAKER_KNOB_GAIN = 2e-3, 1e-2
# Knobs are chosen again when the network has grown by this factor; in large networks the ridge only rises.
TUNE_EVERY = 1.25
# Where wide cuts make sweeps costly, a value is given up whose first sweep raises the held-out error by this
# share. Of values that were taken in the end (seven pictures, four runs on traffic), the first sweep raised
# it by 0.8 % at most there; by up to 6 % elsewhere, where whole fits decide.
HOPELESS = 0.02
# Refits of the last choice go far enough to tell: what a weaker ridge gains shows late.
FINE_SWEEPS, FINE_TOLERANCE = 12, 2e-4


@dataclass(frozen=True)
class HeldOutProblem(Problem):
    """A problem with held-out data to choose a ridge and the strength of priors by.

    Attributes
    ----------
    power
        Entries are fitted with weights ``level**-power``: 0 for equal ones, None for what held-out data
        chooses.
    """

    objective: HeldOut
    power: float | None = 0.0


@dataclass(frozen=True)
class Knob:
    """A number of an objective: the larger it is, the smoother are the fits.

    Attributes
    ----------
    name
        Of the field of a state that keeps it.
    read, turn
        Its value in an objective, and the objective with another one.
    is_free
        Whether there is a choice: the user left it open.
    least, largest
        Values that are tried.
    small
        Below this values hardly differ once there is noise: one step up from there leads here.
    stalls_growth
        Whether values above the first one stall the growth of large networks; its end may take them.
    """

    name: Literal["ridge", "strength"]
    read: Callable[[HeldOut], float]
    turn: Callable[[HeldOut, float], HeldOut]
    is_free: Callable[[HeldOutProblem], bool]
    least: float
    largest: float
    small: float
    stalls_growth: bool


RIDGE = Knob(
    "ridge",
    lambda o: o.ridge,
    lambda o, value: o.with_ridge(value),
    lambda p: p.options.ridge is None,
    least=LEAST_RIDGE,
    largest=1.0,
    small=1e-3,
    stalls_growth=True,
)
# Priors may be all there is to know of slices without entries: much larger strengths make sense than ridges,
# and the least still fills such slices, where exact data is met to rounding.
STRENGTH = Knob(
    "strength",
    lambda o: o.penalties.strength,
    lambda o, value: o.with_penalties(o.penalties.at(value)),
    lambda p: p.objective.penalties.is_open and not p.objective.penalties.is_settled,
    least=1e-14,
    largest=1e2,
    small=1e-2,
    stalls_growth=False,
)
KNOBS = (RIDGE, STRENGTH)


@dataclass(frozen=True)
class KnobChooser:
    """Tries weaker and stronger values of a knob, and keeps what lowers the held-out error.

    Attributes
    ----------
    problem
        With the value in use.
    first
        The value that the search began with.
    """

    knob: Knob
    problem: HeldOutProblem
    first: float

    @property
    def value(self) -> float:
        """The value in use."""
        return self.knob.read(self.problem.objective)

    def at(self, value: float) -> HeldOutProblem:
        """The problem with another value."""
        return replace(self.problem, objective=self.knob.turn(self.problem.objective, value))

    def choose(self, fitted: Fitted) -> tuple[Fitted, float]:
        """A network and its value after a growth."""
        structure = fitted.network.structure
        gain = KNOB_GAIN if self.problem.refits_fully(structure) else WEAKER_KNOB_GAIN
        if not self.problem.pace.is_slow(structure):
            weaker = self._move(-1.0, fitted, gain)
            if weaker[1] != self.value:
                return weaker
        return self._move(1.0, fitted, KNOB_GAIN)

    def choose_finely(self, fitted: Fitted) -> tuple[Fitted, float]:
        """A network and its value at the end of a growth."""
        problem = self.problem
        if problem.refits_fully(fitted.network.structure):
            # It may still be near the network of a weaker ridge, and can only be judged where it settles.
            fitted = refit(problem, fitted.network, sweeps=300, tolerance=1e-5)
        # Every value has the same sweeps: otherwise what more sweeps gain would count for the other one.
        fitted = refit(problem, fitted.network, sweeps=FINE_SWEEPS, tolerance=FINE_TOLERANCE)
        gain = 3e-4  # nothing is left that could overfit later: any gain above rounding counts
        weaker = self._move(-1.0, fitted, gain, fine=True)
        return weaker if weaker[1] != self.value else self._move(1.0, fitted, gain, fine=True)

    def _move(
        self, direction: float, fitted: Fitted, gain: float, *, fine: bool = False
    ) -> tuple[Fitted, float]:
        """Move the knob in one direction for as long as that lowers the held-out error by a share.

        Fine steps are small ones. Others grow while they lead downwards, and one step up leads to values that
        matter.
        """
        knob, value = self.knob, self.value
        sweeps, tolerance = (FINE_SWEEPS, FINE_TOLERANCE) if fine else (None, None)
        if direction < 0 and fitted.size >= self.problem.objective.num_fitted:
            return fitted, value  # the knobs alone decide what the entries leave open
        cheap = self.problem.refits_fully(fitted.network.structure)
        # Nothing grows after a fine choice.
        may_stall = knob.stalls_growth and direction > 0 and not cheap and not fine
        largest = self.first if may_stall else knob.largest
        first_factor = factor = 2.0 if fine else 10.0**0.5
        if not fine and direction > 0 and value * factor < knob.small:
            factor = knob.small / value
        has_wide_cuts = self.problem.pace.has_wide_cuts(fitted.network.structure)
        while not self.problem.context.is_out_of_time:
            most = (1.0 + HOPELESS) * fitted.measure if has_wide_cuts else math.inf
            other = min(max(value * factor**direction, knob.least), largest)
            if other == value:
                break
            trial = refit(self.at(other), fitted.network, sweeps=sweeps, tolerance=tolerance, most=most)
            if not trial.measure < fitted.measure * (1.0 - gain):
                break
            fitted, value = trial, other
            factor = min(factor**2, 1e4) if direction < 0 and not fine else first_factor
        return fitted, value
