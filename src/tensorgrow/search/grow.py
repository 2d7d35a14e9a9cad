"""One growth step: score the edges, look ahead, raise the best one, refit."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch

from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..objectives import LeastSquares
from ..solvers import ALSSettings, als
from ..structure import Edge, Structure
from .cuts import CutBounds
from .options import GreedyOptions
from .score import Candidate, EdgePolicy, ScoreMemory, grown_by, score_edges, score_of

__all__ = ["Fitted", "Problem", "grow_once", "measured", "refit"]

# A growth that lowers the loss by less than this share is rounding, not progress.
LEAST_GAIN = 1e-9
# For structures that may represent the target exactly.
PATIENT_SWEEPS = 500
PATIENT_TOLERANCE = 1e-5
# A sweep of about 0.05 s on one core.
COSTLY_FLOPS = 5e8
# Cuts are wide where a sweep takes this many times the flops of a sweep over a network of rank one, which
# does little more than read the data.
WIDE_CUTS = 16
DEFAULT_LOOKAHEAD = 8
# Where entries are missing and a sweep takes a few milliseconds, refits are carried on until they converge.
CHEAP_FLOPS = 1e8
CHEAP_SWEEPS = 100
CHEAP_TOLERANCE = 1e-4
# In larger networks such refits are short and converge slowly: they begin with long steps.
SHORT_MOMENTUM = 0.8
# Sweeps that take about a tenth of a second; there, an edge of rank 12 grows by 2, of rank 18 by 3.
LARGE_FLOPS = 1e10
RANKS_PER_STEP = 6


@dataclass(frozen=True)
class Fitted:
    """A network with its loss, on the fitted and on the held-out data where there is some."""

    network: TensorNetwork
    loss: float
    validation: float | None = None

    @property
    def measure(self) -> float:
        """What the search goes by: the loss on held-out data, else the loss."""
        return self.loss if self.validation is None else self.validation

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.network.num_parameters


@dataclass
class Problem:
    """What one search works on; shared by all its phases.

    Attributes
    ----------
    target
        Loss to get under, in the units of the data; 0 when only a budget was given.
    max_parameters
        Parameters allowed.
    memory_limit
        Bytes that a sweep may take.
    patient
        Whether cheap refits may take more sweeps than the options say.
    doubt
        How many of the edges that gain most, whatever their cost, are refitted beside the one that scores
        best. New slices alone show less of what an edge can do the more the rest has to adapt to it.
    memory
        Earlier scores, so that only edges that may win are scored again; None scores all every time.
    """

    objective: LeastSquares
    options: GreedyOptions
    policy: EdgePolicy
    generator: torch.Generator
    target: float = 0.0
    max_parameters: int | None = None
    memory_limit: float = math.inf
    split_nodes: bool = True
    deadline: float = math.inf
    patient: bool = True
    doubt: int = 0
    bounds: CutBounds | None = field(default=None, repr=False)
    memory: ScoreMemory | None = field(default=None, repr=False)

    @property
    def is_exact(self) -> bool:
        """Whether the error target asks for an exact representation."""
        return 0.0 < self.target <= self.options.exact_below * self.objective.norm

    @property
    def scale(self) -> float:
        """Norm of the data that the search goes by: what is held out, unless that is zero."""
        return self.objective.validation_norm or self.objective.norm or 1.0

    @property
    def rounding(self) -> float:
        """Loss below which nothing but rounding is left to explain."""
        return self.objective.epsilon * 8 * self.objective.norm

    def is_costly(self, structure: Structure) -> bool:
        """Whether a sweep takes so long that refitting candidates is better spent on the growth itself."""
        return self.objective.sweep_flops(structure) > COSTLY_FLOPS

    @property
    def holds_out(self) -> bool:
        """Whether the search goes by the error on held-out data."""
        return self.objective.validation_norm is not None

    def momentum(self, structure: Structure) -> float:
        """With which refits extrapolate at first; patient ones would stop too soon after a step too long."""
        short = self.holds_out and not self.is_patient(structure)
        return SHORT_MOMENTUM if short else ALSSettings.momentum

    def is_patient(self, structure: Structure) -> bool:
        """Whether a refit may take many sweeps: they are cheap, and held-out data guards against too many."""
        return self.patient and self.holds_out and self.objective.sweep_flops(structure) < CHEAP_FLOPS

    def lookahead(self, structure: Structure) -> int:
        """Candidates to refit before one is chosen."""
        if self.options.lookahead is not None:
            return self.options.lookahead
        return 1 if self.is_exact or self.is_costly(structure) else DEFAULT_LOOKAHEAD

    def increment(self, structure: Structure, edge: Edge) -> int:
        """Ranks to add at once: one more for every so many in large networks that held-out data guards."""
        large = self.holds_out and self.objective.sweep_flops(structure) > LARGE_FLOPS
        return max(self.options.rank_increment, structure.rank(*edge) // RANKS_PER_STEP if large else 1)

    def edges_in_turn(self, structure: Structure) -> list[list[Edge]]:
        """Edges that may grow, in sets: those of a later set are scored where none of the earlier helps.

        Once cuts are wide and sweeps are costly for it, edges that exist come first: every new edge widens
        the cuts, and the cost of a sweep grows with their squares, while the topology is settled long before
        the ranks are. Sweeps that are costly because there is much data say nothing about the topology.
        """
        edges = self.policy.growable(structure, self.max_parameters)
        if not (self.options.thicken_costly and self.has_wide_cuts(structure)):
            return [edges]
        old = [e for e in edges if structure.rank(*e) > 1]
        return [old, [e for e in edges if e not in old]]

    def has_wide_cuts(self, structure: Structure) -> bool:
        """Whether a sweep is costly because of the network, not because of the data."""
        least = self.objective.sweep_flops(Structure.rank_one(self.objective.dims))
        return self.objective.sweep_flops(structure) > max(COSTLY_FLOPS, WIDE_CUTS * least)

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self.deadline

    def noise(self, scale: float) -> float:
        """A log-normal factor that randomises scores."""
        return math.exp(scale * float(torch.randn((), generator=self.generator, dtype=torch.float64)))

    def choose(self, high: int) -> int:
        """A whole number from 1 to `high`."""
        return 1 + int(torch.randint(high, (), generator=self.generator))


def refit(
    problem: Problem,
    network: TensorNetwork,
    *,
    sweeps: int | None = None,
    tolerance: float | None = None,
    give_up: bool = False,
) -> Fitted:
    """ALS with the options of the search; stops at the target."""
    o = problem.options
    patient = problem.is_patient(network.structure)
    settings = ALSSettings(
        max_sweeps=sweeps or (max(o.sweeps, CHEAP_SWEEPS) if patient else o.sweeps),
        tolerance=(min(o.tolerance, CHEAP_TOLERANCE) if patient else o.tolerance)
        if tolerance is None
        else tolerance,
        absolute_tolerance=o.absolute_tolerance,
        ridge=o.rounding_ridge,
        balance_every=o.balance_every,
        accelerate=o.accelerate and not problem.is_exact,
        momentum=problem.momentum(network.structure),
    )
    fit = als(
        problem.objective,
        network,
        settings,
        target=None if problem.holds_out else problem.target,
        give_up=give_up,
        deadline=problem.deadline,
    )
    return measured(problem, fit.network, fit.loss)


def measured(problem: Problem, network: TensorNetwork, loss: float) -> Fitted:
    """A network with its losses."""
    arrays = problem.objective.to_arrays(network)
    return Fitted(network, loss, problem.objective.validation_loss(network.structure, arrays))


def grow_once(
    problem: Problem, current: Fitted, *, randomise: bool = False, lookahead: int | None = None
) -> tuple[Fitted, Edge] | None:
    """Raise the rank of the most promising edge; None when no edge may grow or none helps."""
    if current.loss <= problem.rounding:
        return None
    for edges in problem.edges_in_turn(current.network.structure):
        grown = _grow_one_of(edges, problem, current, randomise, lookahead) if edges else None
        if grown is not None:
            return grown
    return None


def _grow_one_of(
    edges: list[Edge], problem: Problem, current: Fitted, randomise: bool, lookahead: int | None
) -> tuple[Fitted, Edge] | None:
    """Raise the rank of the most promising of some edges; None when none helps."""
    o = problem.options
    candidates = _scored(problem, current, edges)
    helpful = [c for c in candidates if c.loss < current.measure * (1.0 - LEAST_GAIN)]
    if problem.holds_out and not helpful:  # a refit of everything may still gain what slices alone do not
        helpful = sorted(candidates, key=lambda c: -c.gain)[:1]
    candidates = helpful
    if not candidates:
        return None
    if randomise:
        candidates.sort(key=lambda c: -c.score * problem.noise(o.score_noise))
    structure = current.network.structure
    width = len(candidates) if o.scoring == "full" else (lookahead or problem.lookahead(structure))
    if problem.doubt:
        candidates, width = _most_gaining(candidates), 1 + problem.doubt
    if width > 1:
        chosen, grown = _look_ahead(problem, current, candidates[:width], randomise)
    else:
        chosen, grown = candidates[0], grown_by(current.network, candidates[0])
    for _ in range(problem.increment(structure, chosen.edge) - 1):
        extra = _same_edge_again(problem, grown, chosen.edge)
        if extra is None:
            break
        grown = extra
    needed = problem.objective.memory_needed(grown.structure)
    if needed > problem.memory_limit:
        raise MemoryLimitError(
            f"growing to {grown.num_parameters:,} parameters needs about {needed / 1e9:.2f} GB, above the "
            f"limit of {problem.memory_limit / 1e9:.2f} GB"
        )
    if not o.transfer:
        grown = TensorNetwork.random(
            grown.structure, random_state=problem.generator, dtype=grown.dtype, device=grown.device
        )
    fitted = _fit_grown(problem, grown)
    held_out = fitted.validation is not None  # there, a step may fail to pay at once
    if o.transfer and not held_out and not fitted.loss < current.loss * (1.0 - LEAST_GAIN):
        return None  # the gain that the slices promised was rounding
    return fitted, chosen.edge


def _scored(problem: Problem, current: Fitted, edges: list[Edge]) -> list[Candidate]:
    """Candidate edges, best score first; all of them, or those that can still be the best."""
    network, o = current.network, problem.options

    def score(chosen: list[Edge]) -> list[Candidate]:
        return score_edges(problem.objective, network, current.measure, chosen, o, problem.generator)

    if problem.memory is None:
        return score(edges)
    return problem.memory.score(network.structure, edges, score)


def _most_gaining(candidates: list[Candidate]) -> list[Candidate]:
    """The best score first, then by gain."""
    first, *rest = candidates
    return [first, *sorted(rest, key=lambda c: -c.gain)]


def _fit_grown(problem: Problem, grown: TensorNetwork) -> Fitted:
    """Refit after a growth; patiently where the bounds say that this structure may be the exact one.

    Close to an exact representation ALS can crawl for hundreds of sweeps. Growing on would end at the target
    with too many parameters; before the structure suffices, patience is wasted.
    """
    fitted = refit(problem, grown)
    if fitted.loss <= problem.target or problem.bounds is None or not problem.is_exact:
        return fitted
    if not problem.bounds.admits(grown.structure):
        return fitted
    return refit(problem, fitted.network, sweeps=PATIENT_SWEEPS, tolerance=PATIENT_TOLERANCE)


def _look_ahead(
    problem: Problem, current: Fitted, candidates: list[Candidate], randomise: bool
) -> tuple[Candidate, TensorNetwork]:
    """Refit the best candidates for a few sweeps and rank them again by the same score."""
    best: tuple[float, Candidate, TensorNetwork] | None = None
    for candidate in candidates:
        trial = refit(
            problem,
            grown_by(current.network, candidate),
            sweeps=problem.options.lookahead_sweeps,
            tolerance=0.0,
        )
        score = score_of(problem.options, current.measure, trial.measure, candidate.added, candidate.cost)
        if randomise:
            score *= problem.noise(problem.options.score_noise)
        if best is None or score > best[0]:
            best = (score, candidate, trial.network)
        if problem.out_of_time:
            break
    assert best is not None
    return best[1], best[2]


def _same_edge_again(problem: Problem, grown: TensorNetwork, edge: Edge) -> TensorNetwork | None:
    if edge not in problem.policy.growable(grown.structure, problem.max_parameters):
        return None
    now = measured(
        problem, grown, problem.objective.loss(grown.structure, problem.objective.to_arrays(grown))
    )
    again = score_edges(problem.objective, grown, now.measure, [edge], problem.options, problem.generator)
    if problem.holds_out and again[0].loss >= now.measure:
        return None
    return grown_by(grown, again[0])
