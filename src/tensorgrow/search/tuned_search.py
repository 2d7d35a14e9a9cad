"""Fits whose ridge, strength of priors and weights held-out data chooses while the network grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ..network import TensorNetwork
from ..objectives import HeldOut
from ..steps import StopReason
from .grow import refit
from .knobs import KNOBS, RIDGE, STRENGTH, TUNE_EVERY, HeldOutProblem, Knob, KnobChooser
from .least_squares import LeastSquaresSearch
from .limits import Limits
from .score import Gains
from .search import Start
from .state import Fitted, NetworkState


@dataclass
class HeldOutState(NetworkState):
    """Of a `HeldOutSearch`.

    Attributes
    ----------
    cycles, stalls
        Regrow cycles, and those of them since the last gain.
    ridge, strength, tuned_size
        The ridge and the strength of priors in use, None for the first ones, and the size of the network that
        they were last chosen for.
    stale
        Growths since the held-out error fell.
    gains
        The last known gains of edges.
    outcome
        Why the growth ended.
    earlier, earlier_ridge, earlier_strength
        The best network of earlier starts, its ridge and its strength.
    unsplit, unsplit_ridge
        Held-out loss of the best network, and the ridge, when a node was last split within a budget.
    tries
        Random starts of small rank so far.
    power, pilot
        Entries have weights by this power of the levels that this network says; None before it is chosen.
    """

    later: ClassVar[frozenset[str]] = frozenset(
        {"unsplit", "unsplit_ridge", "strength", "earlier_strength", "tries", "power", "pilot"}
    )

    cycles: int = 0
    stalls: int = 0
    ridge: float | None = None
    tuned_size: int = 0
    stale: int = 0
    gains: Gains = field(default_factory=dict)
    outcome: StopReason | None = None
    earlier: Fitted | None = None
    earlier_ridge: float | None = None
    unsplit: float | None = None
    unsplit_ridge: float | None = None
    strength: float | None = None
    earlier_strength: float | None = None
    tries: int = 0
    power: float | None = None
    pilot: TensorNetwork | None = None


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
