"""Compiled plans per structure: ALS sweep, dense tensor, inner product."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..structure import Structure
from .cache import cached
from .dimension_tree import Tree, best_tree, leaves, star
from .paths import OPTIMAL_OPERANDS
from .program import Array, Legs, Program, ResultPlan, Update


class EnvironmentBuilder:
    """Emits the two partial contractions of a node set: with the target, and with itself.

    Written for ``min ||T - X E||``: the right-hand side is ``T E^H`` and the Gram ``E E^H``, so the target
    meets conjugated cores (bra legs) and a Gram has ket and bra legs.
    """

    def __init__(self, structure: Structure, *, is_complex: bool) -> None:
        self.legs = Legs(structure)
        self.program = Program(self.legs.sizes, is_complex=is_complex)
        self.cores = [self.program.input(self.legs.ket(k)) for k in range(structure.num_nodes)]
        self.bras: dict[int, int] = {}

    def bra(self, node: int) -> int:
        """Register of the conjugated core, the same until the core is updated."""
        if node not in self.bras:
            core = self.cores[node]
            self.bras[node] = self.program.conj(core, self.legs.bra(self.program.legs[core]))
        return self.bras[node]

    def mark(self) -> tuple[Any, ...]:
        return self.program.mark(), dict(self.bras)

    def rollback(self, mark: tuple[Any, ...]) -> None:
        self.program.rollback(mark[0])
        self.bras = mark[1]

    def absorb_target(self, target: int, nodes: tuple[int, ...], rest: tuple[int, ...]) -> int:
        """Contract conjugated cores of `nodes` into `target`, leaving the legs of `rest`."""
        keep = (*rest, *self.legs.bra(self.legs.open_bonds(rest)))
        return self.program.contract([target, *(self.bra(k) for k in nodes)], keep)

    def absorb_gram(self, gram: int | None, nodes: tuple[int, ...]) -> int:
        """Contract cores and conjugated cores of `nodes` into `gram`, leaving their bonds to other nodes."""
        mark, before = self.mark(), self.program.cost
        grouped = self.absorb_in_groups(gram, nodes)
        cost = self.program.cost - before
        if len(nodes) == 1 or cost < 1e7:  # not worth a comparison
            return grouped
        # Narrow graphs want ket and bra contracted together; where cuts are wide and few columns are left,
        # it is cheaper to join all cores first and multiply the result with its conjugate.
        self.rollback(mark)
        joined = self.absorb_joined(gram, nodes)
        if self.program.cost - before <= cost:
            return joined
        self.rollback(mark)
        return self.absorb_in_groups(gram, nodes)

    def absorb_joined(self, gram: int | None, nodes: tuple[int, ...]) -> int:
        """All cores of `nodes` joined first, then multiplied with their conjugate."""
        joint = self.program.contract(
            [self.cores[k] for k in nodes], (*nodes, *self._open_bonds(None, nodes))
        )
        twin = self.program.conj(joint, self.legs.bra(self.program.legs[joint]))
        bonds = self._open_bonds(gram, nodes)
        known = [] if gram is None else [gram]
        return self.program.contract([*known, joint, twin], (*bonds, *self.legs.bra(bonds)))

    def absorb_in_groups(self, gram: int | None, nodes: tuple[int, ...]) -> int:
        """Cores of `nodes` with their conjugates, a group at a time."""
        for group in self.groups(gram, nodes):
            bonds = self._open_bonds(gram, group)
            known = [] if gram is None else [gram]
            pairs = [r for k in group for r in (self.cores[k], self.bra(k))]
            gram = self.program.contract([*known, *pairs], (*bonds, *self.legs.bra(bonds)))
        assert gram is not None
        return gram

    def _open_bonds(self, gram: int | None, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Ket bonds that stay open when `nodes` are contracted into `gram`."""
        n, shift = self.legs.num_nodes, self.legs.shift
        seen: dict[int, int] = {}
        registers = [self.cores[k] for k in nodes] + ([] if gram is None else [gram])
        for register in registers:
            for leg in self.program.legs[register]:
                if n <= leg < n + shift:
                    seen[leg] = seen.get(leg, 0) + 1
        return tuple(leg for leg, count in seen.items() if count == 1)

    def groups(self, gram: int | None, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Nodes in groups small enough for an optimal path, narrow cuts first."""
        most = (OPTIMAL_OPERANDS - 1) // 2
        if len(nodes) <= most:
            return [nodes]
        order: list[int] = []
        while len(order) < len(nodes):

            def width(k: int) -> int:
                return math.prod(self.legs.sizes[b] for b in self._open_bonds(gram, (*order, k)))

            order.append(min((k for k in nodes if k not in order), key=width))
        return [tuple(order[k : k + most]) for k in range(0, len(order), most)]


@dataclass(frozen=True)
class SweepPlan:
    """Updates of all nodes, or of some; partial contractions are shared through a dimension tree."""

    program: Program
    cores: tuple[int, ...]
    data: int  # register of what is fitted: the target, a part of it, or samples
    leg_order: tuple[int, ...]  # nodes in the order of their legs among the axes of the data
    shape: tuple[int, ...]  # of the data

    def run(self, data: Array, cores: list[Array], update: Update) -> None:
        """Visit every node once; `update` gets its Gram and right-hand side and returns its new core."""
        values = dict(zip(self.cores, cores))
        values[self.data] = data
        self.program.run(values, update)


@cached
def sweep_plan(structure: Structure, is_complex: bool) -> SweepPlan:
    """The cheaper of the best dimension tree and no sharing at all."""
    plan = compile_sweep(structure, is_complex, best_tree(structure))
    # Dense graphs have wide cuts. Where the arithmetic is a thousand times the reading of the target, a plan
    # without sharing may win.
    is_wide = plan.program.flops > 1_000 * max(structure.num_entries, structure.num_parameters)
    if structure.num_nodes > 2 and is_wide:
        alone = compile_sweep(structure, is_complex, star(structure.num_nodes))
        if alone.program.cost < plan.program.cost:
            return alone
    return plan


def compile_sweep(structure: Structure, is_complex: bool, tree: Tree) -> SweepPlan:
    """Plan for this dimension tree; every set of it is a run of axes of the target."""
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    order = leaves(tree)
    target = builder.program.input(order)
    emit_updates(builder, tree, target, None)
    shape = tuple(structure.leg_dim(k) for k in order)
    return SweepPlan(builder.program.finish(), tuple(builder.cores), target, order, shape)


def emit_updates(builder: EnvironmentBuilder, vertex: Tree, rhs: int, gram: int | None) -> None:
    """Updates of all nodes below a vertex of the tree, given its two partial results."""
    program, legs = builder.program, builder.legs
    if isinstance(vertex, int):
        bonds = legs.bonds[vertex]
        ready = None if gram is None else program.arrange(gram, (*bonds, *legs.bra(bonds)))
        program.solve(vertex, ready, program.arrange(rhs, (vertex, *legs.bra(bonds))), builder.cores[vertex])
        builder.bras.pop(vertex, None)  # the conjugate of the old core
        return
    for child in vertex:
        mine = leaves(child)
        others = tuple(k for sibling in vertex if sibling is not child for k in leaves(sibling))
        emit_updates(
            builder, child, builder.absorb_target(rhs, others, mine), builder.absorb_gram(gram, others)
        )


@cached
def dense_plan(structure: Structure, is_complex: bool, in_order: bool = False) -> ResultPlan:
    """The represented tensor, from all cores.

    Parameters
    ----------
    in_order
        Let the last product write in the order of the legs where it can. On a GPU this makes reading the
        result several times faster.
    """
    legs = Legs(structure)
    program = Program(legs.sizes, is_complex=is_complex)
    nodes = tuple(range(structure.num_nodes))
    cores = [program.input(legs.ket(k)) for k in nodes]
    result = program.arrange(program.contract(cores, nodes, in_order=in_order), nodes)
    return ResultPlan(program.finish([result]), tuple(cores), result, structure.dims)


@cached
def inner_plan(first: Structure, second: Structure, is_complex: bool) -> ResultPlan:
    """``<first, second>``, from the conjugated cores of the first and the cores of the second."""
    a, b = Legs(first), Legs(second)
    order, offset = first.order, len(a.sizes)
    program = Program([*a.sizes, *b.sizes], is_complex=is_complex)
    left = [program.input(a.ket(k)) for k in range(first.num_nodes)]
    # Internal nodes and edges of the second network get numbers of their own; data legs are shared.
    right = [
        program.input(tuple(x if x < order else x + offset for x in b.ket(k)))
        for k in range(second.num_nodes)
    ]
    loose = [*range(order, first.num_nodes), *(k + offset for k in range(order, second.num_nodes))]
    result = program.contract([*left, *right], loose)
    return ResultPlan(program.finish([result]), (*left, *right), result, ())


@cached
def gram_plan(structure: Structure, node: int, is_complex: bool) -> ResultPlan:
    """Gram of the environment of `node`, from all cores: the bonds of the node twice, ket, then bra."""
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    others = tuple(k for k in range(structure.num_nodes) if k != node)
    bonds = builder.legs.bonds[node]
    gram = builder.absorb_gram(None, others)
    result = builder.program.arrange(gram, (*bonds, *builder.legs.bra(bonds)))
    return ResultPlan(builder.program.finish([result]), tuple(builder.cores), result)
