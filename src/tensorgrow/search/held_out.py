"""Growth by the error on held-out entries: what changes when only some entries are known.

Phases of a run::

    start -> grow ... grow -> (within a budget: exchange ... -> regrow ...) -> shrink ... -> done

and once more from the start where that pays.

The error on fitted entries always falls as the network grows; the error on held-out ones does not. So every
decision goes by the latter: which edge, how strong a ridge, when to stop (`patience` steps without gain), and
which of the visited networks to return.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..objectives import DenseLeastSquares, HeldOut
from ..results import StopReason, best_on_path
from .cuts import CutBounds
from .greedy import RANK_ONE_SWEEPS, GreedySearch
from .grow import Fitted, Problem, grow_once, measured, refit
from .limits import Limits
from .options import GreedyOptions
from .reduce import exchange, prune_once, regrow
from .score import ScoreMemory

__all__ = ["CompletionSearch"]

LEAST_RIDGE, LARGEST_RIDGE = 1e-14, 1.0
# Below this ridges hardly differ once there is noise: one step up from there leads here.
SMALL_RIDGE = 1e-3
# First factor between two ridges that are compared; its square next, and so on while that helps.
RIDGE_FACTOR = 10.0**0.5
LARGEST_FACTOR = 1e4
# At the end, when nothing is left that could overfit later: small steps, for any gain above rounding, and
# refits that go far enough to tell. What a weaker ridge gains shows late.
FINAL_FACTOR = 2.0
FINAL_GAIN = 3e-4
FINAL_SWEEPS = 12
FINAL_TOLERANCE = 2e-4
# Another ridge must lower the held-out error by this share. Unless it is chosen anew after every step, a
# weaker one must do better, for it pays at once and costs later, when there is more to overfit with. One
# above the default stalls the growth of large networks.
RIDGE_GAIN = 2e-3
WEAKER_RIDGE_GAIN = 1e-2
# The ridge is chosen again when the network has grown by this factor; in large networks it only rises.
TUNE_EVERY = 1.25
START_NOISE = 0.1
# Before the ridge is chosen for good, where sweeps are cheap.
SETTLING_SWEEPS = 300
SETTLING_TOLERANCE = 1e-5
# So near to the budget (as a share of it), this many growths without gain end the growth.
NEAR_BUDGET = 0.95
LAST_GROWTHS = 2
# Ranks are exchanged where more than this share of the budget is left over: what would help does not fit in.
# An exchange must lower the held-out error by that share to be kept.
LEFT_OVER = 0.02
EXCHANGE_GAIN = 3e-3
# All edges are scored while a sweep costs less than this; then only those that may win.
LAZY_FLOPS = 3e9
# Completed tensors up to this size are decomposed once more when the fit is exact.
DENSE_ENTRIES = 2_000_000
# Edges refitted beside the best-scored one: not in small networks, and in large ones every so many growths.
DOUBT = 2
DOUBT_EVERY = 3


@dataclass(frozen=True)
class _RidgeSteps:
    """How ridges are tried.

    Attributes
    ----------
    factor
        Between the first two ridges.
    growing
        Whether steps grow while they lead downwards, and one step up leads to ridges that matter.
    sweeps, tolerance
        Of the refit with another ridge; None: as after a growth.
    """

    factor: float = RIDGE_FACTOR
    growing: bool = True
    sweeps: int | None = None
    tolerance: float | None = None


class CompletionSearch(GreedySearch):
    """A `GreedySearch` that goes by held-out entries, and chooses the ridge by them."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._given = cast(HeldOut, self.problem.objective)

    @property
    def answer(self) -> Fitted | None:
        """The best network so far, of all starts."""
        kept, now = self.state.kept, super().answer
        return kept if kept is not None and (now is None or self._prefers(kept, now)) else now

    @property
    def ridge(self) -> float:
        """The ridge of the answer."""
        kept = self.state.kept
        return (
            self._ridge if kept is None or self.answer is not kept else self._or_given(self.state.kept_ridge)
        )

    @property
    def _ridge(self) -> float:
        """The ridge in use."""
        return self._or_given(self.state.ridge)

    def _or_given(self, ridge: float | None) -> float:
        return self._given.ridge if ridge is None else ridge

    @property
    def _phases(self) -> dict[str, Callable[[float], None]]:
        return {
            "start": self._start,
            "grow": self._grow,
            "exchange": self._exchange,
            "regrow": self._regrow,
            "shrink": self._shrink,
        }

    def _advance(self, begin: float) -> None:
        # The state may come from a checkpoint: what follows from it is put in place before every move.
        self.problem.objective = self._given.with_ridge(self._ridge)
        state = self.state
        before = replace(state, gains=dict(state.gains))
        try:
            super()._advance(begin)
        except BaseException:
            # The broken move is made again when the run goes on; it must start from the same state.
            names = [f.name for f in fields(state) if f.name not in ("elapsed", "steps", "path", "moments")]
            if before.current is None:  # a first fit is better than nothing
                names.remove("current")
            for name in names:
                setattr(state, name, getattr(before, name))
            raise

    # -- phases ----------------------------------------------------------------------------------------

    def _start(self, begin: float) -> None:
        state = self.state
        self._fit_first(None if self.init is not None else RANK_ONE_SWEEPS)
        if self.init is None:
            self._try_ones()
        self._tune()
        self._record("start", None, begin)
        self._note_best()
        state.phase = "shrink" if self._reached() else "grow"

    def _try_ones(self) -> None:
        """Start from nearly constant cores where that is better: random signs can be beyond ALS's reach."""
        state, problem = self.state, self.problem
        assert state.current is not None
        drawn = TensorNetwork.random(
            state.current.network.structure,
            random_state=problem.generator,
            dtype=self.dtype,
            device=self.device,
        )
        even = TensorNetwork(drawn.structure, [1.0 + START_NOISE * c for c in drawn.cores])
        trial = refit(problem, even, sweeps=RANK_ONE_SWEEPS)
        if trial.measure < state.current.measure:
            state.current = trial

    def _grow(self, begin: float) -> None:
        state, problem = self.state, self.problem
        assert state.current is not None
        self._prepare_growth(state.current)
        try:
            noisy = state.start > 0 and not self._is_large(state.current)
            grown = grow_once(problem, state.current, randomise=noisy)
        except MemoryLimitError:
            self._grown_up(StopReason.MEMORY_LIMIT)
            return
        if problem.memory is not None:
            state.gains = problem.memory.gains
        if grown is None:
            self._grown_up(self._why_not())
            return
        state.current, edge = grown
        self._tune()
        self._record("grow", edge, begin)
        self._note_best()
        if self._reached():
            self._grown_up(StopReason.TARGET_REACHED)
        elif state.stale >= LAST_GROWTHS and problem.holds_out and self._is_near_budget:
            self._grown_up(StopReason.MAX_PARAMETERS)
        elif state.stale >= problem.options.patience:
            self._grown_up(StopReason.VALIDATION)

    @property
    def _is_near_budget(self) -> bool:
        budget = self.limits.max_parameters
        assert self.state.current is not None
        return budget is not None and self.state.current.size > NEAR_BUDGET * budget

    def _prepare_growth(self, fitted: Fitted) -> None:
        """How edges are scored: all or those that may win, and how many of them are refitted."""
        state, problem = self.state, self.problem
        lazy = problem.options.edge_score == "per_parameter" and self._is_large(fitted)
        problem.memory = ScoreMemory(state.gains, problem.options.least_growth) if lazy else None
        few = problem.is_patient(fitted.network.structure)  # so few held-out entries that luck decides
        now = not few and (not lazy or len(state.steps) % DOUBT_EVERY == 0)
        problem.doubt = DOUBT if now else 0

    def _is_large(self, fitted: Fitted) -> bool:
        return self.problem.objective.sweep_flops(fitted.network.structure) > LAZY_FLOPS

    def _why_not(self) -> StopReason:
        """Why no edge grew."""
        state, problem = self.state, self.problem
        assert state.current is not None
        structure = state.current.network.structure
        allowed = problem.policy.growable(structure)
        if not allowed:
            return StopReason.SATURATED
        if len(problem.policy.growable(structure, self.limits.max_parameters)) < len(allowed):
            return StopReason.MAX_PARAMETERS
        return StopReason.VALIDATION if problem.holds_out else StopReason.NO_PROGRESS

    def _grown_up(self, reason: StopReason) -> None:
        """End the growth: go on from the network to return, or stop."""
        state = self.state
        state.grown = reason
        within_budget = reason == StopReason.MAX_PARAMETERS  # all of it may be used
        state.current = state.best if within_budget else self._chosen()
        state.phase = "shrink"
        if within_budget:
            state.phase = "exchange" if self._leaves_room else "regrow"

    @property
    def _leaves_room(self) -> bool:
        """Whether ranks may be exchanged, and there is budget left that growth could not use."""
        state, problem = self.state, self.problem
        assert state.best is not None and self.limits.max_parameters is not None
        wanted = problem.options.overshoot > 0.0 and problem.holds_out
        return wanted and state.best.size < (1.0 - LEFT_OVER) * self.limits.max_parameters

    def _exchange(self, begin: float) -> None:
        """Within a budget: other ranks in place of some, while that helps."""
        state = self.state
        assert state.best is not None
        self._prepare_growth(state.best)
        better = self._improve_on_best(exchange, begin, EXCHANGE_GAIN)
        if not (better and self._leaves_room):
            state.phase = "regrow"

    def _regrow(self, begin: float) -> None:
        """Within a budget: give up the ranks that matter least and grow others, while that helps."""
        state, problem = self.state, self.problem
        assert state.current is not None and state.best is not None
        cycles = problem.options.regrow_cycles
        if (cycles is not None and state.cycles >= cycles) or state.stalls >= 2:
            state.phase = "shrink"
            return
        state.cycles += 1
        better = self._improve_on_best(lambda p, best: regrow(p, best, best), begin, RIDGE_GAIN)
        state.stalls = 0 if better else state.stalls + 1

    def _improve_on_best(
        self, cycle: Callable[[Problem, Fitted], Fitted | None], begin: float, gain: float
    ) -> bool:
        """Take what a cycle makes of the best network if that lowers the held-out error by a share."""
        state = self.state
        assert state.best is not None
        try:
            found = cycle(self.problem, state.best)
        except MemoryLimitError:
            found = None
        if found is None or not found.measure < state.best.measure * (1.0 - gain):
            return False
        state.current = state.best = found
        self._record("regrow", None, begin)
        return True

    def _shrink(self, begin: float) -> None:
        """Remove rank while the held-out error stays where it is; too costly in large networks."""
        state, problem = self.state, self.problem
        assert state.current is not None and state.best is not None
        if self._may_shrink:
            grown_to, problem.target = problem.target, max(problem.target, self._acceptable)
            try:
                smaller = prune_once(problem, state.current)
            finally:
                problem.target = grown_to
            if smaller is not None:
                state.current, reduction = smaller
                self._record(reduction.kind, reduction.edge, begin)
                self._note_best()
                return
        self._settle(begin)

    @property
    def _may_shrink(self) -> bool:
        """Whether a smaller network is looked for: not within a budget, nor where refits are costly."""
        state, problem = self.state, self.problem
        assert state.current is not None
        wanted = problem.options.prune and problem.holds_out and state.grown != StopReason.MAX_PARAMETERS
        return wanted and not self._is_large(state.current)

    def _settle(self, begin: float) -> None:
        """Keep the smallest, or a smaller network for the completed tensor; choose the ridge finely."""
        state, problem = self.state, self.problem
        assert state.current is not None
        acceptable = self._acceptable
        state.best = state.current
        if self._may_shrink:
            smaller = self._decomposed(state.current, acceptable)
            if smaller is not None:
                state.current = state.best = smaller
                self._record("tree", None, begin)
        if self._may_tune:
            if problem.is_patient(state.current.network.structure):
                # The network may still be near that of a weaker ridge: only where it settles is it judged.
                state.current = refit(
                    problem, state.current.network, sweeps=SETTLING_SWEEPS, tolerance=SETTLING_TOLERANCE
                )
            self._choose_finely()
        state.best = state.current
        if self._another_start_pays:
            self._start_again()
        else:
            self._end(state.grown or StopReason.TARGET_REACHED)

    @property
    def _another_start_pays(self) -> bool:
        """Whether to look for a better network from scratch: where that is cheap, or time is no object."""
        state, o = self.state, self.problem.options
        assert state.best is not None
        wanted = state.start + 1 < o.starts and self.problem.holds_out and self.init is None
        if not wanted or state.best.measure <= self._exact or not state.best.network.structure.edges:
            return False
        return o.regrow_cycles != 0 or self.problem.is_patient(state.best.network.structure)

    def _end(self, reason: StopReason) -> None:
        if self.state.kept is not None and self.hit_limit:  # what was asked for was found before
            reason = self.state.grown or reason
        super()._end(reason)

    def _start_again(self) -> None:
        """Keep the best of all starts, and begin with another one."""
        state = self.state
        state.kept, state.kept_ridge = self.answer, self.ridge
        state.current = state.best = state.ridge = None
        state.tuned = state.stale = state.cycles = state.stalls = 0
        state.gains = {}
        state.start += 1
        state.phase = "start"

    def _decomposed(self, fitted: Fitted, acceptable: float) -> Fitted | None:
        """A smaller network for the completed tensor, from the search on full data; None when there is none.

        Bounds on the rank across every cut, closed forms for trees and restarts are only available there. The
        completed tensor is itself uncertain: by about the noise times the root of parameters per entry.
        """
        problem, structure = self.problem, fitted.network.structure
        if structure.num_entries > DENSE_ENTRIES or problem.out_of_time:
            return None
        dense = fitted.network.to_dense().cpu()
        target = DenseLeastSquares(dense)
        noise = fitted.measure / problem.scale * math.sqrt(fitted.size / self._given.num_fitted)
        is_exact = fitted.measure <= self._exact
        error = 0.5 * math.sqrt(target.epsilon) if is_exact else noise
        full = Problem(
            target,
            GreedyOptions() if is_exact else GreedyOptions(starts=1, lookahead=1),
            problem.policy,
            problem.generator,
            target=error * target.norm,
            max_parameters=structure.num_parameters - 1,
            split_nodes=problem.split_nodes,
            bounds=CutBounds(dense, error),
        )
        left = None if math.isinf(problem.deadline) else problem.deadline - time.perf_counter()
        search = GreedySearch(full, Limits(max_error=error, max_seconds=left), dtype=dense.dtype)
        for _ in search:
            pass
        found = search.answer
        if found is None or found.size >= fitted.size:
            return None
        trial = refit(problem, found.network.to(self.device))
        return trial if trial.measure <= acceptable else None

    # -- decisions -------------------------------------------------------------------------------------

    @property
    def _exact(self) -> float:
        """Held-out loss that counts as zero."""
        return math.sqrt(self.problem.objective.epsilon) * self.problem.scale

    def _reached(self) -> bool:
        assert self.state.current is not None
        goal = self.problem.target if self.limits.max_error is not None else 0.0
        if self.problem.holds_out:
            goal = max(goal, self._exact)
        return self.state.current.measure <= goal

    @property
    def _acceptable(self) -> float:
        """Held-out loss that cannot be told from the best: half a standard error more."""
        assert self.state.best is not None
        return self._not_measurably_above(self.state.best.measure)

    def _not_measurably_above(self, loss: float) -> float:
        slack = 0.5 / math.sqrt(2.0 * max(self._given.num_held_out, 1))
        return max(loss * (1.0 + slack), self._exact)

    def _prefers(self, one: Fitted, other: Fitted) -> bool:
        """Whether `one` is the better answer: the smaller of two that cannot be told apart."""
        if self.limits.max_parameters is None:
            acceptable = self._not_measurably_above(min(one.measure, other.measure))
            acceptable = max(acceptable, self.problem.target)
            if one.measure <= acceptable and other.measure <= acceptable:
                return (one.size, one.measure) <= (other.size, other.measure)
        return one.measure <= other.measure

    def _note_best(self) -> None:
        state = self.state
        assert state.current is not None
        if state.best is None or state.current.measure < state.best.measure * (1.0 - 1e-4):
            state.best, state.stale = state.current, 0
        else:
            state.stale += 1

    def _chosen(self) -> Fitted:
        """The smallest network on the path that is as good as the best."""
        state, problem = self.state, self.problem
        assert state.best is not None
        if not problem.holds_out:
            return state.best
        point = best_on_path(state.path, self._acceptable / (problem.scale or 1.0), problem.max_parameters)
        if point is None or point.num_parameters >= state.best.size:
            return state.best
        arrays = problem.objective.to_arrays(point.network)
        return measured(problem, point.network, problem.objective.loss(point.network.structure, arrays))

    @property
    def _may_tune(self) -> bool:
        return self.problem.options.ridge is None and self.problem.holds_out

    def _tune(self) -> None:
        """Try weaker and stronger ridges where the network has outgrown the last choice."""
        state, problem = self.state, self.problem
        assert state.current is not None
        patient = problem.is_patient(state.current.network.structure)
        if not self._may_tune or not (patient or state.current.size >= TUNE_EVERY * state.tuned):
            return
        state.tuned = state.current.size
        gain = RIDGE_GAIN if patient else WEAKER_RIDGE_GAIN
        if self._is_large(state.current) or not self._try_ridges(-1.0, gain):
            self._try_ridges(1.0, RIDGE_GAIN, largest=self._largest_ridge)

    @property
    def _largest_ridge(self) -> float:
        assert self.state.current is not None
        patient = self.problem.is_patient(self.state.current.network.structure)
        return LARGEST_RIDGE if patient else self._given.ridge

    def _choose_finely(self) -> None:
        """The last choice of the ridge, by factors of two."""
        state, problem = self.state, self.problem
        assert state.current is not None
        steps = _RidgeSteps(FINAL_FACTOR, False, FINAL_SWEEPS, FINAL_TOLERANCE)
        # Every ridge has the same sweeps: without, what more sweeps gain would count for the other one.
        state.current = refit(problem, state.current.network, sweeps=steps.sweeps, tolerance=steps.tolerance)
        if not self._try_ridges(-1.0, FINAL_GAIN, steps=steps):
            self._try_ridges(1.0, FINAL_GAIN, largest=self._largest_ridge, steps=steps)

    def _try_ridges(
        self,
        direction: float,
        gain: float,
        largest: float = LARGEST_RIDGE,
        steps: _RidgeSteps | None = None,
    ) -> bool:
        """Move the ridge in one direction for as long as that lowers the held-out error by a share."""
        steps = steps or _RidgeSteps()
        state, problem = self.state, self.problem
        assert state.current is not None
        if direction < 0 and state.current.size >= self._given.num_fitted:
            return False  # the ridge alone decides what the entries leave open
        factor, moved = steps.factor, False
        if steps.growing and direction > 0 and self._ridge * factor < SMALL_RIDGE:
            factor = SMALL_RIDGE / self._ridge
        while not problem.out_of_time:
            assert state.current is not None
            ridge = min(max(self._ridge * factor**direction, LEAST_RIDGE), largest)
            if ridge == self._ridge:
                break
            problem.objective = self._given.with_ridge(ridge)
            trial = refit(problem, state.current.network, sweeps=steps.sweeps, tolerance=steps.tolerance)
            if not trial.measure < state.current.measure * (1.0 - gain):
                problem.objective = self._given.with_ridge(self._ridge)
                break
            state.current, state.ridge, moved = trial, ridge, True
            factor = min(factor**2, LARGEST_FACTOR) if steps.growing and direction < 0 else steps.factor
        return moved
