"""Growth along several edges at once, for what no single edge can begin.

A rank-one fit of ``e1 x e1 x e1 + e2 x e2 x e2`` is its first term, and no edge alone can add anything of the
second: all other cores vanish there. Sparse tensors are full of such traps. A rank-one term can always be
added, by one rank more along a spanning tree of the nodes.
"""

from __future__ import annotations

import math

import torch

from ..algebra import moves
from ..network import TensorNetwork
from ..solvers import ALSSettings, als
from ..structure import Edge, Structure
from .grow import refit
from .problem import Problem
from .search import LEAST_GAIN
from .state import Fitted


def add_term(problem: Problem, current: Fitted) -> Fitted | None:
    """Add a rank-one term that explains some of the residual; None where there is no room for it.

    Its ranks go to the cheapest spanning tree of edges that may grow.
    """
    network = current.network
    structure = network.structure
    if current.loss <= math.sqrt(problem.objective.epsilon) * problem.objective.norm:
        return None  # rounding may be all that is left
    tree = _cheapest_tree(structure, problem.policy.growable(structure))
    if tree is None:
        return None
    start = TensorNetwork.random(
        Structure.rank_one(structure.dims),
        random_state=problem.context.generator,
        dtype=network.dtype,
        device=network.device,
    )
    settings = ALSSettings(max_sweeps=50, tolerance=1e-3)  # roughly: everything is refitted with it
    term = als(problem.objective.residual(network), start, settings).network
    inner = [torch.ones(1)] * (structure.num_nodes - structure.order)
    grown = TensorNetwork(*moves.add_term(structure, network.cores, [*term.cores, *inner], tree))
    if not _is_allowed(problem, grown.structure):
        return None
    fitted = refit(problem, grown)
    return fitted if fitted.loss < current.loss * (1.0 - LEAST_GAIN) else None


def _is_allowed(problem: Problem, structure: Structure) -> bool:
    most = problem.max_parameters
    return (
        (most is None or structure.num_parameters <= most)
        and problem.policy.allows_degrees(structure)
        and problem.fits(structure)
    )


def _cheapest_tree(structure: Structure, allowed: list[Edge]) -> set[Edge] | None:
    """Edges that join all nodes, cheap ones first (Kruskal); None where those allowed do not."""
    group = list(range(structure.num_nodes))
    tree = set()
    for i, j in sorted(allowed, key=lambda e: structure.growth_cost(*e)):
        if group[i] != group[j]:
            tree.add((i, j))
            group = [group[i] if g == group[j] else g for g in group]
    return tree if len(set(group)) == 1 else None
