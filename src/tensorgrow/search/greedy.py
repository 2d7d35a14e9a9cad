"""Greedy-TN (Algorithm 1 of the paper) as a resumable state machine.

Phases of a run::

    start -> grow ... grow -> prune ... -> tree -> (next start -> grow ...) -> regrow ... -> done

Every advance makes one move and leaves a state from which the rest of the run follows: network, best network,
random generator, counters. That state is what a checkpoint holds, so a run that was killed and resumed takes
the same steps as one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..errors import MemoryLimitError
from ..steps import StopReason
from ..structure import Edge
from .edges import EdgePolicy
from .grow import Care, grow_once, refit
from .least_squares import RANK_ONE_SWEEPS, LeastSquaresSearch
from .limits import Limits
from .options import GreedyOptions
from .problem import Problem
from .reduce import merge_internal, prune_once, split_exactly
from .regrow import regrow
from .search import Start
from .state import Fitted, NetworkState
from .term import add_term
from .trees import build_tree, smallest_tree

# Later starts are abandoned this far above the best size: pruning seldom makes up for more.
ABANDON_ABOVE = 1.3
# Cycles without a gain after which the next one starts from the best network again; an accepted cycle may be
# this much larger than the current network.
STALLS_BEFORE_RETURN = 12
REGROW_SLACK = 0.02
# Regrow cycles for targets that look exact but whose structure is not certified.
EXACT_CYCLES = 12
# Share of the time after which no further start begins: regrowing needs the other half.
HALF_TIME = 0.45


@dataclass
class GreedyState(NetworkState):
    """Of a `GreedySearch`: regrow cycles, and those of them since the last gain."""

    cycles: int = 0
    stalls: int = 0


class GreedySearch(LeastSquaresSearch[Problem, GreedyState]):
    """Greedy-TN on a least-squares problem; see `Search`."""

    uses = GreedyOptions.names() - {"ridge", "patience", "overshoot"}

    def __init__(
        self, problem: Problem, limits: Limits, start: Start | None = None, state: GreedyState | None = None
    ) -> None:
        super().__init__(problem, limits, state or GreedyState(), problem.context, start)

    # -- phases ----------------------------------------------------------------------------------------

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {
            "start": self._start,
            "grow": self._grow,
            "prune": self._prune,
            "tree": self._tree,
            "regrow": self._regrow,
        }

    def _start(self) -> None:
        state, problem = self.state, self.problem
        state.current = self._fit_first(RANK_ONE_SWEEPS)
        self._record("start")
        if self._is_reached(self.current):
            state.phase = "prune"
        else:
            # Exact targets are often trees: a size to beat is worth having before growing.
            state.phase = "tree" if problem.is_exact and state.start == 0 else "grow"

    def _grow(self) -> None:
        state, problem = self.state, self.problem
        if state.best is not None and self.current.size >= self._abandon_at(state.best):
            self._next_start()
            return
        try:
            care = Care(
                randomise=state.start > (0 if problem.is_exact else 1),
                lookahead=1 if state.start == 0 and problem.options.lookahead is None else None,
            )
            grown = grow_once(problem, self.current, care)
        except MemoryLimitError:
            self._end(StopReason.MEMORY_LIMIT)
            return
        edge: Edge | None = None
        if grown is not None:
            state.current, edge = grown
        else:
            term = add_term(problem, self.current) if problem.options.terms else None
            if term is None:
                self._cannot_grow()
                return
            state.current = term
        if problem.options.split_while_growing:
            smaller = split_exactly(problem, state.current)
            if smaller is not None:
                state.current = smaller
        self._record("grow", edge)
        if self._is_reached(self.current):
            state.phase = "prune"

    def _abandon_at(self, best: Fitted) -> float:
        """Size at which a later start has lost: pruning may still shrink it, unless bounds forbid that."""
        bounds = self.problem.bounds
        certified = bounds is not None and not bounds.reducible_edges(best.network.structure)
        return best.size if certified else ABANDON_ABOVE * best.size

    def _cannot_grow(self) -> None:
        """No edge fits the budget, or none helps."""
        state, problem = self.state, self.problem
        structure = self.current.network.structure
        if state.best is not None:
            self._next_start()
        elif not problem.policy.growable(structure):
            self._end(StopReason.SATURATED)
        elif problem.policy.growable(structure, problem.max_parameters):
            self._end(StopReason.NO_PROGRESS)
        else:
            o = problem.options
            state.current = refit(
                problem, self.current.network, sweeps=o.final_sweeps, tolerance=o.final_tolerance
            )
            self._record("refit")
            state.best = state.current
            self._start_regrowing(StopReason.MAX_PARAMETERS)

    def _prune(self) -> None:
        state, problem = self.state, self.problem
        if problem.options.prune:
            smaller = prune_once(problem, self.current)
            if smaller is not None:
                state.current, reduction = smaller
                self._record(reduction.kind, reduction.edge)
                return
        now = self.current
        if state.best is None or (now.size, now.loss) < (state.best.size, state.best.loss):
            state.best = now
        if state.start == 0 and not problem.is_exact:
            state.phase = "tree"
        else:
            self._next_start()

    def _tree(self) -> None:
        """Compare with the smallest tree: before growing for exact targets, else after the first growth."""
        state, problem = self.state, self.problem
        bounds = problem.bounds
        tree = None if bounds is None or not self._may_use_trees() else smallest_tree(bounds)
        most = math.inf if problem.max_parameters is None else problem.max_parameters
        if tree is not None and tree[0] <= most and (state.best is None or tree[0] < state.best.size):
            assert bounds is not None
            network = build_tree(bounds.target, tree[1], tree[2], bounds.bases)
            network = network.to(self.start.device, self.start.dtype)
            fitted = refit(problem, network)
            if fitted.loss <= problem.target:
                state.best = Fitted(merge_internal(fitted.network), fitted.loss)
                self._record("tree", fitted=self.best)
        if problem.is_exact:
            state.phase = "grow"
        else:
            self._next_start()

    def _may_use_trees(self) -> bool:
        return self.problem.policy == EdgePolicy(None) and self.problem.split_nodes

    def _next_start(self) -> None:
        """Another growth from scratch where it may pay; otherwise regrow or end."""
        state, problem = self.state, self.problem
        more = state.start + 1 < problem.options.starts and self.start.init is None
        timed = problem.options.regrow_cycles is None and self.limits.max_seconds is not None
        again = (timed and not self._is_past_half_time()) or (self._looks_exact() and not self._is_settled())
        if more and (again or self._lookahead_pays()):
            state.start += 1
            state.phase = "start"
            return
        self._start_regrowing(StopReason.TARGET_REACHED if problem.target else StopReason.MAX_PARAMETERS)

    def _lookahead_pays(self) -> bool:
        """Whether a second growth, with lookahead, is worth its time: only the first one goes without."""
        state, problem = self.state, self.problem
        if state.start > 0 or problem.options.lookahead is not None or problem.is_exact or not problem.target:
            return False
        return not problem.pace.is_costly(self.best.network.structure)

    def _is_past_half_time(self) -> bool:
        assert self.limits.max_seconds is not None
        return self.state.elapsed > HALF_TIME * self.limits.max_seconds

    def _looks_exact(self) -> bool:
        """Whether some rank of the best structure is exactly what a cut of the target needs."""
        bounds, best = self.problem.bounds, self.state.best
        if bounds is None or best is None or not self.problem.target:
            return False
        structure = best.network.structure
        return len(bounds.reducible_edges(structure)) < len(structure.edges)

    def _is_settled(self) -> bool:
        """Whether the best structure is certified, and smallest possible or not beaten in two starts."""
        bounds, best = self.problem.bounds, self.state.best
        assert bounds is not None and best is not None
        if bounds.reducible_edges(best.network.structure):
            return False
        return self.state.start > 0 or best.size <= bounds.least_parameters()

    def _start_regrowing(self, otherwise: StopReason) -> None:
        state = self.state
        cycles = self._max_cycles()
        if cycles == 0 or state.best is None or not state.best.network.structure.edges:
            self._end(otherwise)
            return
        state.current = state.best
        state.phase = "regrow"

    def _max_cycles(self) -> float:
        o = self.problem.options
        if o.regrow_cycles is None:
            return math.inf
        if o.regrow_cycles == 0 and o.starts > 1 and self._looks_exact() and not self._is_settled():
            return EXACT_CYCLES
        return o.regrow_cycles

    def _regrow(self) -> None:
        state, problem = self.state, self.problem
        if state.cycles >= self._max_cycles():
            self._end(StopReason.TARGET_REACHED if problem.target else StopReason.MAX_PARAMETERS)
            return
        state.cycles += 1
        try:
            trial = regrow(problem, self.current, self.best)
        except MemoryLimitError:
            trial = None
        slack = 1.0 + REGROW_SLACK * float(torch.rand((), generator=self.context.generator))
        if trial is not None and self._measure(trial) <= self._measure(self.current) * slack:
            state.current = trial
        if trial is not None and self._measure(trial) < self._measure(self.best):
            state.best, state.stalls = trial, 0
            self._record("regrow", fitted=self.best)
        else:
            state.stalls += 1
            if state.stalls % STALLS_BEFORE_RETURN == 0:
                state.current = state.best

    # -- bookkeeping -----------------------------------------------------------------------------------

    def _measure(self, fitted: Fitted) -> float:
        """What regrowing minimises: the size under an error target, the loss under a budget."""
        return float(fitted.size) if self.problem.target else fitted.loss

    def _is_reached(self, fitted: Fitted) -> bool:
        return self.limits.max_error is not None and fitted.loss <= self.problem.target
