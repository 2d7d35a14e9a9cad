"""Fits whose ridge, strength of priors and weights held-out data chooses while the network grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..network import TensorNetwork
from ..objectives import HeldOut
from .grow import refit
from .held_out_state import HeldOutState
from .knobs import KNOBS, RIDGE, STRENGTH, TUNE_EVERY, HeldOutProblem, Knob, KnobChooser
from .least_squares import LeastSquaresSearch
from .limits import Limits
from .search import Start
from .state import Fitted


class TunedSearch(LeastSquaresSearch[HeldOutProblem, HeldOutState]):
    """A search that fits with the knobs and weights which its state keeps, and turns them; see `Search`."""

    def __init__(self, problem: HeldOutProblem, limits: Limits, start: Start) -> None:
        super().__init__(problem, limits, HeldOutState(), problem.context, start)
        self._first = {knob.name: knob.read(problem.objective) for knob in KNOBS}
        self._weighed: tuple[TensorNetwork, HeldOut, HeldOut] | None = None

    @property
    def _now(self) -> HeldOutProblem:
        """The problem with the ridge and the strength in use."""
        return self._at(self.state.ridge, self.state.strength)

    def _at(self, *values: float | None) -> HeldOutProblem:
        """The problem with other values of the knobs; None for the first ones."""
        objective = self._data
        for knob, value in zip(KNOBS, values, strict=True):
            objective = objective if value is None else knob.turn(objective, value)
        return replace(self.problem, objective=objective)

    @property
    def _data(self) -> HeldOut:
        """The data with the weights in use; made once, as sweeps keep tables and graphs of it."""
        pilot = self.state.pilot
        if pilot is None:
            return self.problem.objective
        data, known = self.problem.objective, self._weighed
        if known is None or known[0] is not pilot or known[1] is not data:
            self._weighed = known = pilot, data, self.weighed(data)
        return known[2]

    def weighed(self, data: HeldOut) -> HeldOut:
        """The same or more data with the weights that were chosen."""
        pilot, power = self.state.pilot, self.state.power
        return data if pilot is None or not power else data.weighed(pilot, power)

    @property
    def _free_knobs(self) -> list[Knob]:
        """What held-out data chooses."""
        return [knob for knob in KNOBS if self.problem.holds_out and knob.is_free(self.problem)]

    def _chooser(self, knob: Knob) -> KnobChooser:
        return KnobChooser(knob, self._now, self._first[knob.name])

    def _turn(self, knob: Knob, choose: Callable[[Fitted], tuple[Fitted, float]]) -> None:
        """Take what a choice comes to."""
        self.state.current, value = choose(self.current)
        setattr(self.state, knob.name, value)

    def _tune(self) -> None:
        """Choose the ridge and the strength again where the network has outgrown the last choice."""
        state, problem = self.state, self.problem
        factor = problem.options.tune_every
        always = factor == 1.0 and problem.refits_fully(self.current.network.structure)
        if always or self.current.size >= max(factor, TUNE_EVERY) * state.tuned_size:
            size = self.current.size
            for knob in self._free_knobs:
                self._turn(knob, self._chooser(knob).choose)
                state.tuned_size = size

    def _tune_finely(self) -> None:
        """Choose the ridge and the strength for the last time: nothing grows after it."""
        for knob in self._free_knobs:
            self._turn(knob, self._chooser(knob).choose_finely)

    def _settle_strength(self) -> None:
        """Choose the strength of priors for longer sweeps, and for the weights.

        One that was chosen for a smaller network smooths too much as soon as sweeps go on, the more so what
        weighs little, and it would look as if the weights had done that. (Taxis, days removed, a mask that is
        not published: root mean square error 5.27 with 3.2, 4.51 with a thirtieth of it. With a weaker ridge
        small counts are lost, and the last choice comes later.)
        """
        if STRENGTH in self._free_knobs:
            self._turn(STRENGTH, self._chooser(STRENGTH).choose_finely)

    def _judge(self, network: TensorNetwork) -> tuple[Fitted, float | None]:
        """Refit a network of another graph, with a ridge of its own.

        The ridge shrinks every core: one that suits a network is too strong once a node is split in two.
        """
        fitted = refit(self._now, network)
        if RIDGE not in self._free_knobs:
            return fitted, self.state.ridge
        return self._chooser(RIDGE).choose(fitted)
