"""One growth step: score the edges, look ahead, raise the best one, refit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..algebra import moves
from ..data.devices import gigabytes
from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..objectives.slices import as_torch
from ..solvers import ALSSettings, als
from ..solvers.deadline import check_time
from ..structure import Edge, Structure
from .pace import RANKS_PER_STEP
from .problem import Problem
from .score import Candidate, ScoreMemory, add_slices, score_edges, score_of
from .state import Fitted

# A growth that lowers the loss by less than this share is rounding, not progress.
ROUNDING_GAIN = 1e-9


def refit(
    problem: Problem,
    network: TensorNetwork,
    *,
    sweeps: int | None = None,
    tolerance: float | None = None,
    give_up: bool = False,
    most: float = math.inf,
    however_late: bool = False,
) -> Fitted:
    """ALS with the options of the search; stops at the target.

    `most` is the loss on held-out data above which it is given up after the first sweep. Long after the
    deadline none is begun, unless it is wanted `however_late` it is.

    Raises `MemoryLimitError` where a sweep would take too much.
    """
    if not however_late:
        check_time(problem.context.deadline)
    if not problem.fits(network.structure):
        raise too_large(problem, network.structure)
    o = problem.options
    default_sweeps, default_tolerance = o.sweeps, o.tolerance
    if problem.refits_fully(network.structure):  # until it converges
        default_sweeps, default_tolerance = max(o.sweeps, 100), min(o.tolerance, 1e-4)
    settings = ALSSettings(
        max_sweeps=sweeps or default_sweeps,
        min_sweeps=o.least_sweeps,
        tolerance=default_tolerance if tolerance is None else tolerance,
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
        most=most,
        deadline=problem.context.deadline,
        graphs=problem.context.graphs,
    )
    problem.context.flops += fit.num_sweeps * problem.objective.sweep_flops(network.structure)
    problem.context.is_converged = fit.num_sweeps < settings.max_sweeps and not problem.context.is_out_of_time
    return measure(problem, fit.network, fit.loss)


def measure(problem: Problem, network: TensorNetwork, loss: float | None = None) -> Fitted:
    """A network with its losses on the fitted data, unless that is known, and on the held-out data."""
    objective, structure = problem.objective, network.structure
    arrays = objective.to_arrays(network)
    loss = objective.loss(structure, arrays) if loss is None else loss
    return Fitted(network, loss, objective.validation_loss(structure, arrays))


@dataclass(frozen=True)
class Care:
    """How much is spent on the choice of an edge.

    Attributes
    ----------
    randomise
        Whether noise is put on the scores.
    lookahead
        Candidates to refit before one grows; None: what the problem says.
    doubt
        How many of the edges that gain most, whatever their cost, are refitted beside the one that scores
        best. New slices alone show less of what an edge can do the more the rest has to adapt to it.
    memory
        Earlier scores, so that only edges that may win are scored again; None scores all every time.
    sweeps
        Sweeps of the refit at most; None: what the options say.
    """

    randomise: bool = False
    lookahead: int | None = None
    doubt: int = 0
    memory: ScoreMemory | None = None
    sweeps: int | None = None


PLAIN = Care()


def grow_once(problem: Problem, current: Fitted, care: Care = PLAIN) -> tuple[Fitted, Edge] | None:
    """Raise the rank of the most promising edge; None when no edge may grow or none helps."""
    if current.loss <= problem.objective.epsilon * 8 * problem.objective.norm:
        return None  # nothing but rounding is left to explain
    for edges in problem.edges_in_turn(current.network.structure):
        grown = _grow_one_of(edges, problem, current, care) if edges else None
        if grown is not None:
            return grown
    return None


def _grow_one_of(
    edges: list[Edge], problem: Problem, current: Fitted, care: Care
) -> tuple[Fitted, Edge] | None:
    """Raise the rank of the most promising of some edges; None when none helps."""
    check_time(problem.context.deadline)
    structure = current.network.structure
    problem.context.flops += problem.objective.sweep_flops(structure)  # about what scoring costs
    score = partial(_score, problem, current)
    memory = care.memory
    candidates = memory.score(current.network.structure, edges, score) if memory else score(edges)
    candidates = _helpful(problem, current, candidates)
    if not candidates:
        return None
    candidates = priced_candidates(problem, structure, candidates)
    candidate, grown = _choose(problem, current, candidates, care)
    if not care.randomise:
        grown = _grow_others(problem, current, grown, candidate, candidates)
    grown = _thicken(problem, grown, candidate)
    for _ in range(problem.increment(current.network.structure, candidate.edge) - 1):
        extra = _same_edge_again(problem, grown, candidate.edge)
        if extra is None:
            break
        grown = extra
    grown = _span_leaf(problem, grown, candidate.edge)
    transfer = problem.options.transfer
    if not transfer:
        grown = TensorNetwork.random(
            grown.structure, random_state=problem.context.generator, dtype=grown.dtype, device=grown.device
        )
    fitted = _refit_after_growth(problem, grown, care.sweeps)
    held_out = fitted.validation is not None  # there, a step may fail to pay at once
    if transfer and not held_out and not fitted.loss < current.loss * (1.0 - ROUNDING_GAIN):
        return None  # the gain that the slices promised was rounding
    return fitted, candidate.edge


def _thicken(problem: Problem, grown: TensorNetwork, candidate: Candidate) -> TensorNetwork:
    """The network with up to a sixth more rank on an edge that grew and is thick.

    No more than would just meet the target if each rank gained as much as the first: what they gain beyond it
    is lost.
    """
    edge, structure, target, o = candidate.edge, grown.structure, problem.target, problem.options
    one_by_one = o.edge_score != "per_parameter" or not o.transfer or problem.holds_out or problem.is_exact
    if one_by_one or target >= candidate.loss:
        return grown
    if not problem.objective.nonnegative(structure).isdisjoint(edge):
        return grown
    rank, most = structure.rank(*edge), problem.max_parameters
    bounds = [rank // RANKS_PER_STEP - 1, structure.useful_rank(*edge) - rank]
    if target:
        bounds.append(int(math.log(candidate.loss / target) / candidate.gain))
    if most is not None:
        bounds.append((most - structure.num_parameters) // structure.growth_cost(*edge))
    count = min(bounds)
    if count < 1 or not (problem.policy.allows(structure, edge) and problem.fits(structure, [edge])):
        return grown
    (pair,) = problem.objective.pair_problems(structure, problem.objective.to_arrays(grown), [edge])
    wider = grown
    for left, right, _ in pair.fit_several(count):
        wider = wider.grow_edge(*edge, slices=(as_torch(left), as_torch(right)))
    return wider if problem.fits(wider.structure) else grown


def _span_leaf(problem: Problem, grown: TensorNetwork, edge: Edge) -> TensorNetwork:
    """The network with all the rank that the grown edge needs, where an end of it seems to be a leaf.

    For exact targets, of which bounds tell what is joined. One rank at a time up to the fourth leads to the
    same networks in 1.4 times the time: of 240 triangles and trains of 7^5, with other ranks and seeds than
    those of the results, 236 were exact then, and 239 this way.
    """
    bounds, structure = problem.bounds, grown.structure
    is_free = problem.max_parameters is None and not problem.objective.nonnegative(structure)
    if bounds is None or not problem.is_exact or not is_free or bounds.dims != structure.dims:
        return grown
    for leaf, near in (edge, edge[::-1]):
        if near >= structure.order or leaf >= structure.order or structure.neighbours[leaf] != (near,):
            continue
        rank = bounds.leaf_rank(leaf, near)
        if rank is not None and structure.rank(*edge) < rank <= structure.useful_rank(*edge):
            basis = bounds.leg_basis(leaf).to(grown.cores[leaf])
            wider = TensorNetwork(*moves.span_leaf(structure, grown.cores, leaf, basis))
            return wider if problem.fits(wider.structure) else grown
    return grown


def _helpful(problem: Problem, current: Fitted, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates that lower the loss.

    Where data is held out and there are none, the one that gains most: a refit of everything may still gain
    what slices alone do not.
    """
    helpful = [c for c in candidates if c.loss < current.measure * (1.0 - ROUNDING_GAIN)]
    if problem.holds_out and not helpful:
        return sorted(candidates, key=lambda c: -c.gain)[:1]
    return helpful


def priced_candidates(problem: Problem, structure: Structure, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, best first, where what they do to the time of a sweep counts too.

    A price only lowers a score: candidates are looked at in turn, until the next would not be as good for
    nothing. Each is planned for it, which takes about 10 ms.
    """
    if not _counts_time(problem, structure):
        return candidates
    priced: list[Candidate] = []
    for candidate in candidates:
        if priced and not _is_as_good(candidate.score, max(c.score for c in priced)):
            break
        cost = candidate.cost + problem.pace.price(structure, candidate.edge)
        priced.append(replace(candidate, cost=cost, score=candidate.gain / cost))
    return sorted(priced, key=lambda c: -c.score) + candidates[len(priced) :]


def _counts_time(problem: Problem, structure: Structure) -> bool:
    """Whether sweeps are so long that scores consider them.

    Not near exact representations, where one structure is right, nor where held-out data judges.
    """
    is_free = problem.options.edge_score != "per_parameter" or problem.is_exact or problem.holds_out
    return not (is_free or problem.pace.is_cheap(structure))


def _is_as_good(score: float, best: float) -> bool:
    """Whether a score is about as good as the best: a refit gains up to three times what slices show."""
    return score >= 0.7 * best


def _grow_others(
    problem: Problem, current: Fitted, grown: TensorNetwork, chosen: Candidate, candidates: list[Candidate]
) -> TensorNetwork:
    """Grow edges beside the chosen one that score nearly as well and share no node with it.

    Where sweeps are not cheap, a refit takes most of the time of a growth, and slices of edges apart hardly
    depend on each other: photograph A at 0.137 is refitted a third less often. Growths gain 2 to 4 %, and
    what they gain beyond the error target is lost: just above it edges grow one by one again.
    """
    target = problem.target
    if not (target and current.loss > 1.05 * target and _counts_time(problem, current.network.structure)):
        return grown
    used = set(chosen.edge)
    for other in candidates:
        if used.isdisjoint(other.edge) and _is_as_good(other.score, chosen.score):
            larger = _add(problem, grown, other)
            size, most = larger.num_parameters, problem.max_parameters
            if (most is None or size <= most) and problem.fits(larger.structure):
                grown = larger
                used.update(other.edge)
    return grown


def _choose(
    problem: Problem, current: Fitted, candidates: list[Candidate], care: Care
) -> tuple[Candidate, TensorNetwork]:
    """The candidate to grow, and the network with it: the best score, or the best of several refits."""
    o = problem.options
    if care.randomise:
        candidates = sorted(candidates, key=lambda c: -c.score * problem.context.noise(o.score_noise))
    if care.doubt:
        candidates, width = order_by_gain(candidates), 1 + care.doubt
    elif o.scoring == "full":
        width = len(candidates)
    else:
        width = care.lookahead or problem.lookahead(current.network.structure)
    if width > 1:
        return _look_ahead(problem, current, candidates[:width], care.randomise)
    return candidates[0], _add(problem, current.network, candidates[0])


def too_large(problem: Problem, structure: Structure, edges: Sequence[Edge] = ()) -> MemoryLimitError:
    """The error where a sweep, or scoring `edges`, would take too much memory."""
    needed = problem.objective.memory_needed(structure, edges)
    return MemoryLimitError(
        f"fitting {structure.num_parameters:,} parameters needs about {gigabytes(needed)}, above the limit "
        f"of {gigabytes(problem.memory_limit)}"
    )


def _score(problem: Problem, current: Fitted, edges: list[Edge]) -> list[Candidate]:
    """Score edges, best first; those that need too much memory are left out, unless all do."""
    candidates = _score_in_parts(problem, current, edges)
    if edges and not candidates:
        raise too_large(problem, current.network.structure, edges[:1])
    return candidates


def _score_in_parts(problem: Problem, current: Fitted, edges: list[Edge]) -> list[Candidate]:
    """Score edges, best first; a few at a time where memory is short."""
    if edges and not problem.fits(current.network.structure, edges):
        half = len(edges) // 2
        parts = (edges[:half], edges[half:]) if half else ()
        scored = [c for part in parts for c in _score_in_parts(problem, current, part)]
        return sorted(scored, key=lambda c: -c.score)
    return score_edges(
        problem.objective,
        current.network,
        current.measure,
        edges,
        problem.options,
        problem.context.generator,
        problem.context.deadline,
    )


def order_by_gain(candidates: list[Candidate]) -> list[Candidate]:
    """The best score first, then by gain."""
    first, *rest = candidates
    return [first, *sorted(rest, key=lambda c: -c.gain)]


def _refit_after_growth(problem: Problem, grown: TensorNetwork, sweeps: int | None) -> Fitted:
    """Refit after a growth; patiently where the bounds say that this structure may be the exact one.

    Close to an exact representation ALS can crawl for hundreds of sweeps. Growing on would end at the target
    with too many parameters; before the structure suffices, patience is wasted.
    """
    fitted = refit(problem, grown, sweeps=sweeps)
    if fitted.loss <= problem.target or problem.bounds is None or not problem.is_exact:
        return fitted
    if not problem.bounds.admits(grown.structure):
        return fitted
    return refit(problem, fitted.network, sweeps=500, tolerance=1e-5)


def _look_ahead(
    problem: Problem, current: Fitted, candidates: list[Candidate], randomise: bool
) -> tuple[Candidate, TensorNetwork]:
    """Refit the best candidates for a few sweeps and rank them again by the same score."""
    best: tuple[float, Candidate, TensorNetwork] | None = None
    for k, candidate in enumerate(candidates, 1):
        grown = _add(problem, current.network, candidate)
        if not problem.fits(grown.structure) and (best is not None or k < len(candidates)):
            continue  # unless none of them fits
        trial = refit(problem, grown, sweeps=problem.options.lookahead_sweeps, tolerance=0.0)
        score = score_of(problem.options, current.measure, trial.measure, candidate.added, candidate.cost)
        if randomise:
            score *= problem.context.noise(problem.options.score_noise)
        if best is None or score > best[0]:
            best = (score, candidate, trial.network)
        if problem.context.is_out_of_time:
            break
    assert best is not None
    return best[1], best[2]


def _same_edge_again(problem: Problem, grown: TensorNetwork, edge: Edge) -> TensorNetwork | None:
    if edge not in problem.policy.growable(grown.structure, problem.max_parameters):
        return None
    now = measure(problem, grown)
    (again,) = _score(problem, now, [edge])
    if problem.holds_out and again.loss >= now.measure:
        return None
    return _add(problem, grown, again)


def _add(problem: Problem, network: TensorNetwork, candidate: Candidate) -> TensorNetwork:
    return add_slices(network, candidate, problem.objective.nonnegative(network.structure))
