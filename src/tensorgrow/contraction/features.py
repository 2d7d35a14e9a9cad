"""A network applied to products of local features, one sample per row.

Every node but the class node holds a feature leg. A sample gives each of these legs a vector, and what is
left is a vector over the class leg. Nodes are absorbed one after the other into a tensor of shape
``(n, open bonds)``: one outer product with the features of the node and one matrix product with its core,
which the samples share. Forming a matrix per sample and core first, as an einsum over contracted cores would,
reads and writes far more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..structure import Structure
from .cache import cached


@dataclass(frozen=True)
class Absorb:
    """One node, absorbed into the state: the contraction of its piece so far."""

    node: int
    has_feature: bool
    state_axes: tuple[int, ...] | None  # bonds that stay, then those that end at the node; None at the start
    core_axes: tuple[int, ...]  # bonds to the state, the feature leg, bonds that open
    stay: tuple[int, ...]  # sizes of the bonds that stay,
    shared: int  # of those that end at the node together,
    new: tuple[int, ...]  # and of those that open


@dataclass(frozen=True)
class ProductPlan:
    """How a structure whose last leg is that of the classes is applied to samples."""

    class_node: int
    lonely: tuple[int, ...]  # feature nodes without edges
    # What is connected once the class node is taken out, each with the number of class bonds it ends in and
    # the order of axes that puts these last; pieces without any are factors.
    pieces: tuple[tuple[tuple[Absorb, ...], int, tuple[int, ...]], ...]
    cost: float  # multiplications per sample

    def run(self, cores: Sequence[torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        """Values of the classes, ``(n, classes)``, for features of shape ``(n, legs, size)``."""
        count = len(features)
        values = cores[self.class_node].unsqueeze(0)
        for steps, bonds, axes in self.pieces:
            piece = _absorb(steps, cores, features)
            if not bonds:
                values = values * piece.reshape(count, *[1] * (values.dim() - 1))
                continue
            width = piece[0].numel()
            values = values.permute(axes)
            rest = values.shape[1 : values.dim() - bonds]
            if values.shape[0] == 1:  # the class core itself, which all samples share
                values = piece.reshape(count, width) @ values.reshape(-1, width).T
            else:
                values = (values.reshape(count, -1, width) * piece.reshape(count, 1, width)).sum(-1)
            values = values.reshape(count, *rest)
        values = values.expand(count, *values.shape[1:])
        if self.lonely:
            stacked = torch.stack([cores[k] for k in self.lonely])
            factors = (features[:, list(self.lonely)] * stacked).sum(-1).prod(-1)
            values = values * factors[:, None]
        return values


def _absorb(steps: Sequence[Absorb], cores: Sequence[torch.Tensor], features: torch.Tensor) -> torch.Tensor:
    """The tensor of a piece, ``(n, its class bonds)``."""
    count = len(features)
    state = features.new_ones(count, 1)
    for step in steps:
        core = cores[step.node]
        matrix = core.permute(step.core_axes).reshape(-1, math.prod(step.new))
        if step.state_axes is not None:
            state = state.permute(0, *(a + 1 for a in step.state_axes))
        left = state.reshape(count, -1, step.shared)
        if step.has_feature:
            here = features[:, step.node]
            left = left.unsqueeze(-1) * here.reshape(count, 1, 1, -1)
        state = (left.reshape(-1, matrix.shape[0]) @ matrix).reshape(count, *step.stay, *step.new)
    return state


@cached
def product_plan(structure: Structure) -> ProductPlan:
    """Plan for a structure; its last leg is the class leg."""
    root = structure.order - 1
    compiled, lonely = [], []
    for nodes in _pieces(structure, root):
        if len(nodes) == 1 and not structure.neighbours[nodes[0]] and nodes[0] < root:
            lonely.append(nodes[0])
        else:
            compiled.append(_cheapest(structure, nodes, root))
    # Wide pieces meet the class core first: that one is a matrix product.
    compiled.sort(key=lambda p: -math.prod(structure.rank(k, root) for k in p[1]))
    left = list(structure.neighbours[root])
    pieces = []
    cost = 0.0
    for steps, bonds, spent in compiled:
        stay = [k for k in left if k not in bonds]
        axes = (0, 1, *(2 + left.index(k) for k in (*stay, *bonds)))
        pieces.append((tuple(steps), len(bonds), axes))
        cost += spent + structure.leg_dim(root) * math.prod(structure.rank(k, root) for k in left)
        left = stay
    return ProductPlan(root, tuple(lonely), tuple(pieces), cost)


def _pieces(structure: Structure, root: int) -> list[list[int]]:
    """Connected sets of nodes once the root is taken out."""
    seen = {root}
    pieces = []
    for first in range(structure.num_nodes):
        if first in seen:
            continue
        seen.add(first)
        nodes = [first]
        for k in nodes:  # grows while it is read
            for j in structure.neighbours[k]:
                if j not in seen:
                    seen.add(j)
                    nodes.append(j)
        pieces.append(nodes)
    return pieces


def _cheapest(
    structure: Structure, nodes: list[int], root: int
) -> tuple[list[Absorb], tuple[int, ...], float]:
    """Best of the greedy orders from a few first nodes."""
    mine = set(nodes)

    def degree(k: int) -> int:
        return sum(j in mine for j in structure.neighbours[k])

    # Ends of chains first, and far from the class node: `nodes` is not sorted by that, but ends are few.
    starts = sorted(nodes, key=lambda k: (degree(k), root in structure.neighbours[k]))[:6]
    orders = [_greedy(structure, mine, first) for first in starts]
    return min((_compile(structure, order, root) for order in orders), key=lambda steps: steps[2])


def _greedy(structure: Structure, nodes: set[int], first: int) -> list[int]:
    """An order that keeps the product of the open ranks small from step to step."""
    order, done = [first], {first}
    edge_of = {k for k in structure.neighbours[first] if k in nodes}
    while len(order) < len(nodes):

        def change(k: int) -> float:
            ranks = [(structure.rank(k, j), j in done) for j in structure.neighbours[k]]
            return sum(-math.log(r) if known else math.log(r) for r, known in ranks)

        best = min(sorted(edge_of), key=change)
        order.append(best)
        done.add(best)
        edge_of.discard(best)
        edge_of |= {k for k in structure.neighbours[best] if k in nodes and k not in done}
    return order


def _compile(
    structure: Structure, order: Sequence[int], root: int
) -> tuple[list[Absorb], tuple[int, ...], float]:
    """Steps of an order, the class bonds in the order of the result, and the multiplications per sample."""
    state: list[tuple[int, int]] = []  # open bonds: the node inside, the node outside
    steps = []
    cost = 0.0
    for node in order:
        around = structure.neighbours[node]
        shared = [n for n, (_, outside) in enumerate(state) if outside == node]
        stay = [n for n in range(len(state)) if n not in shared]
        inside = [state[n][0] for n in shared]
        opened = [j for j in around if j not in inside]
        before, after = ([structure.axis(node, j) for j in ends] for ends in (inside, opened))
        sizes = [structure.rank(*e) for e in state]
        staying, new = tuple(sizes[n] for n in stay), tuple(structure.rank(node, j) for j in opened)
        width = math.prod(sizes[n] for n in shared)
        state_axes = (*stay, *shared) if state else None
        steps.append(Absorb(node, node < root, state_axes, (*before, 0, *after), staying, width, new))
        cost += math.prod(staying) * width * structure.leg_dim(node) * (1 + math.prod(new))
        state = [state[n] for n in stay] + [(node, j) for j in opened]
    return steps, tuple(inside for inside, _ in state), cost
