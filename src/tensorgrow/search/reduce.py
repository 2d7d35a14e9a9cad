"""Ways back: pruning, splitting and merging."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from ..algebra import moves
from ..algebra.bypass import bypass
from ..algebra.gauge import balance
from ..algebra.spectra import propose_splits, split_axes, split_weak
from ..contraction import gram_plan
from ..network import TensorNetwork
from ..objectives import SharesPasses
from ..structure import Edge, Structure
from .cuts import CutBounds
from .grow import measure, refit
from .pace import RANKS_PER_STEP
from .problem import Problem
from .state import Fitted


@dataclass(frozen=True)
class Reduction:
    """A smaller network, what leads to it, and its loss before any refit."""

    kind: str
    edge: Edge | None
    saved: int
    loss: float
    make: Callable[[], TensorNetwork]


def _losses(problem: Problem, current: Structure, networks: Sequence[TensorNetwork]) -> list[float]:
    """What the search judges by, without a refit; in one pass where data is costly to read.

    `current` is the structure that the networks were made from.
    """
    objective = problem.objective
    # About a third of a sweep each; to plan sweeps over every one of them would take longer than that.
    problem.context.flops += len(networks) * objective.sweep_flops(current) / 3.0
    if isinstance(objective, SharesPasses):
        both = objective.losses_of(networks)
        return [fitted if held_out is None else held_out for fitted, held_out in both]
    return [_loss(problem, network) for network in networks]


def _loss(problem: Problem, network: TensorNetwork) -> float:
    arrays = problem.objective.to_arrays(network)
    held_out = problem.objective.validation_loss(network.structure, arrays)
    return problem.objective.loss(network.structure, arrays) if held_out is None else held_out


def propose_shrinks(problem: Problem, network: TensorNetwork, bounds: CutBounds | None) -> list[Reduction]:
    """Every edge that `bounds` leave open, with its weakest component dropped in the balanced gauge."""
    structure = network.structure
    balanced = balance(structure, network.cores, problem.objective.nonnegative(structure))
    open_edges = None if bounds is None else bounds.reducible_edges(structure)
    edges = [e for e in structure.edges if open_edges is None or e in open_edges]
    smaller = [
        TensorNetwork(*moves.shrink(structure, balanced, i, j, range(structure.rank(i, j) - 1)))
        for i, j in edges
    ]
    losses = _losses(problem, structure, smaller)
    return [_shrink(network, edge, small, loss) for edge, small, loss in zip(edges, smaller, losses)]


def _shrink(network: TensorNetwork, edge: Edge, small: TensorNetwork, loss: float) -> Reduction:
    saved = network.num_parameters - small.num_parameters
    return Reduction("shrink", edge, saved, loss, partial(TensorNetwork, small.structure, small.cores))


def _widen(problem: Problem, network: TensorNetwork, shrink: Reduction) -> Reduction:
    """A shrink with several ranks of a thick edge, where the target then still holds without a refit."""
    assert shrink.edge is not None
    small = shrink.make()
    rank = small.structure.rank(*shrink.edge)
    count = rank // RANKS_PER_STEP if shrink.loss <= problem.target else 0
    while count:
        kept = range(rank - count)  # components of a balanced edge, the strongest first
        smaller = TensorNetwork(*moves.shrink(small.structure, small.cores, *shrink.edge, kept))
        (loss,) = _losses(problem, network.structure, [smaller])
        if loss <= problem.target:
            return _shrink(network, shrink.edge, smaller, loss)
        count //= 2
    return shrink


def _splittable(
    problem: Problem, network: TensorNetwork, is_wanted: Callable[[int], bool] = lambda node: True
) -> list[int]:
    """Wanted nodes that may be split, and whose environment Gram, which weighs the error, fits in memory.

    Singular vectors have both signs: cores that must not be negative stay whole.
    """
    structure, item = network.structure, network.cores[0].element_size()
    added = structure.num_nodes - structure.order
    if not problem.split_nodes or added >= problem.options.max_internal_nodes + structure.order:
        return []
    if structure.num_nodes == 1:  # nothing around the node, and nothing to split it between
        return []
    most = 0.5 * problem.memory_limit / item  # the other half is for the split itself
    kept = problem.objective.nonnegative(structure)
    nodes = [
        k for k, near in enumerate(structure.neighbours) if len(near) > 1 and k not in kept and is_wanted(k)
    ]
    return [k for k in nodes if gram_plan(structure, k, network.is_complex).program.peak_entries <= most]


def _may_be_split(problem: Problem, structure: Structure, node: int) -> bool:
    """Whether bounds admit what splits of a node lead to, for an exact target.

    At the largest rank that saves a parameter, as it is or with internal nodes merged. Where they do not, the
    split need not be computed: of a hidden triangle that took 8 of 77 ms, to find nothing.
    """
    if problem.bounds is None or not problem.is_exact:
        return True
    shape, near = structure.core_shape(node), structure.neighbours[node]
    for stay in split_axes(len(shape)):
        rows = math.prod(shape[a] for a in stay)
        columns = math.prod(shape) // rows
        largest = min((rows * columns - 1) // (rows + columns), rows, columns)
        if largest < 1:
            continue
        moved = [near[a - 1] for a in range(1, len(shape)) if a not in stay]
        after = moves.split_structure(structure, node, moved, largest)
        if problem.admits(after):
            return True
        merged = merged_structure(after) if problem.merges_nodes else after
        if merged is not after and problem.admits(merged):
            return True
    return False


def _propose_splits(problem: Problem, current: Fitted) -> list[Reduction]:
    """The most promising approximate splits; their loss is estimated from the dropped singular values."""
    network, structure = current.network, current.network.structure
    if problem.pace.is_costly(structure):
        return []
    splits = []
    for node in _splittable(problem, network, partial(_may_be_split, problem, structure)):
        for s in propose_splits(structure, network.cores, node, options_per_cut=4, threshold=0.0):
            loss = math.hypot(current.measure, s.dropped * problem.scale)
            make = partial(network.split_node, s.node, s.axes, rank=s.rank)
            splits.append(Reduction("split", None, s.saved, loss, make))
    splits.sort(key=lambda r: removal_score(r, problem.target))
    return splits[:4]


def split_freely(problem: Problem, current: Fitted) -> Iterator[TensorNetwork]:
    """The network after each of the most promising approximate splits; a refit must tell what they cost."""
    for reduction in _propose_splits(problem, current):
        network = merge_internal(reduction.make(), problem.objective.nonnegative(current.network.structure))
        if _is_smaller(problem, network, current):
            yield network


def split_closely(problem: Problem, current: Fitted) -> Iterator[TensorNetwork]:
    """The network after each of the splits that cost almost nothing, those that save most first."""
    network, structure, o = current.network, current.network.structure, problem.options
    nodes = _splittable(problem, network)
    if o.split_below:
        splits = [s for node in nodes for s in split_weak(network.cores, node, o.split_below)]
    else:
        # Of held-out data the error itself is the measure: there is often no target, and never an exact fit.
        least = current.measure if problem.holds_out else 1e-5 * problem.objective.norm
        limit = o.split_threshold * max(problem.target, least) / problem.scale
        splits = [
            s
            for node in nodes
            for s in propose_splits(structure, network.cores, node, threshold=limit)
            if s.dropped <= limit
        ]
    for s in sorted(splits, key=lambda s: -s.saved)[:6]:  # where these all fail, others would too
        smaller = network.split_node(s.node, s.axes, rank=s.rank)
        if _is_smaller(problem, smaller, current):
            yield smaller


def _is_smaller(problem: Problem, network: TensorNetwork, current: Fitted) -> bool:
    """Whether a network is smaller, and allowed: a split joins fewer parameters by wider bonds."""
    structure = network.structure
    if structure.num_parameters >= current.size:
        return False
    return problem.policy.allows_degrees(structure) and problem.fits(structure)


def split_exactly(problem: Problem, current: Fitted) -> Fitted | None:
    """The split that saves most among those that cost almost nothing; None when there is none."""
    for smaller in split_closely(problem, current):
        trial = measure(problem, smaller)
        if problem.options.split_below or trial.measure <= max(current.measure * 1.001, problem.target):
            return trial
    return None


def bypass_exactly(problem: Problem, current: Fitted) -> tuple[Fitted, Edge] | None:
    """An edge past a node that saves parameters and costs almost nothing; None when there is none.

    For exact targets: what others leave out would hide what nodes hand through.
    """
    network, structure = current.network, current.network.structure
    if not problem.is_exact or not problem.split_nodes or problem.objective.nonnegative(structure):
        return None
    for node, near in enumerate(structure.neighbours):
        for edge in combinations(near, 2):
            move = bypass(structure, network.cores, node, *edge)
            if move is None:
                continue
            smaller = TensorNetwork(*move)
            smaller = merge_internal(smaller) if problem.merges_nodes else smaller
            if not _is_smaller(problem, smaller, current):
                continue
            trial = measure(problem, smaller)
            if trial.loss > problem.target:
                trial = refit(problem, smaller, give_up=True)
            if trial.loss <= problem.target:
                return trial, edge
    return None


def merge_internal(network: TensorNetwork, nonnegative: Collection[int] = ()) -> TensorNetwork:
    """Contract internal nodes, alone or in sets, wherever that lowers the number of parameters. Exact.

    Nodes that are `nonnegative` take in only such nodes.
    """
    while (merges := _best_merges(network.structure, nonnegative)) is not None:
        for target, absorbed in merges:
            network = network.merge_nodes(target, absorbed)
    return network


def merged_structure(structure: Structure) -> Structure:
    """The structure of a network after `merge_internal`."""
    while (merges := _best_merges(structure)) is not None:
        for target, absorbed in merges:
            structure = moves.merge_structure(structure, target, absorbed)
    return structure


def _best_merges(
    structure: Structure, nonnegative: Collection[int] = ()
) -> tuple[tuple[int, int], ...] | None:
    """Pairs of a node and an internal one that it takes in, which save most together; None: none do."""
    best: tuple[int, int, tuple[tuple[int, int], ...]] | None = None
    added = range(structure.order, structure.num_nodes)
    plans: list[tuple[tuple[int, int], ...]]
    plans = [
        ((k, q),)
        for q in added
        for k in range(structure.num_nodes)
        if k != q and (k not in nonnegative or q in nonnegative)
    ]
    most = len(added) if len(added) <= 10 else 2  # there are 2^n sets: a thousand are looked at
    for count in range(3, most + 1):
        for nodes in combinations(added, count):
            # Absorb the highest first: lower numbers are not renamed by it.
            plans.append(tuple((nodes[0], q) for q in reversed(nodes[1:])))
    sizes = [math.prod(shape) for shape in structure.core_shapes]
    for plan in plans:
        # What is merged is the core of all edges that leave; other cores keep their sizes. To make a
        # structure for every plan would take ten times as long.
        inside = {k for pair in plan for k in pair}
        joint = math.prod(r for (i, j), r in structure.ranks.items() if (i in inside) != (j in inside))
        joint *= structure.leg_dim(plan[0][0])
        size = structure.num_parameters - sum(sizes[k] for k in inside) + joint
        key = (size, structure.num_nodes - len(plan))
        if best is None or key < best[:2]:
            best = (*key, plan)
    if best is None or best[:2] >= (structure.num_parameters, structure.num_nodes):
        return None
    return best[2]


def removal_score(reduction: Reduction, reference: float) -> float:
    """Lowest first: how far the loss would lie above a reference, per parameter saved."""
    if reduction.loss <= reference:
        return -1e3 * reduction.saved  # for free: before all others, the largest first
    return math.log(reduction.loss / reference) / reduction.saved


def _in_order(problem: Problem, current: Fitted, randomise: bool, splits_first: bool) -> Iterator[Reduction]:
    """The most promising reductions, splits among them or after all others."""

    def order(reduction: Reduction) -> float:
        noise = problem.context.noise(0.2) if randomise else 1.0
        return removal_score(reduction, problem.target) * noise

    most = problem.options.prune_candidates
    network = current.network
    first = propose_shrinks(problem, network, problem.bounds)
    if not problem.holds_out:
        first = [_widen(problem, network, r) for r in first]
    if splits_first:
        first += _propose_splits(problem, current)
    yield from sorted(first, key=order)[:most]
    if not (splits_first or problem.holds_out):
        yield from sorted(_propose_splits(problem, current), key=order)[:most]


def prune_once(
    problem: Problem, current: Fitted, *, randomise: bool = False, splits_first: bool = True
) -> tuple[Fitted, Reduction] | None:
    """One reduction after which the target still holds; None when the best few all fail.

    Where data is held out, ranks are lowered only: splits need a ridge of their own, see `HeldOutSearch`.

    Parameters
    ----------
    splits_first
        Whether splits compete with lower ranks. They take a fifth of the time of pruning a video; once one
        rank was lowered, they can wait until no other is: 24 networks have the same size in the mean, within
        0.3 %.
    """
    o = problem.options
    for reduction in _in_order(problem, current, randomise, splits_first and not problem.holds_out):
        smaller = reduction.make()
        if problem.merges_nodes:
            smaller = merge_internal(smaller, problem.objective.nonnegative(current.network.structure))
        if not problem.admits(smaller.structure) or not _is_smaller(problem, smaller, current):
            continue
        loss = _loss(problem, smaller) if reduction.kind == "split" else reduction.loss
        trial = Fitted(smaller, loss)
        if problem.holds_out:
            trial = refit(problem, smaller)
        elif not loss <= problem.target:
            trial = refit(problem, smaller, sweeps=o.final_sweeps, tolerance=o.final_tolerance, give_up=True)
        if trial.measure <= problem.target:
            return trial, reduction
        if problem.context.is_out_of_time:
            return None
    return None
