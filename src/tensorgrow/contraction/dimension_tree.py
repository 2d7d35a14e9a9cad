"""Dimension trees: which partial contractions the node updates of a sweep share.

A vertex of the tree is a set S of nodes. Its two partial results are the target contracted with all cores
outside S, and the Gram matrix of those cores. Both children reuse them, so the target is read twice per sweep
instead of once per node. The best tree is found by dynamic programming over a family of sets: all of them for
small networks, the intervals of a few good orderings for large ones.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from ..structure import Edge, Structure
from .cache import cached
from .paths import greedy_paths, size_class
from .program import INSTRUCTION_FLOPS

Tree = int | tuple["Tree", ...]

# All subsets have 3^n / 2 splits: 30,000 for 10 nodes.
ALL_SUBSETS_UP_TO = 10
# Beyond so many nodes, splits of all intervals (n^3 / 6 of them) take longer than they save.
INTERVALS_UP_TO = 128

# Levels of a tree that are walked by recursion, well below Python's limit of 1,000 calls.
DEEPEST = 200

HALF_OCTAVE = 0.5 * np.log(2.0)  # the unit of `size_class`

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Bonds = tuple[tuple[Edge, int], ...]
"""Edges, and the size class of each."""
Family = tuple[Floats, Ints, Ints, Ints, list[tuple[int, int, Ints, Ints]]]


def leaves(tree: Tree) -> tuple[int, ...]:
    """Nodes of a tree from left to right."""
    if isinstance(tree, int):
        return (tree,)
    return tuple(k for child in tree for k in leaves(child))


def star(num_nodes: int) -> Tree:
    """Every node its own child of the root: no sharing."""
    return tuple(range(num_nodes)) if num_nodes > 1 else 0


def best_tree(
    structure: Structure, *, rows: int | None = None, layers: int = 1, in_order: bool = False
) -> Tree:
    """Binary tree with the cheapest sweep under a simple flop model.

    Parameters
    ----------
    rows
        Number of listed entries, for sweeps over those instead of a dense target.
    layers
        Number of copies of every edge: 2 where each core stands beside its conjugate.
    in_order
        Whether the target is so large that splits count that cut its legs, as they are stored, in two runs.
    """
    return _of_structure(structure, rows, layers, in_order)[1]


def sweep_flops(structure: Structure, *, rows: int | None = None, layers: int = 1) -> float:
    """What a sweep over the best tree takes under the same model, to compare structures."""
    return _of_structure(structure, rows, layers)[0]


def _of_structure(
    structure: Structure, rows: int | None, layers: int, in_order: bool = False
) -> tuple[float, Tree]:
    n = structure.num_nodes
    if n == 1:
        return 0.0, 0
    classes = tuple(size_class(structure.leg_dim(k)) for k in range(n))
    bonds = tuple((e, layers * size_class(r)) for e, r in structure.ranks.items())
    return _best_tree(n, classes, bonds, None if rows is None else size_class(rows), in_order)


@cached
def _best_tree(
    n: int, classes: tuple[int, ...], bonds: Bonds, row_class: int | None, in_order: bool
) -> tuple[float, Tree]:
    log_dims = HALF_OCTAVE * np.array(classes, dtype=float)
    log_ranks = np.zeros((n, n))
    for (i, j), c in bonds:
        log_ranks[i, j] = log_ranks[j, i] = HALF_OCTAVE * c

    def best(family: Family, order: Ints) -> tuple[float, Tree]:
        return _best_in(family, order, log_dims, log_ranks, row_class, in_order)

    if n <= ALL_SUBSETS_UP_TO:
        return best(_all_subsets(n), np.arange(n))
    has_cycles = len(bonds) >= n
    if n > INTERVALS_UP_TO:
        trees = [_halve(_depth_first_order(log_ranks).tolist())]
        if has_cycles:
            trees += _greedy_trees(n, bonds)
        with np.errstate(over="ignore"):  # 2^1,030 entries, of a target that nobody has
            found = [best(_splits_of(tree), np.arange(n)) for tree in trees]
        return min(found, key=lambda pair: pair[0])
    orders = [_spectral_order(log_ranks)]
    if (log_ranks > 0).sum(1).max() > 2:  # branches: the spectrum mixes those that look alike
        orders.append(_depth_first_order(log_ranks))
    if has_cycles:  # a set that few edges leave may be an interval of neither
        orders += [np.array(leaves(tree), dtype=np.intp) for tree in _greedy_trees(n, bonds)]
    return min((best(_intervals(n), order) for order in orders), key=lambda pair: pair[0])


def _best_in(
    family: Family, order: Ints, log_dims: Floats, log_ranks: Floats, row_class: int | None, in_order: bool
) -> tuple[float, Tree]:
    """Cheapest tree whose vertices are sets of a family, and its cost; member k stands for ``order[k]``."""
    members, parents, lefts, rights, levels = family
    n = len(order)
    log_dims = log_dims[order]
    log_ranks = log_ranks[np.ix_(order, order)]

    dims = members @ log_dims
    rows = members @ log_ranks
    inner = 0.5 * np.einsum("sn,sn->s", rows, members)
    cut = np.einsum("sn,sn->s", rows, 1.0 - members)
    joint = inner[parents] - inner[lefts] - inner[rights]
    if row_class is None:
        cost = _split_cost(dims, joint, cut, members.sum(1), parents, lefts, rights)
        if in_order:
            mixed = _are_mixed(members * (log_dims > 0), order, lefts, rights)
            # Eight flops an entry: with Tucker ranks 5, a sweep over 40^4 takes 6.7 ms where legs are split
            # off at the ends, and 11 ms where in the middle.
            cost += 8.0 * mixed * np.exp(dims[parents] + cut[parents])
    else:
        product = 2.0 * np.exp(joint + cut[parents])
        rows = _split_rows(dims, HALF_OCTAVE * row_class, parents, lefts, rights)
        cost = INSTRUCTION_FLOPS + np.where(members[parents].sum(1) == n, 0.0, product * rows)

    best = np.zeros(len(members))
    choice = np.zeros(len(members), dtype=np.intp)
    for first, last, heads, lengths in levels:
        total = cost[first:last] + best[lefts[first:last]] + best[rights[first:last]]
        lowest = np.minimum.reduceat(total, heads)
        # Of equal splits the first is taken: it is written last.
        picked = np.flatnonzero(total == np.repeat(lowest, lengths))[::-1]
        best[parents[first + picked]] = total[picked]
        choice[parents[first + picked]] = first + picked

    def build(s: int) -> Tree:
        if members[s].sum() == 1:
            return int(order[int(members[s].argmax())])
        return (build(int(lefts[choice[s]])), build(int(rights[choice[s]])))

    root = int(parents[-1])
    return float(best[root]), build(root)


def _split_cost(
    dims: Floats, x: Floats, cut: Floats, count: Floats, parents: Ints, lefts: Ints, rights: Ints
) -> Floats:
    """Flops of both steps S -> A and S -> B. All sizes are logarithms; x joins A and B, a and b leave S."""
    a, b = cut[lefts] - x, cut[rights] - x
    target = 4.0 * np.exp(dims[parents] + a + b + x)
    joint = 4.0 * (
        np.where(count[lefts] > 1, np.exp(dims[lefts] + cut[lefts]), 0.0)
        + np.where(count[rights] > 1, np.exp(dims[rights] + cut[rights]), 0.0)
    )

    def gram(inside: Floats, outside: Floats, d: Floats) -> Floats:
        joined = np.exp(2 * (inside + outside + x)) + np.exp(d + 2 * outside + 2 * x)
        in_turn = np.exp(2 * inside + 2 * outside + d + x) + np.exp(2 * inside + outside + d + 2 * x)
        cheaper: Floats = 2.0 * np.minimum(joined, in_turn)
        return cheaper

    grams = gram(a, b, dims[rights]) + gram(b, a, dims[lefts])
    dispatch = INSTRUCTION_FLOPS * (6.0 + 2.0 * (count[parents] - 2.0))
    total: Floats = target + joint + grams + dispatch
    return total


def _are_mixed(members: Floats, order: Ints, lefts: Ints, rights: Ints) -> npt.NDArray[np.bool_]:
    """Whether legs of one side of a split stand between legs of the other."""
    first = np.where(members > 0, order, len(order)).min(1)
    last = np.where(members > 0, order, -1).max(1)
    mixed: npt.NDArray[np.bool_] = (last[lefts] > first[rights]) & (last[rights] > first[lefts])
    return mixed


def _split_rows(dims: Floats, entries: float, parents: Ints, lefts: Ints, rights: Ints) -> Floats:
    """Rows of a split where every partial result has one per combination of indices that occurs.

    A set S passes its surroundings, multiplied by one child, to the other child; and S is the product of its
    children.
    """
    left, right = (np.exp(np.minimum(dims.max() - dims[side], entries)) for side in (lefts, rights))
    total: Floats = left + right + 2.0 * np.exp(np.minimum(dims[parents], entries))
    return total


def _family(members: Floats, splits: list[tuple[int, int, int]]) -> Family:
    """Sort splits (set, left, right) by the size of the set and mark where each set and each size begins."""
    sizes = members.sum(1)
    splits.sort(key=lambda t: (sizes[t[0]], t[0]))
    table = np.array(splits, dtype=np.intp).reshape(-1, 3)
    parents, lefts, rights = table.T.copy()
    starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    level_of = sizes[parents]
    edges = np.flatnonzero(np.r_[True, level_of[1:] != level_of[:-1]]).tolist()
    levels = []
    for first, last in zip(edges, [*edges[1:], len(parents)]):
        heads = starts[(starts >= first) & (starts < last)]
        levels.append((first, last, heads - first, np.diff(np.append(heads, last))))
    return members, parents, lefts, rights, levels


@cached
def _all_subsets(n: int) -> Family:
    masks = np.arange(1 << n)
    members = ((masks[:, None] >> np.arange(n)) & 1).astype(float)
    splits = []
    for s in range(1, 1 << n):
        low = s & -s
        rest = s ^ low
        part = rest
        while part:  # the left side keeps the lowest node, so each split is listed once
            part = (part - 1) & rest
            splits.append((s, part | low, s ^ part ^ low))
    return _family(members, splits)


@cached
def _intervals(n: int) -> Family:
    pairs = list(combinations(range(n + 1), 2))
    index = {pair: k for k, pair in enumerate(pairs)}
    members = np.zeros((len(pairs), n))
    for (first, last), k in index.items():
        members[k, first:last] = 1.0
    splits = [(k, index[a, m], index[m, b]) for (a, b), k in index.items() for m in range(a + 1, b)]
    return _family(members, splits)


def _splits_of(tree: Tree) -> Family:
    """The sets of one tree, each of which splits in one way."""
    n = len(leaves(tree))
    members: list[Floats] = []
    splits: list[tuple[int, int, int]] = []

    def add(part: Tree) -> int:
        parts = [] if isinstance(part, int) else [add(child) for child in part]
        own = np.zeros(n)
        own[list(leaves(part))] = 1.0
        members.append(own)
        if parts:
            splits.append((len(members) - 1, parts[0], parts[1]))
        return len(members) - 1

    add(tree)
    return _family(np.array(members), splits)


def _halve(order: list[int]) -> Tree:
    """Tree that halves an order of the nodes again and again."""
    if len(order) == 1:
        return order[0]
    middle = len(order) // 2
    return _halve(order[:middle]), _halve(order[middle:])


def _spectral_order(log_ranks: Floats) -> Ints:
    """Order that keeps strongly joined nodes close: the Fiedler vector of the rank-weighted graph."""
    weights = log_ranks + 1e-3  # a faint complete graph, so that pieces without edges get an order too
    np.fill_diagonal(weights, 0.0)
    laplacian = np.diag(weights.sum(1)) - weights
    _, vectors = np.linalg.eigh(laplacian)
    fiedler = vectors[:, 1]
    return np.argsort(fiedler * np.sign(fiedler[np.abs(fiedler).argmax()]), kind="stable")


def _greedy_trees(n: int, bonds: Bonds) -> list[Tree]:
    """Trees of greedy contractions of the whole network; without those too deep to walk."""
    legs = tuple(tuple(k for k, (edge, _) in enumerate(bonds) if node in edge) for node in range(n))
    found = []
    for path in greedy_paths(legs, tuple(c for _, c in bonds)):
        trees: list[Tree] = list(range(n))
        depths = [0] * n
        for a, b in path:
            trees.append((trees[a], trees[b]))
            depths.append(1 + max(depths[a], depths[b]))
        if depths[-1] <= DEEPEST:
            found.append(trees[-1])
    return found


def _depth_first_order(log_ranks: Floats) -> Ints:
    """Order of a walk that finishes every branch before the next, strongest edges first: for trees."""
    order: dict[int, None] = {}
    waiting = list(range(len(log_ranks)))
    while waiting:
        k = waiting.pop()
        if k not in order:
            order[k] = None
            near = np.flatnonzero(log_ranks[k])
            waiting += near[np.argsort(log_ranks[k, near], kind="stable")].tolist()
    return np.array(list(order), dtype=np.intp)
