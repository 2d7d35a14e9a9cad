"""Greedy-TN (Algorithm 1 of the paper) as a resumable state machine.

Phases of a run::

    start -> grow ... grow -> prune ... -> tree -> (next start -> grow ...) -> regrow ... -> done

Exact targets begin with a tree and its cycles: start -> tree -> bypass ... -> grow.
Every advance makes one move and leaves a state from which the rest of the run follows: network, best network,
random generator, counters. That state is what a checkpoint holds, so a run that was killed and resumed takes
the same steps as one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch

from ..data.devices import flops_in
from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..objectives import SharesPasses
from ..steps import StopReason
from ..structure import Edge, Structure
from .core import CoreGrowth
from .edges import EdgePolicy
from .grow import Care, grow_once, measure, refit
from .least_squares import RANK_ONE_SWEEPS, LeastSquaresSearch
from .limits import Limits
from .options import QUICK_SWEEPS, GreedyOptions
from .pace import NOT_LONG
from .problem import Problem
from .reduce import bypass_exactly, merge_internal, prune_once, split_exactly
from .regrow import regrow
from .score import Gains, ScoreMemory
from .search import Start
from .state import Fitted, NetworkState
from .term import add_term
from .trees import build_tree, smallest_tree


@dataclass
class GreedyState(NetworkState):
    """Of a `GreedySearch`.

    Attributes
    ----------
    cycles, stalls
        Regrow cycles, and those of them since the last gain.
    flops, flops_at_target
        Arithmetic so far, and what it was when the error target was met; -1 before that.
    gains
        The last known gains of edges in the growth under way.
    """

    later: ClassVar[frozenset[str]] = frozenset({"flops", "flops_at_target", "gains"})

    cycles: int = 0
    stalls: int = 0
    flops: float = 0.0
    flops_at_target: float = -1.0
    gains: Gains = field(default_factory=dict)


class GreedySearch(LeastSquaresSearch[Problem, GreedyState]):
    """Greedy-TN on a least-squares problem; see `Search`."""

    uses = GreedyOptions.names() - {"ridge", "patience", "overshoot", "second_looks", "tune_every"}

    def __init__(self, problem: Problem, limits: Limits, start: Start) -> None:
        super().__init__(problem, limits, GreedyState(), problem.context, start)
        self._known_open: tuple[Structure, frozenset[Edge]] | None = None

    # -- phases ----------------------------------------------------------------------------------------

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {
            "start": self._start,
            "grow": self._grow,
            "prune": self._prune,
            "tree": self._tree,
            "bypass": self._bypass,
            "regrow": self._regrow,
        }

    def _advance(self) -> None:
        state = self.state
        self.context.flops = state.flops  # a resumed run adds up the same numbers in the same order
        super()._advance()
        state.flops = self.context.flops
        answer = self.answer
        if self._is_in_first_growth or state.flops_at_target >= 0.0:
            return
        if answer is not None and self._is_reached(answer):
            state.flops_at_target = state.flops

    @property
    def _is_in_first_growth(self) -> bool:
        """Whether the first growth goes on: it is what later work is compared with.

        A tree may meet an exact target before it. Counted from there, two of 60 growths on random graphs
        ended too early: one of them finds a network a quarter the size of the tree.
        """
        return self.state.start == 0 and self.state.phase in ("start", "tree", "bypass", "grow")

    @property
    def _is_spent(self) -> bool:
        """Whether enough was done to make a network smaller that meets the error target.

        Counted in arithmetic, not in seconds: one seed gives one result, whatever else the machine does.
        """
        share, at_target = self.problem.options.after_target, self.state.flops_at_target
        if share is None or at_target < 0.0:
            return False
        little = flops_in(NOT_LONG, self.problem.objective.device)
        return self.state.flops - at_target > max(share * at_target, little)

    def _start(self) -> None:
        state, problem = self.state, self.problem
        state.current, state.gains = self._fit_first(RANK_ONE_SWEEPS), {}
        self._record("start")
        if self._is_reached(self.current):
            state.phase = "prune"
        else:
            # Exact targets are often trees: a size to beat is worth having before growing.
            state.phase = "tree" if problem.is_exact and state.start == 0 else "grow"

    def _grow(self) -> None:
        state, problem = self.state, self.problem
        if state.best is not None and (self._is_spent or self.current.size >= self._abandon_at(state.best)):
            self._next_start()
            return
        core = self._core
        try:
            if core is None:
                grown = self._grow_on(problem, self.current)
            else:
                grown = self._grow_on(core.problem, core.lower(self.current))
        except MemoryLimitError:
            self._end(StopReason.MEMORY_LIMIT)
            return
        if grown is None:
            self._cannot_grow()
            return
        fitted, edge = grown
        kind = "term" if edge is None else "grow"
        state.current, edge = (fitted, edge) if core is None else core.lift(fitted, edge)
        self._record(kind, edge)
        if self._is_reached(self.current):
            state.phase = "prune"

    def _grow_on(self, problem: Problem, current: Fitted) -> tuple[Fitted, Edge | None] | None:
        """Raise an edge, or add a term where none helps; None when that does not help either."""
        start, options = self._growths, problem.options
        is_first, sweeps = start == 0 and options.lookahead is None, None
        more_follow = options.starts > 1 and problem.target and not problem.is_exact
        if is_first and more_follow and problem.pace.is_cheap(current.network.structure):
            # Another growth follows, with more care. So this one is that of `effort="fast"`, and what is left
            # of it seldom has more parameters.
            sweeps = min(options.sweeps, QUICK_SWEEPS)
        # On the core nodes have other numbers, and sweeps are cheap; where data is costly to read, one pass
        # scores all edges.
        lazy = options.edge_score == "per_parameter" and self._core is None
        lazy = lazy and not isinstance(problem.objective, SharesPasses)
        lazy = lazy and not problem.pace.is_cheap(current.network.structure)
        care = Care(
            randomise=start > (0 if problem.is_exact else 1),
            lookahead=1 if is_first else None,
            memory=ScoreMemory(self.state.gains, options.least_growth) if lazy else None,
            sweeps=sweeps,
        )
        grown: tuple[Fitted, Edge | None] | None = grow_once(problem, current, care)
        if care.memory is not None:
            self.state.gains = care.memory.gains
        if grown is None:
            term = add_term(problem, current) if options.terms else None
            grown = None if term is None else (term, None)
        if grown is None or not options.split_while_growing:
            return grown
        return split_exactly(problem, grown[0]) or grown[0], grown[1]

    @cached_property
    def _core(self) -> CoreGrowth | None:
        return CoreGrowth.of(self.problem)

    def _abandon_at(self, best: Fitted) -> float:
        """Size at which a later start has lost: pruning may still shrink it, unless bounds forbid that.

        It seldom makes up for more than 1.3, or than it did before: growth on a core ends far above the size
        that is left, and a video at 0.1 gave up its better growth just before the target. Exact targets are
        pruned to all that bounds allow: a dense graph of 7^5 takes 19 s, with growths far above its best 67.
        """
        trees = [step.num_parameters for step in self.state.steps if step.kind == "tree"]
        if self.state.start == 0 and trees:
            return trees[-1]  # before cycles were found in it: where legs are short, some stay hidden
        if self._is_certified:
            return best.size
        if self.problem.is_exact:
            return 1.3 * best.size
        earlier = [step.num_parameters for step in self.state.steps if step.start < self.state.start]
        return max([1.3 * best.size, *earlier])

    @property
    def _is_certified(self) -> bool:
        """Whether bounds say that no rank of the best network can be lowered."""
        return self.state.best is not None and self._open_edges == frozenset()

    @property
    def _open_edges(self) -> frozenset[Edge] | None:
        """Edges of the best network that bounds leave open; None without bounds. Every growth asks."""
        bounds, structure = self.problem.bounds, self.best.network.structure
        if bounds is None:
            return None
        if self._known_open is None or self._known_open[0] is not structure:
            self._known_open = structure, frozenset(bounds.reducible_edges(structure))
        return self._known_open[1]

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
            self._start_regrowing()

    def _prune(self) -> None:
        state, problem = self.state, self.problem
        if problem.options.prune and not self._is_spent:
            past = bypass_exactly(problem, self.current)
            if past is not None:
                state.current, edge = past
                self._record("bypass", edge)
                return
            smaller = prune_once(problem, self.current, splits_first=state.steps[-1].kind != "shrink")
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
        bounds, allowed = problem.bounds, problem.policy == EdgePolicy(None) and problem.split_nodes
        tree = None if bounds is None or not allowed else smallest_tree(bounds)
        most = math.inf if problem.max_parameters is None else problem.max_parameters
        if tree is not None and tree[0] <= most and (state.best is None or tree[0] < state.best.size):
            assert bounds is not None
            network = build_tree(bounds, *tree[1:]).to(self.start.device, self.start.dtype)
            fitted = self._fit_tree(network)
            if fitted is not None and fitted.loss <= problem.target:
                state.best = Fitted(merge_internal(fitted.network), fitted.loss)
                self._record("tree", fitted=self.best)
        if not problem.is_exact:
            self._next_start()
        else:
            state.phase = "grow" if state.best is None else "bypass"

    def _bypass(self) -> None:
        """Find cycles in a tree: it tells of all where legs are longer than the ranks at their node."""
        past = bypass_exactly(self.problem, self.best)
        if past is None:
            self.state.phase = "grow"
        else:
            self.state.best, edge = past
            self._record("bypass", edge, fitted=self.best)

    def _fit_tree(self, network: TensorNetwork) -> Fitted | None:
        """A tree from singular vectors, for exact targets as good as a fit; None: no room for one."""
        problem = self.problem
        if problem.is_exact:
            fitted = measure(problem, network)
            if fitted.loss <= problem.target:
                return fitted
        return refit(problem, network) if problem.fits(network.structure) else None

    def _next_start(self) -> None:
        """Another growth from scratch where it may pay; otherwise regrow or end."""
        state, problem = self.state, self.problem
        known = len(self.start.proposals)
        starts = known + problem.options.starts - (known > 0)
        more = state.start + 1 < starts and self.start.init is None and not self._is_spent
        # What is proposed is tried in any case, and a growth from scratch where bounds leave room for it.
        is_due = state.start + 1 < known or (state.start + 1 == known and not self._is_certified)
        if more and (is_due or self._has_time_for_a_start or self._may_be_smaller or self._lookahead_pays):
            state.start += 1
            state.phase = "start"
            return
        self._start_regrowing()

    @property
    def _growths(self) -> int:
        """Growths from scratch before this one."""
        return max(0, self.state.start - len(self.start.proposals))

    @property
    def _has_time_for_a_start(self) -> bool:
        """Whether the run ends by time, and enough is left: regrowing needs half of it."""
        limit = self.limits.max_seconds if self.problem.options.regrow_cycles is None else None
        return limit is not None and self.state.elapsed <= 0.45 * limit

    @property
    def _lookahead_pays(self) -> bool:
        """Whether a second growth, with lookahead, is worth its time: only the first one goes without."""
        state, problem = self.state, self.problem
        is_first = state.start == len(self.start.proposals)
        if not is_first or problem.options.lookahead is not None or problem.is_exact or not problem.target:
            return False
        # Between cheap and costly it took photograph A 20 s more, for nothing (one seed).
        return problem.pace.is_cheap(self.best.network.structure)

    @property
    def _may_be_smaller(self) -> bool:
        """Whether the target looks exact, and a smaller structure may represent it.

        It looks exact where some rank of the best structure is just what a cut of it needs. That structure is
        settled once all are: second starts made none of 40 planted rings and triangles smaller, and none of
        24 random graphs. Growth on a core hangs legs on nodes of their own, whose edges have the ranks of
        modes whatever the target looks like: third growths made one of 31 networks of fields, light fields
        and videos smaller, by 1 %.
        """
        best, problem = self.state.best, self.problem
        if best is None or self._open_edges is None or not problem.target:
            return False
        if self._core is not None and not problem.is_exact:
            return False
        return 0 < len(self._open_edges) < len(best.network.structure.edges)

    def _start_regrowing(self) -> None:
        if self._max_cycles() == 0 or not self.best.network.structure.edges:
            self._end(StopReason.MAX_PARAMETERS)  # unless the target is reached
            return
        self.state.current = self.state.best
        self.state.phase = "regrow"

    def _max_cycles(self) -> float:
        o = self.problem.options
        if o.regrow_cycles is None:
            return math.inf
        if o.regrow_cycles == 0 and o.starts > 1 and self._may_be_smaller and not self._is_spent:
            return 12  # for targets that look exact but whose structure is not certified
        return o.regrow_cycles

    def _regrow(self) -> None:
        state, problem = self.state, self.problem
        if state.cycles >= self._max_cycles():
            self._end(StopReason.MAX_PARAMETERS)  # unless the target is reached
            return
        state.cycles += 1
        try:
            trial = regrow(problem, self.current, self.best)
        except MemoryLimitError:
            trial = None
        # An accepted cycle may be a little larger than the current network.
        slack = 1.0 + 0.02 * float(torch.rand((), generator=self.context.generator))
        if trial is not None and self._measure(trial) <= self._measure(self.current) * slack:
            state.current = trial
        if trial is not None and self._measure(trial) < self._measure(self.best):
            state.best, state.stalls = trial, 0
            self._record("regrow", fitted=self.best)
        else:
            state.stalls += 1
            if state.stalls % 12 == 0:  # so long without a gain: from the best again
                state.current = state.best

    # -- bookkeeping -----------------------------------------------------------------------------------

    def _measure(self, fitted: Fitted) -> float:
        """What regrowing minimises: the size once the target is reached, until then the loss."""
        return float(fitted.size) if self._is_reached(self.best) else fitted.loss

    def _is_reached(self, fitted: Fitted) -> bool:
        return self.limits.max_error is not None and fitted.loss <= self.problem.target
