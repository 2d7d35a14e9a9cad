"""A target that is a network itself, contracted with the cores of another: plans per pair of structures.

Where a dense target is one array that meets conjugated cores, here every conjugated core meets the core of
the target with the same leg. What is left of both is a set of partial contractions that share no bond, so
that no outer product is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..structure import Edge, Structure
from .cache import cached
from .dimension_tree import best_tree
from .grams import Array, Update
from .pairs import PairPlan, emit_pairs
from .paths import OPTIMAL_OPERANDS
from .program import Program, ResultPlan
from .sweeps import Data, EnvironmentBuilder, emit_updates


class CrossBuilder(EnvironmentBuilder):
    """Environments of a network, with another network as the target.

    The cores of the target come in as `data`: those with a leg, a one for every internal node of the network
    (so that each of its nodes has a partner), and those without a leg, which lack its axis of size 1.
    """

    def __init__(self, structure: Structure, target: Structure, *, is_complex: bool) -> None:
        super().__init__(structure, is_complex=is_complex)
        first = len(self.legs.sizes)
        number = {e: first + k for k, e in enumerate(target.edges)}
        self.legs.sizes += [target.ranks[e] for e in target.edges]
        bonds = [tuple(number[e] for e in target.edges_of(k)) for k in range(target.num_nodes)]
        order, program = structure.order, self.program
        with_leg = [program.input((k, *bonds[k])) for k in range(order)]
        self.partners = [*with_leg, *(program.input((k,)) for k in structure.internal_nodes)]
        self.loose = tuple(program.input(bonds[k]) for k in target.internal_nodes)

    @property
    def data(self) -> Data:
        """Registers of the target, in the order that `cross_data` gives its cores in."""
        return (*self.partners, *self.loose)

    def absorb_target(self, target: Data, nodes: tuple[int, ...], rest: tuple[int, ...]) -> Data:
        """Contract the pairs of cores of `nodes`; cores without a leg join where that widens nothing."""
        waiting = [r for r in target if r in self.loose]
        parts = [r for r in target if r not in self.partners and r not in self.loose]
        pairs: list[Data] = [(self.partners[k], self.bra(k)) for k in nodes]
        while pairs or waiting:
            done = self._absorb_together(parts, pairs)
            joined = [r for r in waiting if self._joins(done, r)][:1]
            parts, pairs = done, [(r,) for r in joined]
            waiting = [r for r in waiting if r not in joined]
            if not joined:
                break
        return (*parts, *waiting, *(self.partners[k] for k in rest))

    def absorb_everything(self) -> int:
        """The inner product of both networks."""
        pairs = ((partner, self.bra(k)) for k, partner in enumerate(self.partners))
        return self._contract(self._absorb_together((), [*pairs, *((r,) for r in self.loose)]))

    def arrange_target(self, target: Data, legs: tuple[int, ...]) -> int:
        return self.program.arrange(self.program.contract(target, legs), legs)

    def _joins(self, parts: Sequence[int], register: int) -> bool:
        """Whether a core that meets some parts leaves them no wider."""
        mine = set(self.program.legs[register])
        near = [set(self.program.legs[p]) for p in parts if mine & set(self.program.legs[p])]
        before = set[int]().union(*near)
        return bool(near) and self._width(before ^ mine) <= self._width(before)

    def _absorb_together(self, parts: Sequence[int], pairs: Iterable[tuple[int, ...]]) -> list[int]:
        """Contract registers with each other wherever they share a leg, a few at a time."""
        left = [*((p,) for p in parts), *pairs]
        done: list[int] = []
        while left:
            piece, left = self._connected(left)
            done.append(self._contract_in_groups(piece))
        return done

    def _connected(
        self, items: Sequence[tuple[int, ...]]
    ) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The items that bonds join to the first one, and the others."""
        piece, left = [items[0]], list(items[1:])
        legs = self._legs(items[0])
        while near := [item for item in left if legs & self._legs(item)]:
            piece += near
            left = [item for item in left if item not in near]
            legs = legs.union(*map(self._legs, near))
        return piece, left

    def _contract_in_groups(self, items: Sequence[tuple[int, ...]]) -> int:
        """Contract connected items in groups small enough for an optimal path, narrow cuts first."""
        order, left = [], list(items)
        legs: frozenset[int] = frozenset()
        while left:
            # Bonds that both share are summed, so that what stays open is what only one of them has.
            best = min(left, key=lambda item: self._width(legs ^ self._legs(item)))
            left.remove(best)
            legs ^= self._legs(best)
            order.append(best)
        known: tuple[int, ...] = ()
        most = (OPTIMAL_OPERANDS - 1) // 2
        for first in range(0, len(order), most):
            registers = [*known, *(r for item in order[first : first + most] for r in item)]
            known = (self._contract(registers),)
        return known[0]

    def _contract(self, registers: Sequence[int]) -> int:
        return self.program.contract(registers, tuple(self._legs(registers)))

    def _legs(self, registers: Iterable[int]) -> frozenset[int]:
        """Legs that stay open when some registers are contracted: those of one of them only."""
        open_legs: set[int] = set()
        for register in registers:
            open_legs ^= set(self.program.legs[register])
        return frozenset(open_legs)

    def _width(self, legs: Iterable[int]) -> int:
        return math.prod(self.legs.sizes[x] for x in legs)


def cross_data(structure: Structure, target: Structure, cores: Sequence[Array]) -> list[Array]:
    """Cores of a target as its plans with a network take them."""
    order = target.order
    one = cores[0].reshape(-1)[:1] * 0 + 1  # in whatever form the cores have
    ones = [one] * len(structure.internal_nodes)
    return [*cores[:order], *ones, *(c.reshape(c.shape[1:]) for c in cores[order:])]


def joint_structure(structure: Structure, target: Structure) -> Structure:
    """The network with the bonds of its target where it has their nodes: where cuts of both are wide.

    Legs have size 1, as no partial contraction has one.
    """
    ranks = dict(structure.ranks)
    for e, rank in target.ranks.items():
        if e[1] < structure.order:
            ranks[e] = ranks.get(e, 1) * rank
    # What is joined by a node that the network lacks is as good as joined.
    for k in target.internal_nodes:
        around = [j for j in target.neighbours[k] if j < structure.order]
        for i, j in pairwise(around):
            ranks[i, j] = ranks.get((i, j), 1) * min(target.rank(i, k), target.rank(j, k))
    return Structure((1,) * structure.order, ranks, num_nodes=structure.num_nodes)


@dataclass(frozen=True)
class CrossPlan:
    """Updates of all nodes of a network whose target is another one."""

    program: Program
    cores: tuple[int, ...]
    data: Data

    def run(self, data: Sequence[Array], cores: list[Array], update: Update) -> None:
        """Visit every node once; `update` gets its Gram and right-hand side and returns its new core."""
        self.program.run({**dict(zip(self.cores, cores)), **dict(zip(self.data, data))}, update)


@cached
def cross_sweep_plan(structure: Structure, target: Structure, is_complex: bool) -> CrossPlan:
    """Updates of all nodes of `structure`, through the best dimension tree of both graphs together."""
    builder = CrossBuilder(structure, target, is_complex=is_complex)
    emit_updates(builder, best_tree(joint_structure(structure, target)), builder.data, ())
    return CrossPlan(builder.program.finish(), tuple(builder.cores), builder.data)


@cached
def cross_pair_plan(
    structure: Structure, target: Structure, edges: tuple[Edge, ...], grams: bool, is_complex: bool
) -> PairPlan:
    """Environments of `edges`, with or without Gram matrices."""
    plans = []
    for share in (True, False) if len(edges) > 1 else (False,):
        builder = CrossBuilder(structure, target, is_complex=is_complex)
        plans.append(emit_pairs(builder, structure, edges, builder.data, share=share, grams=grams))
        if plans[0].program.cost < 3e8:  # a fraction of a second: not worth a comparison
            break
    return min(plans, key=lambda plan: plan.program.cost)


@cached
def cross_inner_plan(structure: Structure, target: Structure, is_complex: bool) -> ResultPlan:
    """``<network, target>``, from the cores of the network and the data of the target."""
    builder = CrossBuilder(structure, target, is_complex=is_complex)
    result = builder.absorb_everything()
    inputs = (*builder.cores, *builder.data)
    return ResultPlan(builder.program.finish([result]), inputs, result, ())
