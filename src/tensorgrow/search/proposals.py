"""Small networks for a target that is a network: what it needs no search for.

A target may be far larger than it need be: a sum of equal networks, a train in a bad order, a circuit. Where
its graph has no cycle, or can be laid out as a train, orthogonal factorisations find the ranks and a small
tree; edges on cycles are thinned one by one. What comes out takes the place of the target, and is where a
search starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..algebra import moves
from ..algebra.bonds import thin
from ..algebra.distance import as_train, factor_plan
from ..algebra.forest import Forest, is_forest, smallest_tree
from ..algebra.linalg import wide_dtype
from ..data.devices import flops_in
from ..network import TensorNetwork
from ..objectives import NetworkLeastSquares
from ..solvers import ALSSettings, als
from ..structure import Structure
from .edges import EdgePolicy

# Modes up to which growth from rank one finds better graphs for a budget than truncation does. Of random
# states over many more, rank one explains so little that it cannot tell where to grow.
FEW_MODES = 16
# Seconds that factorisations of the whole target may take.
FACTOR_SECONDS = 5.0


@dataclass(frozen=True)
class Compact:
    """A target without what it does not need.

    Attributes
    ----------
    network
        Takes the place of the target.
    left_out
        Its error, relative to the norm of the target.
    forest
        The same without cycles, where that is affordable.
    """

    network: TensorNetwork
    left_out: float
    forest: Forest | None


def compact(target: TensorNetwork, allowed: float, entries: float, *, keep_graph: bool = False) -> Compact:
    """Remove what a target does not need.

    Parameters
    ----------
    allowed
        Relative error that may be made on the way.
    entries
        Numbers that may be in memory at a time.
    keep_graph
        Whether the graph must stay: only ranks are lowered then.
    """
    dtype = target.dtype
    wide = target.to(dtype=wide_dtype(dtype))
    merged = merge_small(wide)
    small = wide if keep_graph else merged
    forest: Forest | None = None
    if is_forest(small.structure):
        forest = Forest(small.structure, small.cores)
    else:
        small = _thinned(merged, small, allowed)
        plan = factor_plan((small.structure,))
        if plan.flops <= flops_in(FACTOR_SECONDS, wide.device) and 4 * plan.peak_entries <= entries:
            forest = Forest(*as_train(small.structure, small.cores))
    if forest is not None:
        forest.truncate(min(allowed, 1e-13 * len(wide.cores)))
        if not keep_graph:
            forest = smallest_tree(forest, 1e-13, torch.Generator().manual_seed(0))
        tree = TensorNetwork(*forest.network())
        if is_forest(small.structure) or (tree.num_parameters < small.num_parameters and not keep_graph):
            small = tree
    small = small.balanced().to(dtype=dtype)
    objective = NetworkLeastSquares(merged, careful=_is_affordable(merged, small, entries))
    loss = objective.loss(small.structure, objective.to_arrays(small.to(dtype=wide.dtype)))
    left_out = loss / (objective.norm or 1.0)
    return Compact(small, left_out, forest) if left_out <= allowed else Compact(target, 0.0, forest)


def _is_affordable(target: TensorNetwork, network: TensorNetwork, entries: float) -> bool:
    plan = factor_plan((target.structure, network.structure))
    return plan.flops <= flops_in(FACTOR_SECONDS, target.device) and 3 * plan.peak_entries <= entries


def _thinned(target: TensorNetwork, network: TensorNetwork, allowed: float) -> TensorNetwork:
    """The network with fewer components of its edges, fitted to the target again."""
    structure, cores = thin(network.structure, network.cores, max(allowed, 1e-7))
    thinned = TensorNetwork(structure, cores).balanced()
    if structure == network.structure:
        return network
    objective = NetworkLeastSquares(target, careful=False)
    # Inner products told edges to thin; a few sweeps make up for their rounding.
    fit = als(objective, thinned, ALSSettings(max_sweeps=20, tolerance=0.1))
    return fit.network


def merge_small(network: TensorNetwork) -> TensorNetwork:
    """Contract internal nodes into a neighbour wherever the network does not get larger. Exact."""
    while True:
        structure = network.structure
        options = [
            (moves.merge_structure(structure, k, q).num_parameters, k, q)
            for q in structure.internal_nodes
            for k in structure.neighbours[q] or (0,)
        ]
        best = min(options, default=(math.inf, 0, 0))
        if best[0] > structure.num_parameters:
            return network
        network = network.merge_nodes(best[1], best[2])


def propose(
    known: Compact,
    max_error: float | None,
    max_parameters: int | None,
    policy: EdgePolicy,
    *,
    split_nodes: bool,
) -> tuple[TensorNetwork, ...]:
    """Networks within the error target or the budget, smallest or best first; all keep to the policy."""
    found: dict[Structure, TensorNetwork] = {}
    for network in _reduced(known, max_error, max_parameters, policy):
        fits = max_parameters is None or network.num_parameters <= max_parameters
        if fits and _is_allowed(network, policy, split_nodes=split_nodes):
            found.setdefault(network.structure, network.to(dtype=known.network.dtype))
    least = min((s.num_parameters for s in found), default=0)
    # Pruning seldom makes up for more.
    near = [n for s, n in found.items() if s.num_parameters <= 1.5 * least]
    return tuple(sorted(near, key=lambda n: n.num_parameters))


def _reduced(
    known: Compact, max_error: float | None, max_parameters: int | None, policy: EdgePolicy
) -> Iterator[TensorNetwork]:
    generator = torch.Generator().manual_seed(0)
    if max_error:
        error = 0.9 * max_error  # the rest is for what the steps of a truncation add up to
        if known.forest is not None and policy.pairs is None:
            yield _smallest(known.forest, error, generator)
        structure = known.network.structure
        if is_forest(structure):
            yield _truncated(known.network, error)
        else:
            share = error / math.sqrt(len(structure.edges))
            moved = thin(structure, known.network.cores, share) if share > 1e-7 else None
            yield known.network if moved is None else TensorNetwork(*moved).balanced()
    elif max_parameters is not None and len(known.network.structure.dims) > FEW_MODES:
        yield from _within(known, max_parameters, policy, generator)


def _smallest(forest: Forest, error: float, generator: torch.Generator) -> TensorNetwork:
    """The smallest tree: of the tensor as it is, truncated, and of what is left then."""
    tree = forest.copy()
    if error > 1e-10:
        tree = smallest_tree(tree, 1e-12, generator)
        tree.truncate(0.7 * error)
    # Every move may drop as much as every edge of a truncation.
    each = 0.5 * error / math.sqrt(2 * len(tree.dims))
    return merge_small(TensorNetwork(*smallest_tree(tree, each, generator).network()).balanced())


def _truncated(network: TensorNetwork, error: float) -> TensorNetwork:
    forest = Forest(network.structure, network.cores)
    forest.truncate(error)
    return TensorNetwork(*forest.network()).balanced()


def _within(
    known: Compact, most: int, policy: EdgePolicy, generator: torch.Generator
) -> Iterator[TensorNetwork]:
    """The network without cycles that fits a budget with the lowest error, by bisection on its logarithm."""
    forest = known.forest if policy.pairs is None else None
    if forest is not None:
        forest = smallest_tree(forest, 1e-12, generator)
    elif is_forest(known.network.structure):
        forest = Forest(known.network.structure, known.network.cores)
    else:
        return
    low, high = math.log(1e-12), 0.0
    for _ in range(12):
        trial, middle = forest.copy(), (low + high) / 2
        trial.truncate(math.exp(middle))
        low, high = (low, middle) if trial.num_parameters <= most else (middle, high)
    forest.truncate(math.exp(high))
    yield TensorNetwork(*forest.network()).balanced()


def _is_allowed(network: TensorNetwork, policy: EdgePolicy, *, split_nodes: bool) -> bool:
    structure = network.structure
    if policy.pairs is not None:
        return policy.pairs.issuperset(structure.edges)
    return (split_nodes or not structure.internal_nodes) and policy.allows_degrees(structure)
