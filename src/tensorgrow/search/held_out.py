"""Growth by the error on held-out entries: what changes when only some entries are known.

Phases of a run::

    start -> grow ... grow -> (where nothing is learned: try ... -> grow ...)
          -> (within a budget: split -> grow ... -> exchange ... -> regrow ...)
          -> shrink and split ... -> done

and once more from the start where that pays.

The error on fitted entries always falls as the network grows; the error on held-out ones does not. So the
latter decides everything: which edge, how strong a ridge, when to stop (`patience` steps without gain), and
which of the visited networks to return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..objectives import DenseLeastSquares, HeldOut
from ..results import best_on_path
from ..steps import StopReason
from ..structure import Structure
from .blind import (
    START_RIDGE,
    START_SWEEPS,
    START_TOLERANCE,
    has_learned,
    starting_structures,
)
from .cuts import SVD_COPIES, CutBounds
from .greedy import GreedySearch
from .grow import Care, grow_once, measure, refit
from .knobs import KNOB_GAIN, KNOBS, RIDGE, TUNE_EVERY, HeldOutProblem, Knob, KnobChooser
from .least_squares import RANK_ONE_SWEEPS, LeastSquaresSearch
from .limits import Limits
from .options import GreedyOptions
from .problem import Problem
from .reduce import prune_once, split_closely, split_exactly, split_freely
from .regrow import exchange, regrow
from .score import Gains, ScoreMemory
from .search import LEAST_GAIN, Context, Start
from .state import Fitted, NetworkState

# Networks with more parameters than this share of the entries of their tensor are not decomposed again: one
# of 16,757 for 41,580 counts took 147 s after a completion of 35 s, and was not improved.
COMPACT = 0.1


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
    """

    later: ClassVar[frozenset[str]] = frozenset(
        {"unsplit", "unsplit_ridge", "strength", "earlier_strength", "tries"}
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


class HeldOutSearch(LeastSquaresSearch[HeldOutProblem, HeldOutState]):
    """Greedy-TN that judges networks, and the ridge, by held-out data; see `Search`."""

    uses = GreedyOptions.names() - {"terms", "certify", "after_target", "compress"}

    def __init__(self, problem: HeldOutProblem, limits: Limits, start: Start) -> None:
        super().__init__(problem, limits, HeldOutState(), problem.context, start)
        self._first = {knob.name: knob.read(problem.objective) for knob in KNOBS}

    @property
    def answer(self) -> Fitted | None:
        earlier, now = self.state.earlier, super().answer
        return earlier if earlier is not None and (now is None or self._prefers(earlier, now)) else now

    @property
    def tuned(self) -> HeldOut:
        """The data with the ridge and the strength of priors of the answer."""
        state = self.state
        is_earlier = state.earlier is not None and self.answer is state.earlier
        earlier = (state.earlier_ridge, state.earlier_strength)
        return self._at(*(earlier if is_earlier else (state.ridge, state.strength))).objective

    @property
    def ridge(self) -> float:
        """The ridge of the answer."""
        return self.tuned.ridge

    @property
    def patience(self) -> int | None:
        return self.problem.options.patience

    @property
    def _now(self) -> HeldOutProblem:
        """The problem with the ridge and the strength in use."""
        return self._at(self.state.ridge, self.state.strength)

    def _at(self, *values: float | None) -> HeldOutProblem:
        """The problem with other values of the knobs; None for the first ones."""
        objective = self.problem.objective
        for knob, value in zip(KNOBS, values, strict=True):
            objective = objective if value is None else knob.turn(objective, value)
        return replace(self.problem, objective=objective)

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {
            "start": self._start,
            "grow": self._grow,
            "try": self._try,
            "exchange": self._exchange,
            "regrow": self._regrow,
            "shrink": self._shrink,
        }

    # -- phases ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        state, is_random = self.state, self.start.init is None
        state.current = self._fit_first(RANK_ONE_SWEEPS if is_random else None)
        if is_random:
            self._try_ones()
        self._tune()
        self._record("start")
        self._note_best()
        state.phase = "shrink" if self._is_reached(self.current) else "grow"

    def _try_ones(self) -> None:
        """Start from nearly constant cores where that is better: random signs can be beyond ALS's reach."""
        random = self.start.random(self.current.network.structure, self.context.generator)
        even = TensorNetwork(random.structure, [1.0 + 0.1 * c for c in random.cores])
        trial = refit(self._now, even, sweeps=RANK_ONE_SWEEPS)
        if trial.measure < self.current.measure:
            self.state.current = trial

    def _grow(self) -> None:
        state, problem = self.state, self._now
        care = self._care(self.current, randomise=state.start > 0 and not self._is_slow(self.current))
        try:
            grown = grow_once(problem, self.current, care)
        except MemoryLimitError:
            self._end_growth(StopReason.MEMORY_LIMIT)
            return
        if care.memory is not None:
            state.gains = care.memory.gains
        if grown is None:
            self._end_growth(self._why_not())
            return
        state.current, edge = grown
        self._tune()
        if problem.options.split_while_growing:
            self._split_while_growing()
        self._record("grow", edge)
        self._note_best()
        if self._is_reached(self.current):
            self._end_growth(StopReason.TARGET_REACHED)
        elif state.stale >= 2 and problem.holds_out and self._is_near_budget:
            self._end_growth(StopReason.MAX_PARAMETERS)
        elif state.stale >= problem.options.patience:
            self._end_growth(StopReason.VALIDATION)

    @property
    def _is_blind(self) -> bool:
        """Whether the growth from rank one has learned nothing, as far as held-out entries tell."""
        if self.state.start > 0 or self._has_learned(self.best):
            return False
        return self.state.tries < len(self._starts)

    def _has_learned(self, fitted: Fitted) -> bool:
        """Whether held-out entries do not say that a network from scratch has learned nothing."""
        if self.start.init is not None or self._is_reached(fitted):
            return True
        return has_learned(self.problem.objective, fitted)

    @cached_property
    def _starts(self) -> list[Structure]:
        """Structures of small rank to start from; the same ones whenever the run is resumed."""
        strengths = self.problem.objective.interactions()
        return [] if strengths is None else starting_structures(self.problem, strengths)

    def _try(self) -> None:
        """A random start of small rank, to grow from if it has learned something."""
        state = self.state
        if state.tries >= len(self._starts):  # as if there were none
            assert state.outcome is not None
            self._end_growth(state.outcome)
            return
        network = self.start.random(self._starts[state.tries], self.context.generator)
        ridge = START_RIDGE if RIDGE in self._free_knobs else state.ridge
        problem = self._at(ridge, state.strength)
        trial = refit(problem, network, sweeps=START_SWEEPS, tolerance=START_TOLERANCE)
        state.tries += 1
        if trial.measure < self.best.measure and has_learned(problem.objective, trial):
            state.current, state.ridge, state.tuned_size, state.gains = trial, ridge, 0, {}
            state.outcome = None  # of the growth that it replaces
            self._tune()
            self._note_best()
            state.phase = "shrink" if self._is_reached(self.current) else "grow"
            trial = self.current
        self._record("try", fitted=trial)

    @property
    def _is_near_budget(self) -> bool:
        """Whether two growths without a gain are enough to stop."""
        budget = self.limits.max_parameters
        return budget is not None and self.current.size > 0.95 * budget

    def _care(self, fitted: Fitted, *, randomise: bool = False) -> Care:
        """How edges are scored: all or those that may win, and how many of them are refitted."""
        state, problem = self.state, self.problem
        structure = fitted.network.structure
        lazy = problem.options.edge_score == "per_parameter" and problem.pace.is_selective(structure)
        few = problem.refits_fully(structure)  # so few held-out entries that luck decides
        doubts = not few and (not lazy or len(state.steps) % 3 == 0)  # in slow networks seldom
        return Care(
            randomise=randomise,
            doubt=problem.options.second_looks if doubts else 0,
            memory=ScoreMemory(state.gains, problem.options.least_growth) if lazy else None,
        )

    def _is_slow(self, fitted: Fitted) -> bool:
        return self.problem.pace.is_slow(fitted.network.structure)

    def _why_not(self) -> StopReason:
        """Why no edge grew."""
        problem, structure = self.problem, self.current.network.structure
        allowed = problem.policy.growable(structure)
        if not allowed:
            return StopReason.SATURATED
        if len(problem.policy.growable(structure, self.limits.max_parameters)) < len(allowed):
            return StopReason.MAX_PARAMETERS
        return StopReason.VALIDATION if problem.holds_out else StopReason.NO_PROGRESS

    def _split_while_growing(self) -> None:
        """Split a node of the network that just grew, where that costs almost nothing."""
        problem = self._now
        if problem.holds_out:
            self._take_split(split_closely(problem, self.current), self._acceptable(self.current.measure))
        else:
            self.state.current = split_exactly(problem, self.current) or self.current

    def _end_growth(self, reason: StopReason) -> None:
        """Continue from the network to return; within a budget, first from one that a split makes smaller."""
        state = self.state
        if self._is_blind:
            state.phase, state.outcome = "try", reason
            return
        is_no_better = state.unsplit is not None and self.best.measure >= state.unsplit
        if is_no_better:  # the last split led to nothing
            state.ridge = state.unsplit_ridge
        within_budget = reason == StopReason.MAX_PARAMETERS  # all of it may be used
        if within_budget and not is_no_better and self._split_within_budget():
            return
        state.outcome = reason
        state.current = state.best if within_budget else self._smallest_of_the_best()
        state.phase = "shrink"
        if within_budget:
            state.phase = "exchange" if self._leaves_room else "regrow"

    def _split_within_budget(self) -> bool:
        """Split a node of the best network, so that there is room to grow on."""
        state, best, ridge = self.state, self.best, self.state.ridge
        if not (self.problem.options.prune and self.problem.holds_out):
            return False
        state.current = best
        if not self._split(self._acceptable(best.measure)):
            return False
        state.unsplit, state.unsplit_ridge, state.stale = best.measure, ridge, 0
        state.phase = "grow"
        return True

    def _split(self, acceptable: float) -> bool:
        """Split a node of the current network if the held-out error allows it."""
        problem = replace(self._now, target=acceptable)
        if not self._take_split(split_freely(problem, self.current), acceptable):
            return False
        self._record("split")
        self._note_best()
        return True

    def _take_split(self, networks: Iterable[TensorNetwork], acceptable: float) -> bool:
        """Continue with the first of some networks whose held-out error, after a refit, is acceptable."""
        state = self.state
        for network in networks:
            trial, ridge = self._judge(network)
            if trial.measure <= acceptable:
                state.current, state.ridge = trial, ridge
                return True
            if self.context.is_out_of_time:
                break
        return False

    def _judge(self, network: TensorNetwork) -> tuple[Fitted, float | None]:
        """Refit a network of another graph, with a ridge of its own.

        The ridge shrinks every core: one that suits a network is too strong once a node is split in two.
        """
        fitted = refit(self._now, network)
        if RIDGE not in self._free_knobs:
            return fitted, self.state.ridge
        return self._chooser(RIDGE).choose(fitted)

    @property
    def _leaves_room(self) -> bool:
        """Whether ranks may be exchanged, and growth left over 2 % of the budget or more."""
        assert self.limits.max_parameters is not None
        allowed = self.problem.options.overshoot > 0.0 and self.problem.holds_out
        return allowed and self.best.size < 0.98 * self.limits.max_parameters

    def _exchange(self) -> None:
        """Within a budget: other ranks in place of some, while that helps."""
        is_better = self._improve_on_best("exchange", exchange, gain=3e-3)
        if not (is_better and self._leaves_room):
            self.state.phase = "regrow"

    def _regrow(self) -> None:
        """Within a budget: give up the ranks that matter least and grow others, while that helps."""
        state, cycles = self.state, self.problem.options.regrow_cycles
        if (cycles is not None and state.cycles >= cycles) or state.stalls >= 2:
            state.phase = "shrink"
            return
        state.cycles += 1
        is_better = self._improve_on_best(
            "regrow", lambda p, best, care: regrow(p, best, best, care), gain=KNOB_GAIN
        )
        state.stalls = 0 if is_better else state.stalls + 1

    def _improve_on_best(
        self, kind: str, cycle: Callable[[Problem, Fitted, Care], Fitted | None], gain: float
    ) -> bool:
        """Take what a cycle makes of the best network if that lowers the held-out error by a share."""
        try:
            trial = cycle(self._now, self.best, self._care(self.best))
        except MemoryLimitError:
            return False
        if trial is None or not trial.measure < self.best.measure * (1.0 - gain):
            return False
        self.state.current = self.state.best = trial
        self._record(kind)
        return True

    def _shrink(self) -> None:
        """Remove rank while the held-out error stays where it is; too costly in large networks."""
        state = self.state
        if self._may_shrink:
            acceptable = max(self.problem.target, self._acceptable(self.best.measure))
            smaller = prune_once(replace(self._now, target=acceptable), self.current)
            if smaller is not None:
                state.current, reduction = smaller
                self._record(reduction.kind, reduction.edge)
                self._note_best()
                return
            if self._split(acceptable):  # a split that fits noise is not undone: first lower all ranks
                return
        self._settle()

    @property
    def _may_shrink(self) -> bool:
        """Whether a smaller network is looked for: not within a budget, nor where refits are slow."""
        problem = self.problem
        allowed = problem.options.prune and problem.holds_out
        return allowed and self.state.outcome != StopReason.MAX_PARAMETERS and not self._is_slow(self.current)

    def _settle(self) -> None:
        """Keep the smallest, or a smaller network for the completed tensor; choose the ridge finely."""
        state = self.state
        acceptable = self._acceptable(self.best.measure)
        state.best = state.current
        if self._may_shrink:
            smaller = self._decompose(self.current, acceptable)
            if smaller is not None:
                (state.current, state.ridge), state.best = smaller, smaller[0]
                self._record("decompose")
        for knob in self._free_knobs:
            self._turn(knob, self._chooser(knob).choose_finely)
        state.best = state.current
        if self._another_start_pays:
            self._start_again()
        elif self.answer is None or self._has_learned(self.answer):
            self._end(state.outcome or StopReason.TARGET_REACHED)
        else:
            self._end(StopReason.NOTHING_LEARNED)

    @property
    def _another_start_pays(self) -> bool:
        """Whether to look for a better network from scratch: where that is cheap, or time is no object."""
        state, o = self.state, self.problem.options
        more = state.start + 1 < o.starts and self.problem.holds_out and self.start.init is None
        if not more or self.best.measure <= self._exact or not self.best.network.structure.edges:
            return False
        return o.regrow_cycles != 0 or self.problem.refits_fully(self.best.network.structure)

    def _end(self, reason: StopReason) -> None:
        if self.state.earlier is not None and self.hit_limit:  # an earlier start met the request
            reason = self.state.outcome or reason
        super()._end(reason)

    def _start_again(self) -> None:
        """Keep the best of all starts, and begin with another one."""
        state = self.state
        tuned = self.tuned
        state.earlier, state.earlier_ridge = self.answer, tuned.ridge
        state.earlier_strength = tuned.penalties.strength
        state.current = state.best = state.ridge = state.strength = state.unsplit = None
        state.tuned_size = state.stale = state.cycles = state.stalls = 0
        state.gains = {}
        state.start += 1
        state.phase = "start"

    def _decompose(self, fitted: Fitted, acceptable: float) -> tuple[Fitted, float | None] | None:
        """A smaller network for the completed tensor, and its ridge, from the search on full data, if any.

        Bounds on the rank across every cut, closed forms for trees and restarts are only available there. The
        completed tensor is itself uncertain: by about the noise times the root of parameters per entry.
        """
        problem, structure = self.problem, fitted.network.structure
        if problem.objective.nonnegative(structure):
            return None  # that search knows no such cores
        if structure.num_entries > 2_000_000 or self.context.is_out_of_time:
            return None  # more entries take longer than the completion
        if structure.num_parameters > max(COMPACT * structure.num_entries, 1000):
            return None  # large for what it stands for: many solves of wide cores, and nothing found
        if structure.num_entries * fitted.network.dtype.itemsize > problem.memory_limit / SVD_COPIES:
            return None
        dense = fitted.network.to_dense().cpu()
        target = DenseLeastSquares(dense)
        noise = fitted.measure / problem.scale * math.sqrt(fitted.size / problem.objective.num_fitted)
        is_exact = fitted.measure <= self._exact
        error = 0.5 * math.sqrt(target.epsilon) if is_exact else noise
        full = Problem(
            target,
            GreedyOptions() if is_exact else GreedyOptions(starts=1, lookahead=1),
            problem.policy,
            Context(self.context.generator),
            target=error * target.norm,
            max_parameters=structure.num_parameters - 1,
            memory_limit=problem.memory_limit,
            split_nodes=problem.split_nodes,
            bounds=CutBounds.within(problem.memory_limit, dense, error),
        )
        limits = Limits(max_error=error, max_seconds=self.context.seconds_left)
        search = GreedySearch(full, limits, Start(dtype=dense.dtype))
        for _ in search:
            pass
        if search.answer is None or search.answer.size >= fitted.size:
            return None
        if not self._now.fits(search.answer.network.structure):
            return None
        trial, ridge = self._judge(search.answer.network.to(self.start.device))
        return (trial, ridge) if trial.measure <= acceptable else None

    # -- decisions -------------------------------------------------------------------------------------

    @property
    def _exact(self) -> float:
        """Held-out loss that counts as zero."""
        return math.sqrt(self.problem.objective.epsilon) * self.problem.scale

    def _is_reached(self, fitted: Fitted) -> bool:
        goal = self.problem.target if self.limits.max_error is not None else 0.0
        return fitted.measure <= (max(goal, self._exact) if self.problem.holds_out else goal)

    def _acceptable(self, loss: float) -> float:
        """Held-out loss that cannot be told from another one: half a standard error above it."""
        slack = 0.5 / math.sqrt(2.0 * max(self.problem.objective.num_held_out, 1))
        return max(loss * (1.0 + slack), self._exact)

    def _prefers(self, one: Fitted, other: Fitted) -> bool:
        """Whether `one` is the better answer: the smaller of two that cannot be told apart."""
        if self.limits.max_parameters is None:
            acceptable = max(self._acceptable(min(one.measure, other.measure)), self.problem.target)
            if one.measure <= acceptable and other.measure <= acceptable:
                return (one.size, one.measure) <= (other.size, other.measure)
        return one.measure <= other.measure

    def _note_best(self) -> None:
        state = self.state
        if state.best is None or self.current.measure < state.best.measure * (1.0 - LEAST_GAIN):
            state.best, state.stale = state.current, 0
        else:
            state.stale += 1

    def _smallest_of_the_best(self) -> Fitted:
        """The smallest network on the path that is as good as the best."""
        problem = self._now
        if not problem.holds_out:
            return self.best
        most = self._acceptable(self.best.measure) / problem.scale
        point = best_on_path(self.state.path, most, problem.max_parameters)
        if point is None or point.num_parameters >= self.best.size:
            return self.best
        return measure(problem, point.network)

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
