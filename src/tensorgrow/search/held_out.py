"""Growth by the error on held-out entries: what changes when only some entries are known.

Phases of a run::

    start -> grow ... grow -> (where nothing is learned: try ... -> grow ...)
          -> (where noise grows with the level: weigh -> grow ...)
          -> (within a budget: split -> grow ... -> exchange ... -> regrow ...)
          -> shrink and split ... -> done

and once more from the start where that pays.

The error on fitted entries always falls as the network grows; the error on held-out ones does not. So the
latter decides everything: which edge, how strong a ridge, when to stop (`patience` steps without gain), and
which of the visited networks to return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..objectives import HeldOut
from ..results import best_on_path
from ..steps import StopReason
from ..structure import Structure
from .blind import START_RIDGE, START_SWEEPS, START_TOLERANCE, has_learned, starting_structures
from .compaction import decompose_completed
from .grow import Care, grow_once, measure, refit
from .knobs import KNOB_GAIN, RIDGE
from .least_squares import RANK_ONE_SWEEPS
from .noise import choose_power
from .options import GreedyOptions
from .problem import Problem
from .reduce import prune_once, split_closely, split_exactly, split_freely
from .regrow import exchange, regrow
from .score import ScoreMemory
from .search import LEAST_GAIN
from .state import Fitted
from .tuned_search import TunedSearch
from .verdict import Verdict


class HeldOutSearch(TunedSearch):
    """Greedy-TN that judges networks, and the ridge, by held-out data; see `Search`."""

    uses = GreedyOptions.names() - {"terms", "certify", "after_target", "compress"}

    @property
    def answer(self) -> Fitted | None:
        earlier, now = self.state.earlier, super().answer
        return (
            earlier if earlier is not None and (now is None or self._verdict.prefers(earlier, now)) else now
        )

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
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {
            "start": self._start,
            "grow": self._grow,
            "try": self._try,
            "weigh": self._weigh,
            "exchange": self._exchange,
            "regrow": self._regrow,
            "shrink": self._shrink,
        }

    # -- phases ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        state, is_random = self.state, self.start.init is None
        network = self.start.first(self.problem.objective.dims, self.context.generator)
        if state.power is None and self.problem.power is not None:
            state.power, state.pilot = self.problem.power, network if self.problem.power else None
        sweeps = RANK_ONE_SWEEPS if is_random else None
        state.current = refit(self._now, network, sweeps=sweeps, however_late=True)
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

    def _weigh(self) -> None:
        """Let entries whose noise is larger count less, as far as held-out ones allow; then grow on."""
        state, reason = self.state, self.state.outcome
        state.current = self.best
        self._settle_strength()
        pilot, chosen = self.current.network, choose_power(self._now, self.current)
        state.power, state.outcome = 0.0, None
        if chosen is None:
            assert reason is not None
            self._note_best()
            self._end_growth(reason)
            return
        state.current, state.power = chosen
        state.pilot, state.stale, state.gains = pilot, 0, {}
        self._settle_strength()
        state.best = state.current
        self._record("weigh")
        state.phase = "grow"

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
        if state.power is None and self.problem.holds_out and not self._is_reached(self.best):
            state.phase, state.outcome = "weigh", reason
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
        """Remove rank while the held-out error stays where it is, or the target is met without any.

        Too costly in large networks.
        """
        state, acceptable = self.state, self.problem.target
        if self._may_shrink:
            if self.problem.holds_out:
                acceptable = max(acceptable, self._acceptable(self.best.measure))
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
        allowed = problem.options.prune and (problem.holds_out or self._is_reached(self.current))
        return allowed and self.state.outcome != StopReason.MAX_PARAMETERS and not self._is_slow(self.current)

    def _settle(self) -> None:
        """Keep the smallest, or a smaller network for the completed tensor; choose the ridge finely."""
        state = self.state
        acceptable = self._acceptable(self.best.measure)
        state.best = state.current
        if self._may_shrink and self.problem.holds_out:
            self._compact(acceptable)
        self._tune_finely()
        state.best = state.current
        if self._another_start_pays:
            self._start_again()
        elif self.answer is None or self._has_learned(self.answer):
            self._end(state.outcome or StopReason.TARGET_REACHED)
        else:
            self._end(StopReason.NOTHING_LEARNED)

    def _compact(self, acceptable: float) -> None:
        """Continue with a smaller network for the completed tensor, if there is an acceptable one."""
        state = self.state
        exact = self.current.measure <= self._verdict.exact
        smaller = decompose_completed(self._now, self.current, is_exact=exact)
        if smaller is None:
            return
        trial, ridge = self._judge(smaller.to(self.start.device))
        if trial.measure <= acceptable:
            state.current, state.best, state.ridge = trial, trial, ridge
            self._record("decompose")

    @property
    def _another_start_pays(self) -> bool:
        """Whether to look for a better network from scratch: where that is cheap, or time is no object."""
        state, o = self.state, self.problem.options
        more = state.start + 1 < o.starts and self.problem.holds_out and self.start.init is None
        if not more or self.best.measure <= self._verdict.exact or not self.best.network.structure.edges:
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

    # -- decisions -------------------------------------------------------------------------------------

    @property
    def _verdict(self) -> Verdict:
        return Verdict(self.problem, self.limits)

    def _is_reached(self, fitted: Fitted) -> bool:
        return self._verdict.is_reached(fitted)

    def _acceptable(self, loss: float) -> float:
        return self._verdict.acceptable(loss)

    def _note_best(self) -> None:
        state = self.state
        if state.best is None or self.current.measure < state.best.measure * (1.0 - LEAST_GAIN):
            state.best, state.stale = state.current, 0
        else:
            state.stale += 1

    def _smallest_of_the_best(self) -> Fitted:
        """The smallest network on the path that is as good as the best."""
        problem = self._now
        if not problem.holds_out or self.state.pilot is not None:  # some of the path have other weights
            return self.best
        most = self._acceptable(self.best.measure) / problem.scale
        point = best_on_path(self.state.path, most, problem.max_parameters)
        if point is None or point.num_parameters >= self.best.size:
            return self.best
        return measure(problem, point.network)
