"""The smallest tree structure a target admits, read off the ranks of its matricizations.

In a tree every edge is a cut, and the rank it needs is the rank of the target across that cut. So the size of
every tree, Tucker, tensor trains in any order and hierarchical Tucker among them, follows from the cut ranks
alone. Dynamic programming over sets of legs finds the smallest one, and nested SVDs build it. Trees with a
node of any degree are searched up to eight legs, nodes of degree three beyond.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import NamedTuple

import torch

from ..network import TensorNetwork
from ..structure import Structure
from .cuts import CutBounds

# The number of partitions of a set of legs, which are all tried, grows faster than exponentially.
ANY_DEGREE_UP_TO = 8


class TreeNode(NamedTuple):
    """A node with its own leg (or None) above the subtrees `children`, sets of legs as bit masks."""

    leg: int | None
    children: tuple[int, ...]


def smallest_tree(
    bounds: CutBounds, share: float | None = None
) -> tuple[int, dict[int, TreeNode], dict[int, int]] | None:
    """Parameters of the smallest tree, its nodes by the legs below them, and the rank above each.

    None when the spectra of some cuts were too expensive to compute.

    Parameters
    ----------
    share
        Norm that every edge drops, relative to the target; by default so much that the error of the bounds is
        kept for sure.
    """
    order = bounds.order
    if not bounds.is_complete or order < 3:
        return None
    everything = (1 << order) - 1
    dims = bounds.dims
    if share is None:  # truncation errors of nested SVDs add up over the edges, at most 2 p - 3 of them
        share = bounds.max_error / math.sqrt(2 * order - 3)
    rank = {mask: bounds.needed_rank(mask, share) for mask in range(1, everything)}
    size, nodes = _cheapest(dims, rank, None if order <= ANY_DEGREE_UP_TO else 2)
    return size, nodes, rank


def expected_tree(bounds: CutBounds) -> dict[int, TreeNode] | None:
    """The tree that is probably the smallest for a tensor of which the target is a small part.

    Some slices of each leg show only the beginning of a spectrum. Ranks are taken to be squared on the whole,
    and cubed where the part has all the rank that it can have; that of a single leg is at most its size.
    Nodes have degree three: others are large when ranks grow. None where spectra were too expensive to
    compute.
    """
    order, part = bounds.order, bounds.target.shape
    if not bounds.is_complete:
        return None
    everything = (1 << order) - 1
    rank = {}
    for mask in range(1, everything):
        sizes = [math.prod(part[k] for k in range(order) if (mask >> k & 1) == side) for side in (0, 1)]
        seen = bounds.needed_rank(mask)
        rank[mask] = seen ** (3 if seen == min(sizes) else 2)
        if mask.bit_count() == 1:
            rank[mask] = min(seen**2, bounds.dims[mask.bit_length() - 1])
    return _cheapest(bounds.dims, rank, 2)[1]


def balanced_tree(order: int) -> dict[int, TreeNode]:
    """The binary tree of hierarchical Tucker: neighbouring legs are joined, then pairs of them, and so on.

    Its root, which would join two nodes and have a matrix that either of them can take in, is one of these.
    """
    nodes = {1 << k: TreeNode(k, ()) for k in range(order)}
    level = list(nodes)
    while len(level) > 1:
        pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
        nodes |= {sum(pair): TreeNode(None, tuple(pair)) for pair in pairs if len(pair) == 2}
        level = [sum(pair) for pair in pairs]
    left, right = nodes[level[0]].children
    merged = nodes.pop(left)
    nodes[level[0]] = TreeNode(merged.leg, (*merged.children, right))
    return nodes


def linked_tree(distance: torch.Tensor) -> dict[int, TreeNode]:
    """A binary tree of legs from the distances of all pairs of them: the nearest groups are joined first."""
    nodes = {1 << k: TreeNode(k, ()) for k in range(len(distance))}
    groups = list(nodes)

    def apart(one: int, other: int) -> float:
        legs = [[k for k in range(len(distance)) if mask >> k & 1] for mask in (one, other)]
        return float(distance[legs[0]][:, legs[1]].mean())

    while len(groups) > 1:
        one, other = min(combinations(groups, 2), key=lambda pair: apart(*pair))
        groups = [g for g in groups if g not in (one, other)] + [one | other]
        nodes[one | other] = TreeNode(None, (one, other))
    return nodes


def _cheapest(
    dims: tuple[int, ...], rank: dict[int, int], blocks: int | None
) -> tuple[int, dict[int, TreeNode]]:
    """Size and nodes of the smallest tree with these ranks; a node has at most `blocks` children."""
    order = len(dims)
    everything = (1 << order) - 1
    rank[everything] = 1

    @cache
    def best(mask: int) -> tuple[int, TreeNode]:
        legs = [k for k in range(order) if mask >> k & 1]
        if len(legs) == 1:
            return dims[legs[0]] * rank[mask], TreeNode(legs[0], ())
        options: list[tuple[int, TreeNode]] = []
        for leg in (None, *legs):
            rest = mask if leg is None else mask ^ (1 << leg)
            own = 1 if leg is None else dims[leg]
            for children in _partitions(rest, blocks):
                if leg is None and len(children) < 2:
                    continue
                size = rank[mask] * own * math.prod(rank[c] for c in children)
                options.append((size + sum(best(c)[0] for c in children), TreeNode(leg, children)))
        return min(options, key=lambda option: option[0])

    size, _ = best(everything)
    nodes: dict[int, TreeNode] = {}
    pending = [everything]
    while pending:
        mask = pending.pop()
        nodes[mask] = best(mask)[1]
        pending.extend(nodes[mask].children)
    return size, nodes


def _partitions(mask: int, blocks: int | None) -> Iterator[tuple[int, ...]]:
    """Partitions of a set into at most `blocks` sets (None: any number), each listed once."""
    if not mask:
        yield ()
        return
    if blocks == 0:
        return
    low = mask & -mask
    rest = mask ^ low
    part = rest
    while True:
        fewer = None if blocks is None else blocks - 1
        for others in _partitions(rest ^ part, fewer):
            yield (part | low, *others)
        if not part:
            return
        part = (part - 1) & rest


def build_tree(bounds: CutBounds, nodes: dict[int, TreeNode], rank: dict[int, int]) -> TensorNetwork:
    """Cores of a tree by nested truncated SVDs of the target."""
    order = bounds.order
    everything = (1 << order) - 1
    internal = [mask for mask in sorted(nodes, reverse=True) if nodes[mask].leg is None]
    number = {mask: node.leg for mask, node in nodes.items() if node.leg is not None}
    number |= {mask: order + k for k, mask in enumerate(internal)}
    pieces: dict[int, tuple[torch.Tensor, list[int]]] = {}

    def descend(mask: int, tensor: torch.Tensor, labels: list[int], parent: int | None) -> None:
        """`labels` names the axes of `tensor`: legs 0..p-1, or -1 for the bond to the parent."""
        node = nodes[mask]
        below = []
        for child in node.children:
            inside = [a for a, x in enumerate(labels) if 0 <= x < order and child >> x & 1]
            outside = [a for a in range(len(labels)) if a not in inside]
            rows = math.prod(tensor.shape[a] for a in inside)
            matrix = tensor.permute(*inside, *outside).reshape(rows, -1)
            u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
            r = min(rank[child], len(s))
            shape = [tensor.shape[a] for a in inside]
            below.append((child, u[:, :r].reshape(*shape, r), [*(labels[a] for a in inside), -1]))
            rest = [tensor.shape[a] for a in outside]
            tensor = (s[:r, None] * vh[:r]).reshape(r, *rest)
            labels = [order + number[child], *(labels[a] for a in outside)]
        ends = {-1: number[parent]} if parent is not None else {}
        neighbours = [ends.get(x, x - order) for x in labels if x == -1 or x >= order]
        axis = next((a for a, x in enumerate(labels) if 0 <= x < order), None)
        others = [a for a in range(len(labels)) if a != axis]
        moved = tensor.permute(*([] if axis is None else [axis]), *others)
        pieces[number[mask]] = (moved if axis is not None else moved.unsqueeze(0), neighbours)
        for child, basis, names in below:
            descend(child, basis, names, mask)

    descend(everything, bounds.target, list(range(order)), None)
    for k, basis in enumerate(bounds.bases):
        if basis is not None:
            core, near = pieces[k]
            pieces[k] = torch.tensordot(basis, core, dims=1), near
    return assemble(bounds.dims, pieces)


def assemble(dims: tuple[int, ...], pieces: Mapping[int, tuple[torch.Tensor, list[int]]]) -> TensorNetwork:
    """Cores, each with the neighbours that its axes after the leg lead to, as a network."""
    ranks = {}
    for k, (core, near) in pieces.items():
        for axis, other in enumerate(near, 1):
            ranks[min(k, other), max(k, other)] = core.shape[axis]
    structure = Structure(dims, ranks, num_nodes=len(pieces))
    cores = []
    for k in range(len(pieces)):
        core, near = pieces[k]
        axes = sorted(range(len(near)), key=near.__getitem__)
        cores.append(core.permute(0, *(1 + a for a in axes)).reshape(structure.core_shape(k)).contiguous())
    return TensorNetwork(structure, cores)
