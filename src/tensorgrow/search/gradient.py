"""Greedy growth for any differentiable loss: train, try edges, grow the best one, train again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import torch

from ..algebra import moves
from ..errors import DataError, MemoryLimitError
from ..network import TensorNetwork
from ..objectives import Differentiable, Screening, Sharing, Sweeping
from ..objectives.base import SliceFitter
from ..solvers import TrainingOptions, grow_state, improve, train
from ..solvers.deadline import check_time
from ..solvers.gradient import State
from ..steps import StopReason
from ..structure import Edge, Structure
from .edges import EdgePolicy
from .limits import Limits
from .options import GreedyOptions
from .score import Gains
from .search import LEAST_GAIN, Context, NetworkSearch, Start
from .state import Fitted, NetworkState


@dataclass(frozen=True)
class GradientProblem:
    """What a `GradientSearch` works on.

    Attributes
    ----------
    at_once
        Edges that may grow in one step: those with the best scores that share no node.
    shortlist
        Edges tried before a growth, once all were tried: half of them those that did best when last tried,
        half those that were not tried for longest. None: all.
    least_gain
        Share of its value by which the measure must fall for a growth to count as progress.
    resolution
        The measure must also fall by this much. Of a loss that is never negative: where no more than this is
        left, nothing more is trained or grown.
    """

    objective: Differentiable
    options: GreedyOptions
    training: TrainingOptions
    policy: EdgePolicy
    context: Context
    max_parameters: int | None = None
    target: float = -math.inf
    shortlist: int | None = None
    at_once: int = 1
    least_gain: float = LEAST_GAIN
    resolution: float = -math.inf


@dataclass
class GradientState(NetworkState):
    """Of a `GradientSearch`.

    Attributes
    ----------
    stale
        Growths since the measure fell.
    gains
        What edges gained when they were last tried, and at which step that was.
    moments
        What the optimiser remembers of each core.
    """

    stale: int = 0
    gains: Gains = field(default_factory=dict)
    moments: State = field(default_factory=list)


Slices = tuple[torch.Tensor, torch.Tensor]
Tried = tuple[Edge, Slices, float]
"""An edge, its fitted slices, and the score."""

# Further edges grow in the same step whose score is at least this share of the best.
WORTHWHILE = 0.25
# Together they may make a sweep so many times longer.
MOST_LONGER = 2.0


class GradientSearch(NetworkSearch[GradientProblem, GradientState]):
    """Greedy-TN on a differentiable loss; see `Search`.

    An edge is tried by training its new slices alone, everything else frozen. The score is the drop of the
    validation score (of the loss where there is none) per added parameter: losses may be negative, so that
    their logarithm does not serve.

    An objective that can screen edges does so instead, and several of the best grow in one step: where there
    are dozens of edges, training each of them, or growing one at a time, would take too long.
    """

    uses = frozenset({"edge_score", "slice_noise", "rank_increment", "transfer", "max_degree", "patience"})

    def __init__(self, problem: GradientProblem, limits: Limits, start: Start) -> None:
        super().__init__(problem, limits, GradientState(), problem.context, start)
        self._ran_out_of_memory = False  # whether an edge was refused for the memory it would need

    @property
    def patience(self) -> int | None:
        return self.problem.options.patience

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._start, "grow": self._grow}

    def _start(self) -> None:
        state, problem = self.state, self.problem
        network = self.start.first(problem.objective.dims, self.context.generator)
        state.current, state.moments = self._train(network, None)
        self._record("start")
        self._note_best()
        state.phase = "grow"
        if self._is_reached:
            self._end(StopReason.TARGET_REACHED)
        elif self.current.measure <= problem.resolution:
            self._end(StopReason.VALIDATION)

    def _grow(self) -> None:
        state, problem = self.state, self.problem
        network = self.current.network
        structure = network.structure
        edges = problem.policy.growable(structure, problem.max_parameters)
        if not edges:
            fits_no_more = problem.policy.growable(structure)
            self._end(StopReason.MAX_PARAMETERS if fits_no_more else StopReason.SATURATED)
            return
        if isinstance(problem.objective, Screening):
            self._grow_several(problem.objective, edges)
            return
        edges = self._shortlist(edges)
        fitter = problem.objective.around(network) if isinstance(problem.objective, Sharing) else None
        tried = [self._try(self.current, e, fitter) for e in edges]
        state.gains |= {edge: (score, len(state.steps)) for edge, _, score in tried}
        # Near the end, what several edges gain together no longer tells whether each of them is worth it.
        most_edges = 1 if state.stale else problem.at_once
        chosen = choose_edges(structure, tried, most_edges, problem.max_parameters, self._flops)
        while chosen:
            try:
                self._train_and_record(*self._grown(chosen), chosen[0][0])
                return
            except MemoryLimitError:  # each of them fits by itself, but not all together
                self._ran_out_of_memory = True
                chosen = chosen[: len(chosen) // 2]
        self._end(StopReason.MEMORY_LIMIT if self._ran_out_of_memory else StopReason.NO_PROGRESS)

    def _grown(self, chosen: list[tuple[Edge, Slices]]) -> tuple[TensorNetwork, State]:
        """The network with some edges grown, and the optimiser's memory for it."""
        problem, o = self.problem, self.problem.options
        network, moments = self.current.network, self.state.moments
        for (i, j), slices in chosen:
            moments = grow_moments(network.structure, moments, i, j)
            network = network.grow_edge(i, j, slices=slices)
            for _ in range(o.rank_increment - 1):
                if (i, j) not in problem.policy.growable(network.structure, problem.max_parameters):
                    break
                moments = grow_moments(network.structure, moments, i, j)
                network = network.grow_edge(i, j, noise=o.slice_noise, random_state=self.context.generator)
        if not o.transfer:
            network = self.start.random(network.structure, self.context.generator)
        return network, moments

    def _grow_several(self, objective: Screening, edges: list[Edge]) -> None:
        """Grow the edges that the objective proposes, all at once."""
        state, problem = self.state, self.problem
        network = self.current.network
        best, grown = objective.screen(network, edges, problem.max_parameters, self.context.generator)
        if not best:
            self._end(StopReason.SATURATED)
            return
        structure, moments = network.structure, state.moments
        for i, j in best:
            moments = grow_moments(structure, moments, i, j)
            structure = structure.with_rank(i, j, structure.rank(i, j) + 1)
        self._train_and_record(grown, moments, best[0])

    def _train_and_record(self, network: TensorNetwork, moments: State, edge: Edge) -> None:
        """Train after a growth, record it, and decide whether to continue."""
        state, problem, o = self.state, self.problem, self.problem.options
        keep = problem.training.keep_state and o.transfer
        state.current, state.moments = self._train(network, moments if keep else None)
        self._record("grow", edge)
        self._note_best()
        if self._is_reached:
            self._end(StopReason.TARGET_REACHED)
        elif state.stale >= o.patience or self.current.measure <= problem.resolution:
            held_out = problem.objective.holds_out
            self._end(StopReason.VALIDATION if held_out else StopReason.NO_PROGRESS)

    def _shortlist(self, edges: list[Edge]) -> list[Edge]:
        """The edges to try: gains mostly shrink as a network grows, so that old ones say where to look."""
        count, known = self.problem.shortlist, self.state.gains
        new = [e for e in edges if e not in known]
        if count is None or new or len(edges) <= count:
            return edges if count is None else new or edges
        promising = sorted(edges, key=lambda e: -known[e][0])
        oldest = sorted(promising[count // 2 :], key=lambda e: known[e][1])
        return promising[: count // 2] + oldest[: count - count // 2]

    # -- training --------------------------------------------------------------------------------------

    def _train(self, network: TensorNetwork, moments: State | None) -> tuple[Fitted, State]:
        problem = self.problem
        return fit_by_gradient(
            problem.objective,
            network,
            problem.training,
            moments=moments,
            deadline=self.context.deadline,
            enough=problem.resolution,
        )

    def _try(self, fitted: Fitted, edge: Edge, fitter: SliceFitter | None = None) -> Tried:
        """Fit the new slices of an edge; returns them and the score."""
        check_time(self.context.deadline)
        problem, network = self.problem, fitted.network
        o, structure = problem.options, network.structure
        i, j = edge
        leaves = []
        for node, other in ((i, j), (j, i)):
            count = structure.leg_dim(node) * structure.bond_product(node, without=other)
            noise = torch.randn(count, generator=self.context.generator, dtype=torch.float64)
            leaves.append((o.slice_noise * noise).to(network.cores[0]))
        try:
            if fitter is not None:
                leaves, after = fitter(edge, leaves, 1 + problem.training.candidate_epochs)
            else:
                after = self._train_slices(network, edge, leaves)
            score = self._score(fitted.measure, after, structure.growth_cost(i, j))
        except (DataError, MemoryLimitError) as error:  # diverged, or too large: not this edge
            self._ran_out_of_memory |= isinstance(error, MemoryLimitError)
            score = -math.inf
        return edge, (leaves[0].detach(), leaves[1].detach()), score

    def _train_slices(self, network: TensorNetwork, edge: Edge, leaves: list[torch.Tensor]) -> float:
        """Train the new slices of an edge in place, everything else frozen; returns the measure."""
        objective, structure = self.problem.objective, network.structure
        frozen = [c.detach() for c in network.cores]
        for leaf in leaves:
            leaf.requires_grad_()

        def now() -> TensorNetwork:
            return TensorNetwork(*moves.grow(structure, frozen, *edge, *leaves))

        train(
            leaves,
            objective.batches,
            lambda batch: objective.loss(now(), batch),
            self.problem.training,
            measure=None,
            whole=objective.is_whole,
            epochs=self._candidate_epochs,
            deadline=self.context.deadline,
        )
        return _judge(objective, now())

    @property
    def _candidate_epochs(self) -> int:
        """Passes over the data for a candidate; more where there are only a few batches."""
        objective, epochs = self.problem.objective, self.problem.training.candidate_epochs
        if objective.is_whole or not objective.num_batches:
            return epochs
        steps = 100  # they show what the new slices of an edge can do
        return max(epochs, math.ceil(steps / objective.num_batches))

    def _score(self, before: float, after: float, added: int) -> float:
        """Score of a growth; the largest wins."""
        kind = self.problem.options.edge_score
        if not math.isfinite(after):
            return -math.inf
        if callable(kind):
            return float(kind(before, after, added))
        return before - after if kind == "drop" else (before - after) / added

    def _flops(self, structure: Structure) -> float:
        """What a sweep takes; the same for all structures where the objective does not know."""
        objective = self.problem.objective
        return objective.sweep_flops(structure) if isinstance(objective, Sweeping) else 1.0

    # -- decisions -------------------------------------------------------------------------------------

    @property
    def _is_reached(self) -> bool:
        return self.current.measure <= self.problem.target

    def _note_best(self) -> None:
        state = self.state
        now = self.current.measure
        before = math.inf if state.best is None else state.best.measure
        least = 0.0
        if state.best is not None:
            least = max(self.problem.least_gain * abs(before), self.problem.resolution)
        state.stale = 0 if now < before - least or state.best is None else state.stale + 1
        if state.best is None or now < before:
            state.best = state.current

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        return None, fitted.validation


def choose_edges(
    structure: Structure,
    tried: Sequence[Tried],
    most_edges: int,
    max_parameters: int | None,
    flops: Callable[[Structure], float],
) -> list[tuple[Edge, Slices]]:
    """The best edge, and others nearly as good that share no node with it or with each other.

    The slices of such edges fit into one network, whichever of them grow. Scores count per flop of a sweep:
    an edge across many others can make sums over all values a hundred times longer.
    """
    chosen: list[tuple[Edge, Slices]] = []
    busy: set[int] = set()
    least, now = 0.0, flops(structure)
    most_flops = MOST_LONGER * now
    # Flops take milliseconds on wide graphs, and scores bound those per flop: an edge is rated, again after
    # every choice, when it comes first.
    waiting = [(-score, -1, k) for k, (_, _, score) in enumerate(tried) if score > -math.inf]
    heapify(waiting)
    while waiting and len(chosen) < most_edges:
        negative, rated_after, k = heappop(waiting)
        if chosen and -negative < least:
            break
        edge, slices, score = tried[k]
        grown = structure.with_rank(*edge, structure.rank(*edge) + 1)
        is_too_large = max_parameters is not None and grown.num_parameters > max_parameters
        if is_too_large or not busy.isdisjoint(edge):
            continue
        then = flops(grown)
        if chosen and then > most_flops:
            continue
        if rated_after != len(chosen) and score > 0:
            heappush(waiting, (-score * min(1.0, now / then), len(chosen), k))
            continue
        if not chosen:
            least = max(WORTHWHILE * -negative, 0.0)
        chosen.append((edge, slices))
        busy |= set(edge)
        structure, now = grown, then
    return chosen


def fit_by_gradient(
    objective: Differentiable,
    network: TensorNetwork,
    training: TrainingOptions,
    *,
    moments: State | None = None,
    deadline: float = math.inf,
    enough: float = -math.inf,
) -> tuple[Fitted, State]:
    """All cores of a network trained from where they are; also what the optimiser remembers of them.

    Training ends early where the measure is no larger than `enough`.
    """
    structure = network.structure
    if isinstance(objective, Sweeping) and training.optimizer is None:
        trained = improve(
            network,
            objective.sweep,
            lambda n: _judge(objective, n),
            training,
            deadline=deadline,
            enough=enough,
        )
        return Fitted(trained, objective.total(trained), objective.validate(trained)), []
    leaves = [c.detach().clone().requires_grad_() for c in network.cores]

    def now() -> TensorNetwork:
        return TensorNetwork(structure, leaves)

    may_judge = objective.holds_out or objective.is_whole  # else it costs another pass over the data
    done = train(
        leaves,
        objective.batches,
        lambda batch: objective.loss(now(), batch),
        training,
        measure=(lambda: _judge(objective, now())) if may_judge else None,
        whole=objective.is_whole,
        state=moments if moments and len(moments) == len(leaves) else None,
        deadline=deadline,
        enough=enough,
    )
    trained = TensorNetwork(structure, [leaf.detach() for leaf in leaves])
    return Fitted(trained, objective.total(trained), objective.validate(trained)), done.state


def _judge(objective: Differentiable, network: TensorNetwork) -> float:
    """The validation score; the loss where there is none."""
    score = objective.validate(network)
    return objective.total(network) if score is None else score


def grow_moments(structure: Structure, moments: State, i: int, j: int) -> State:
    """The optimiser's memory for cores with one more slice along an edge."""
    grown = list(moments)
    for node, other in ((i, j), (j, i)) if moments else ():
        grown[node] = grow_state(moments[node], structure, node, other)
    return grown
