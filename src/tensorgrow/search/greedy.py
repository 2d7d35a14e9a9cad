"""Greedy-TN (Algorithm 1 of the paper) as a resumable state machine.

Phases of a run::

    start -> grow ... grow -> prune ... -> tree -> (next start -> grow ...) -> regrow ... -> done

Every advance makes one move and leaves a state from which the rest of the run follows: network, best network,
random generator, counters. That state is what a checkpoint holds, so a run that was killed and resumed takes
the same steps as one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..results import StopReason
from ..structure import Edge, Structure
from .grow import Fitted, Problem, grow_once, refit
from .reduce import merge_internal, prune_once, regrow, split_exactly
from .search import Search
from .term import add_term
from .trees import build_tree, smallest_tree

__all__ = ["GreedySearch"]

# Later starts are abandoned this far above the best size; ruined networks return to the best after so many
# cycles without gain; an accepted cycle may be this much larger than the current one.
ABANDON_ABOVE = 1.3
STALLS_BEFORE_RETURN = 12
REGROW_SLACK = 0.02
RANK_ONE_SWEEPS = 100
# Regrow cycles for targets that look exact but whose structure is not certified.
EXACT_CYCLES = 12


class GreedySearch(Search):
    """Greedy-TN on a least-squares problem; see `Search`."""

    problem: Problem

    # -- phases ----------------------------------------------------------------------------------------

    @property
    def _phases(self) -> dict[str, Callable[[float], None]]:
        return {
            "start": self._start,
            "grow": self._grow,
            "prune": self._prune,
            "tree": self._tree,
            "regrow": self._regrow,
        }

    def _start(self, begin: float) -> None:
        state, problem = self.state, self.problem
        self._fit_first(RANK_ONE_SWEEPS)
        self._record("start", None, begin)
        if self._reached():
            state.phase = "prune"
        else:
            # Exact targets are often trees: a size to beat is worth having before growing.
            state.phase = "tree" if problem.is_exact and state.start == 0 else "grow"

    def _fit_first(self, sweeps: int | None) -> None:
        """Fit the network that the growth starts from."""
        state, problem = self.state, self.problem
        if self.init is not None and state.start == 0:
            network = self.init.to(self.device, self.dtype)
        else:
            network = TensorNetwork.random(
                Structure.rank_one(problem.objective.dims),
                random_state=problem.generator,
                dtype=self.dtype,
                device=self.device,
            )
        state.current = refit(problem, network, sweeps=sweeps)

    def _grow(self, begin: float) -> None:
        state, problem = self.state, self.problem
        assert state.current is not None
        if state.best is not None and state.current.size >= self._abandon_at(state.best):
            self._next_start()
            return
        try:
            grown = grow_once(
                problem,
                state.current,
                randomise=state.start > (0 if problem.is_exact else 1),
                lookahead=1 if state.start == 0 and problem.options.lookahead is None else None,
            )
        except MemoryLimitError:
            self._end(StopReason.MEMORY_LIMIT)
            return
        edge: Edge | None = None
        if grown is not None:
            state.current, edge = grown
        else:
            term = add_term(problem, state.current) if problem.options.terms else None
            if term is None:
                self._cannot_grow(begin)
                return
            state.current = term
        if problem.options.split_while_growing:
            smaller = split_exactly(problem, state.current)
            if smaller is not None:
                state.current = smaller
        self._record("grow", edge, begin)
        if self._reached():
            state.phase = "prune"

    def _abandon_at(self, best: Fitted) -> float:
        """Size at which a later start has lost: pruning may still shrink it, unless bounds forbid that."""
        bounds = self.problem.bounds
        certified = bounds is not None and not bounds.reducible_edges(best.network.structure)
        return best.size if certified else ABANDON_ABOVE * best.size

    def _cannot_grow(self, begin: float) -> None:
        """No edge fits the budget, or none helps."""
        state, problem = self.state, self.problem
        assert state.current is not None
        structure = state.current.network.structure
        if state.best is not None:
            self._next_start()
        elif not problem.policy.growable(structure):
            self._end(StopReason.SATURATED)
        elif problem.policy.growable(structure, problem.max_parameters):
            self._end(StopReason.NO_PROGRESS)
        else:
            o = problem.options
            state.current = refit(
                problem, state.current.network, sweeps=o.final_sweeps, tolerance=o.final_tolerance
            )
            self._record("refit", None, begin)
            state.best = state.current
            self._start_regrowing(StopReason.MAX_PARAMETERS)

    def _prune(self, begin: float) -> None:
        state, problem = self.state, self.problem
        assert state.current is not None
        if problem.options.prune:
            smaller = prune_once(problem, state.current)
            if smaller is not None:
                state.current, reduction = smaller
                self._record(reduction.kind, reduction.edge, begin)
                return
        now = state.current
        if state.best is None or (now.size, now.loss) < (state.best.size, state.best.loss):
            state.best = now
        if state.start == 0 and not problem.is_exact:
            state.phase = "tree"
        else:
            self._next_start()

    def _tree(self, begin: float) -> None:
        """Compare with the smallest tree: before growing for exact targets, else after the first growth."""
        state, problem = self.state, self.problem
        bounds = problem.bounds
        found = None if bounds is None or not self._trees_allowed() else smallest_tree(bounds)
        most = math.inf if problem.max_parameters is None else problem.max_parameters
        if found is not None and found[0] <= most and (state.best is None or found[0] < state.best.size):
            assert bounds is not None
            network = build_tree(bounds.target, found[1], found[2], bounds.bases)
            network = network.to(self.device, self.dtype)
            fitted = refit(problem, network)
            if fitted.loss <= problem.target:
                state.best = Fitted(merge_internal(fitted.network), fitted.loss)
                self._record("tree", None, begin)
        if problem.is_exact:
            state.phase = "grow"
        else:
            self._next_start()

    def _trees_allowed(self) -> bool:
        return self.problem.policy == type(self.problem.policy)(None) and self.problem.split_nodes

    def _next_start(self) -> None:
        """Another growth from scratch where it may pay; otherwise regrow or end."""
        state, problem = self.state, self.problem
        assert state.best is not None
        more = state.start + 1 < problem.options.starts and self.init is None
        timed = problem.options.regrow_cycles is None and self.limits.max_seconds is not None
        again = (timed and not self._half_time_gone()) or (self._looks_exact() and not self._settled())
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
        assert state.best is not None
        return not problem.is_costly(state.best.network.structure)

    def _half_time_gone(self) -> bool:
        assert self.limits.max_seconds is not None
        return self.state.elapsed > 0.45 * self.limits.max_seconds

    def _looks_exact(self) -> bool:
        """Whether some rank of the best structure is exactly what a cut of the target needs."""
        bounds, best = self.problem.bounds, self.state.best
        if bounds is None or best is None or not self.problem.target:
            return False
        structure = best.network.structure
        return len(bounds.reducible_edges(structure)) < len(structure.edges)

    def _settled(self) -> bool:
        """Whether the best structure is certified, and smallest possible or not beaten in two starts."""
        bounds, best = self.problem.bounds, self.state.best
        assert bounds is not None and best is not None
        if bounds.reducible_edges(best.network.structure):
            return False
        return self.state.start > 0 or best.size <= bounds.least_parameters()

    def _start_regrowing(self, otherwise: StopReason) -> None:
        state = self.state
        cycles = self._cycles_allowed()
        if cycles == 0 or state.best is None or not state.best.network.structure.edges:
            self._end(otherwise)
            return
        state.current = state.best
        state.phase = "regrow"

    def _cycles_allowed(self) -> float:
        o = self.problem.options
        if o.regrow_cycles is None:
            return math.inf
        if o.regrow_cycles == 0 and o.starts > 1 and self._looks_exact() and not self._settled():
            return EXACT_CYCLES
        return o.regrow_cycles

    def _regrow(self, begin: float) -> None:
        state, problem = self.state, self.problem
        assert state.current is not None and state.best is not None
        if state.cycles >= self._cycles_allowed():
            self._end(StopReason.TARGET_REACHED if problem.target else StopReason.MAX_PARAMETERS)
            return
        state.cycles += 1
        try:
            found = regrow(problem, state.current, state.best)
        except MemoryLimitError:
            found = None
        slack = 1.0 + REGROW_SLACK * float(torch.rand((), generator=problem.generator))
        if found is not None and self._measure(found) <= self._measure(state.current) * slack:
            state.current = found
        if found is not None and self._measure(found) < self._measure(state.best):
            state.best, state.stalls = found, 0
            self._record("regrow", None, begin)
        else:
            state.stalls += 1
            if state.stalls % STALLS_BEFORE_RETURN == 0:
                state.current = state.best

    # -- bookkeeping -----------------------------------------------------------------------------------

    def _measure(self, fitted: Fitted) -> float:
        """What regrowing minimises: the size under an error target, the loss under a budget."""
        return float(fitted.size) if self.problem.target else fitted.loss

    def _reached(self) -> bool:
        assert self.state.current is not None
        return self.limits.max_error is not None and self.state.current.loss <= self.problem.target

    def _end(self, reason: StopReason) -> None:
        state = self.state
        if state.best is None and state.current is not None and self._reached():
            state.best = state.current
        asked = self.limits.max_error is not None
        if asked and state.best is not None and state.best.measure <= self.problem.target:
            reason = StopReason.TARGET_REACHED  # more time would only have made it smaller
        super()._end(reason)

    def _errors(self, fitted: Fitted) -> tuple[float, float | None]:
        problem = self.problem
        held_out = None if fitted.validation is None else fitted.validation / (problem.scale or 1.0)
        return fitted.loss / (problem.objective.norm or 1.0), held_out
