"""Where rank one is blind: other networks to start from.

A network whose entries have balanced signs looks like noise to a fit of rank one, and to every edge that is
scored beside it. What interacts still shows in the magnitudes of entries; along those pairs of modes, ALS
from random cores of a small rank finds some such networks. How many entries that takes depends on the shape.
Trains of rank 2 over 8^4 and 6^5 are found by most starts from ten entries per parameter. Of a train of rank
3 over 16^6, none of 18 starts found anything from 20, none of 10 from 50, and one of 3 from 100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..objectives import HeldOut
from ..structure import Edge, Structure
from .problem import Problem
from .state import Fitted

# Ranks of the starts, in turn. One more than needed finds a network more often than the rank itself: of
# trains of rank 2 over 6^5 from ten entries per parameter, 34 of 36 starts instead of 27.
RANKS = (3, 2, 4)
# Random starts of every structure and rank.
REPEATS = 2
# A strong ridge keeps the first sweeps from fitting single entries: of trains of rank 2 over 8^4 and 6^5, 47
# of 48 starts found the network at 0.3, 44 at 0.1 and 39 at 0.01.
START_RIDGE = 0.3
# Starts that find a network do so within 25 sweeps or so.
START_SWEEPS, START_TOLERANCE = 40, 1e-3
# Standard errors that a mean gain on held-out entries must have: these chose the network among some twenty,
# of which one would be 2 standard errors above zero by chance in a third of all runs.
SURE = 3.0


def has_learned(objective: HeldOut, fitted: Fitted) -> bool:
    """Whether a network predicts held-out entries measurably better than zero does.

    True where that cannot be told. Two tests, as either alone errs: where there are few entries, the largest
    ones dominate the gain and its standard error, so that there a norm that is smaller by a standard error
    counts as well. That is the one of the entries: normal residuals would have a smaller one, and where tails
    are heavy, networks that learned nothing pass (3 of 7 over 16^6).
    """
    structure = fitted.network.structure
    gain = objective.validation_gain(structure, objective.to_arrays(fitted.network))
    norm = objective.validation_norm
    if gain is None or not norm or fitted.validation is None:
        return True
    mean, error, of_norm = gain
    if mean > SURE * error:
        return True
    return fitted.validation < norm * (1.0 - of_norm)


def starting_structures(problem: Problem, strengths: Mapping[Edge, float]) -> list[Structure]:
    """Structures to start from: the pairs that interact most, at small ranks, within every limit.

    Parameters
    ----------
    strengths
        By how many standard errors pairs of modes interact.
    """
    dims = problem.objective.dims
    allowed = {e: z for e, z in strengths.items() if problem.policy.allows(Structure.rank_one(dims), e)}
    graphs = _graphs(len(dims), allowed)
    structures = [_of_rank(dims, graph, rank) for rank in RANKS for graph in graphs]
    fitting = [s for s in structures if s.edges and _is_allowed(problem, s)]
    return [s for s in dict.fromkeys(fitting) for _ in range(REPEATS)]


def _graphs(order: int, strengths: Mapping[Edge, float]) -> list[tuple[Edge, ...]]:
    """The strongest spanning tree; with the strongest edge beside it; with all that interact for sure."""
    by_strength = sorted(strengths, key=lambda e: -strengths[e])
    group, tree = list(range(order)), []
    for i, j in by_strength:
        if group[i] != group[j]:
            tree.append((i, j))
            group = [group[i] if g == group[j] else g for g in group]
    others = [e for e in by_strength if e not in tree]
    # Modes at a distance of two interact as well, by a tenth or so of what neighbours do.
    sure = max([SURE, *(0.25 * strengths[e] for e in tree[len(tree) // 2 :][:1])])
    more = [e for e in others if strengths[e] > sure]
    found = [tree, tree + others[:1], tree + more]
    found.sort(key=lambda graph: graph != tree + more)  # the likeliest first
    return list(dict.fromkeys(tuple(sorted(graph)) for graph in found))


def _of_rank(dims: tuple[int, ...], graph: tuple[Edge, ...], rank: int) -> Structure:
    """All edges of a graph at a rank, or at the largest that is of use."""
    structure = Structure(dims, dict.fromkeys(graph, rank))
    return Structure(dims, {e: min(rank, structure.useful_rank(*e)) for e in graph})


def _is_allowed(problem: Problem, structure: Structure) -> bool:
    most = math.inf if problem.max_parameters is None else problem.max_parameters
    within = structure.num_parameters <= most and problem.policy.allows_degrees(structure)
    return within and problem.fits(structure) and not problem.pace.is_slow(structure)
