"""How promising each edge is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..algebra import moves
from ..contraction import Array
from ..network import TensorNetwork
from ..objectives import LeastSquares, PairProblem, SliceFit
from ..objectives.slices import as_torch
from ..solvers.deadline import check_time
from ..structure import Edge, Structure
from .options import ScoreOptions

# Stands in for a loss of zero in logarithms.
TINY = 1e-300


@dataclass(frozen=True)
class Candidate:
    """An edge with its optimised new slices.

    Attributes
    ----------
    added
        Parameters that the growth adds.
    cost
        The same, or more where so few do not count.
    score
        The largest wins.
    gain
        Logarithm of (loss before / loss after).
    """

    edge: Edge
    left: Array
    right: Array
    loss: float
    added: int
    cost: float
    score: float
    gain: float


def score_of(options: ScoreOptions, before: float, after: float, added: int, cost: float) -> float:
    """Score of a growth; the largest wins."""
    if callable(options.edge_score):
        return float(options.edge_score(before, after, added))
    if before <= 0.0:
        return 0.0
    if options.edge_score == "drop":
        return before - after
    return math.log(before / max(after, before * 1e-12)) / cost


def cost_of(structure: Structure, edge: Edge, least: float) -> float:
    """Parameters that a growth adds, or a share of all where it adds fewer."""
    return max(structure.growth_cost(*edge), least * structure.num_parameters)


def score_edges(
    objective: LeastSquares,
    network: TensorNetwork,
    loss: float,
    edges: Sequence[Edge],
    options: ScoreOptions,
    generator: torch.Generator,
    deadline: float = math.inf,
) -> list[Candidate]:
    """Optimise the new slices of every edge on the residual; best score first.

    It is broken off long after the `deadline`, a value of ``time.perf_counter()``: sixty modes have 1,770
    edges.
    """
    structure = network.structure
    arrays = objective.to_arrays(network)
    candidates = []
    for problem in objective.pair_problems(structure, arrays, edges):
        check_time(deadline)
        left, right, explained = _fit_slices(problem, options, generator)
        after = math.sqrt(max(loss**2 - explained, 0.0))
        added = structure.growth_cost(*problem.edge)
        cost = cost_of(structure, problem.edge, options.least_growth)
        score = score_of(options, loss, after, added, cost)
        gain = math.log(max(loss, TINY) / max(after, TINY))
        candidates.append(Candidate(problem.edge, left, right, after, added, cost, score, gain))
    candidates.sort(key=lambda c: -c.score)
    return candidates


Gains = dict[Edge, tuple[float, int]]


@dataclass
class ScoreMemory:
    """Scores edges lazily: an edge that promised little a few steps ago is not looked at again.

    What an edge would gain changes slowly while others grow, and mostly falls. Edges are scored in the order
    of their last known gain per parameter, until what remains cannot win any more.

    Attributes
    ----------
    gains
        Last gain, the logarithm of (loss before / loss after), and its age by edge.
    least
        Share of the network that a growth counts as at least.
    """

    gains: Gains
    least: float

    def score(
        self, structure: Structure, edges: Sequence[Edge], score: Callable[[list[Edge]], list[Candidate]]
    ) -> list[Candidate]:
        """Candidates among which the best is, best score first."""
        self.gains = {e: (g, age + 1) for e, (g, age) in self.gains.items()}
        oldest = 5  # steps after which a gain is not trusted any more
        unknown = [e for e in edges if self.gains.get(e, (0.0, oldest))[1] >= oldest]
        rest = {e: self.gains[e][0] / cost_of(structure, e, self.least) for e in edges if e not in unknown}
        queue = sorted(rest, key=lambda e: -rest[e])
        candidates = score(unknown) if unknown else []
        while queue:
            if candidates and not rest[queue[0]] > 0.5 * max(c.gain / c.cost for c in candidates):
                break  # so far below the best, an old gain cannot win
            candidates += score(queue[:4])  # a few at once share their contractions
            queue = queue[4:]
        self.gains |= {c.edge: (c.gain, 0) for c in candidates}
        candidates.sort(key=lambda c: -c.score)
        return candidates


def _fit_slices(problem: PairProblem, options: ScoreOptions, generator: torch.Generator) -> SliceFit:
    is_random = options.slice_init == "random"
    right = options.slice_noise * problem.draw(generator) if is_random else None
    return problem.fit(right, options.slice_sweeps)


def add_slices(
    network: TensorNetwork, candidate: Candidate, nonnegative: frozenset[int] = frozenset()
) -> TensorNetwork:
    """The network with the candidate's slices added; `nonnegative` nodes part one of their components."""
    left, right = (as_torch(x).to(network.device) for x in (candidate.left, candidate.right))
    if nonnegative.isdisjoint(candidate.edge):
        return network.grow_edge(*candidate.edge, slices=(left, right))
    structure, cores = moves.part(network.structure, network.cores, *candidate.edge, left, right)
    kept = [c.clamp_min(0.0) if k in nonnegative else c for k, c in enumerate(cores)]
    return TensorNetwork(structure, kept)
