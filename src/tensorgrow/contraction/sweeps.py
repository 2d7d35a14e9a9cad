"""Compiled plans per structure: ALS sweep, dense tensor, inner product."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..structure import Structure
from .cache import cached
from .dimension_tree import Tree, best_tree, leaves, star
from .grams import Array, GramParts, Update, as_gram
from .paths import OPTIMAL_OPERANDS
from .program import Layout, Legs, Program, ResultPlan

Grams = tuple[int, ...]
"""Registers of Gram matrices whose product is meant."""
Data = tuple[int, ...]
"""Registers whose product is meant: data, contracted with some of the cores."""

# Gram matrices with more rows are kept in parts where there are some. A solve of 100 rows takes about as long
# as two of a few rows each.
WHOLE_ROWS = 100
# Entries of a target from which a copy of it, say in another order of legs, counts, and flops per sweep and
# entry that a plan without it may cost: copying an entry costs 24, and few fits make fewer than four sweeps.
MANY_ENTRIES, COPY_SHARE = 500_000, 6.0
# Estimated cost (flops) from which another order of a contraction is looked for.
WORTH_COMPARING = 1e7
# Entries of a part of a tensor that stays in the cache.
PART_ENTRIES = 50_000


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
        self.is_large = max(map(structure.bond_product, range(structure.num_nodes))) > WHOLE_ROWS

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

    def absorb_target(self, target: Data, nodes: tuple[int, ...], rest: tuple[int, ...]) -> Data:
        """Contract conjugated cores of `nodes` into `target`, leaving the legs of `rest`."""
        keep = (*rest, *self.legs.bra(self.legs.open_bonds(rest)))
        return (self.program.contract([*target, *(self.bra(k) for k in nodes)], keep),)

    def arrange_target(self, target: Data, legs: tuple[int, ...]) -> int:
        """What is left of `target` in one register, with its legs in this order."""
        (register,) = target
        return self.program.arrange(register, legs)

    def absorb_gram(self, known: Grams, nodes: tuple[int, ...]) -> int:
        """Contract cores and conjugated cores of `nodes` with `known` Grams; bonds to other nodes stay."""
        if len(nodes) == 1:
            return self.absorb_in_groups(known, nodes)
        mark, before = self.mark(), self.program.cost
        grouped = self.absorb_in_groups(known, nodes)
        cost = self.program.cost - before
        if cost < WORTH_COMPARING:
            return grouped
        # Narrow graphs want ket and bra contracted together; where cuts are wide and few columns are left,
        # it is cheaper to join all cores first and multiply the result with its conjugate.
        self.rollback(mark)
        joined = self.absorb_joined(known, nodes)
        if self.program.cost - before <= cost:
            return joined
        self.rollback(mark)
        return self.absorb_in_groups(known, nodes)

    def environment(self, known: Grams, nodes: tuple[int, ...]) -> Grams:
        """`absorb_gram` in parts, where the Gram of some node is so large that this pays."""
        return self.absorb_apart(known, nodes) if self.is_large else (self.absorb_gram(known, nodes),)

    def arrange_grams(
        self, grams: Grams, bonds: tuple[int, ...]
    ) -> tuple[Grams, tuple[tuple[int, ...], ...]]:
        """Gram matrices over some bonds in the order of these, and which of them each is about."""
        parts = [[b for b in bonds if b in self.program.legs[g]] for g in grams]
        ready = (self.program.arrange(g, (*part, *self.legs.bra(part))) for g, part in zip(grams, parts))
        return tuple(ready), tuple(tuple(bonds.index(b) for b in part) for part in parts)

    def absorb_joined(self, known: Grams, nodes: tuple[int, ...]) -> int:
        """All cores of `nodes` joined first, then multiplied with their conjugate."""
        joint = self.program.contract([self.cores[k] for k in nodes], (*nodes, *self._open_bonds((), nodes)))
        twin = self.program.conj(joint, self.legs.bra(self.program.legs[joint]))
        bonds = self._open_bonds(known, nodes)
        return self.program.contract([*known, joint, twin], (*bonds, *self.legs.bra(bonds)))

    def absorb_in_groups(self, known: Grams, nodes: tuple[int, ...]) -> int:
        """Cores of `nodes` with their conjugates, a group at a time."""
        for group in self.groups(known, nodes):
            bonds = self._open_bonds(known, group)
            pairs = [r for k in group for r in (self.cores[k], self.bra(k))]
            known = (self.program.contract([*known, *pairs], (*bonds, *self.legs.bra(bonds))),)
        return known[0]

    def absorb_apart(self, known: Grams, nodes: tuple[int, ...]) -> Grams:
        """`absorb_gram`, with a Gram for each of the pieces that no bond joins."""
        pieces: list[tuple[set[int], Grams, tuple[int, ...]]] = [
            *((set(self._open_bonds((g,), ())), (g,), ()) for g in known),
            *((set(self.legs.bonds[k]), (), (k,)) for k in nodes),
        ]
        apart: list[tuple[set[int], Grams, tuple[int, ...]]] = []
        for piece in pieces:
            near = [p for p in apart if p[0] & piece[0]]
            apart = [p for p in apart if p not in near]
            joined = [*near, piece]
            bonds = set().union(*(p[0] for p in joined))
            apart.append(
                (bonds, tuple(g for p in joined for g in p[1]), tuple(k for p in joined for k in p[2]))
            )
        grams = [self.absorb_gram(grams, inside) if inside else grams[0] for _, grams, inside in apart]
        # Nodes that nothing joins to the rest give numbers: factors of any other Gram.
        numbers = [g for g in grams if not self.program.legs[g]]
        others = [g for g in grams if self.program.legs[g]]
        if not others or not numbers:
            return tuple(others) or (self.program.contract(numbers, ()),)
        return (self.program.contract([others[0], *numbers], self.program.legs[others[0]]), *others[1:])

    def _open_bonds(self, known: Grams, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Ket bonds that stay open when `nodes` are contracted with `known` Grams."""
        n, shift = self.legs.num_nodes, self.legs.shift
        seen: dict[int, int] = {}
        for register in (*(self.cores[k] for k in nodes), *known):
            for leg in self.program.legs[register]:
                if n <= leg < n + shift:
                    seen[leg] = seen.get(leg, 0) + 1
        return tuple(leg for leg, count in seen.items() if count == 1)

    def groups(self, known: Grams, nodes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Nodes in groups small enough for an optimal path, narrow cuts first."""
        most = (OPTIMAL_OPERANDS - 1) // 2
        if len(nodes) <= most:
            return [nodes]
        order: list[int] = []
        while len(order) < len(nodes):

            def width(k: int) -> int:
                return math.prod(self.legs.sizes[b] for b in self._open_bonds(known, (*order, k)))

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
    layouts: Mapping[int, Layout] = field(default_factory=dict)  # registers of copies of the data

    def lay_out(self, data: Array) -> dict[int, Array]:
        """What `run` reads: the data, and copies of it in the orders of products."""
        return {self.data: data, **{register: how.of(data) for register, how in self.layouts.items()}}

    def run(self, data: Array | Mapping[int, Array], cores: list[Array], update: Update) -> None:
        """Visit every node once; `update` gets its Gram and right-hand side and returns its new core.

        The data may be laid out already; see `lay_out`.
        """
        ready = data if isinstance(data, Mapping) else self.lay_out(data)
        self.program.run({**dict(zip(self.cores, cores)), **ready}, update)


@cached
def sweep_plan(structure: Structure, is_complex: bool) -> SweepPlan:
    """The cheaper of the best dimension tree and no sharing at all."""
    is_large = structure.num_entries >= MANY_ENTRIES
    tree = best_tree(structure, in_order=is_large)
    plan = compile_sweep(structure, is_complex, tree)
    if is_large:
        as_it_is = compile_sweep(structure, is_complex, tree, in_order=True)
        if as_it_is.program.cost <= plan.program.cost + COPY_SHARE * structure.num_entries:
            plan = as_it_is
    # Dense graphs have wide cuts. Where the arithmetic is a thousand times the reading of the target, a plan
    # without sharing may win. Most cost far more, which the first nodes tell: photographs as 4^8 are planned
    # in half the time.
    is_wide = plan.program.flops > 1_000 * max(structure.num_entries, structure.num_parameters)
    if structure.num_nodes > 2 and is_wide:
        alone = compile_sweep(structure, is_complex, star(structure.num_nodes), below=plan.program.cost)
        plan = min(plan, alone, key=lambda p: p.program.cost)
    return plan


def compile_sweep(
    structure: Structure, is_complex: bool, tree: Tree, *, in_order: bool = False, below: float = math.inf
) -> SweepPlan:
    """Plan for this dimension tree.

    Parameters
    ----------
    in_order
        Whether the target has its legs in the order of the nodes, instead of that of the leaves.
    below
        Flops at which the plan is of no use any more: it then ends there.
    """
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    order = tuple(range(structure.num_nodes)) if in_order else leaves(tree)
    target = builder.program.input(order)
    emit_updates(builder, tree, (target,), (), below)
    shape = tuple(structure.leg_dim(k) for k in order)
    program = builder.program.finish()
    layouts = program.lay_out(target) if structure.num_entries < MANY_ENTRIES else {}
    return SweepPlan(program, tuple(builder.cores), target, order, shape, layouts)


def emit_updates(
    builder: EnvironmentBuilder, vertex: Tree, rhs: Data, known: Grams, below: float = math.inf
) -> None:
    """Updates of all nodes below a vertex of the tree, given its two partial results; see `compile_sweep`."""
    program, legs = builder.program, builder.legs
    if isinstance(vertex, int):
        grams, bonds = builder.arrange_grams(known, legs.bonds[vertex])
        right = builder.arrange_target(rhs, (vertex, *legs.bra(legs.bonds[vertex])))
        program.solve(vertex, grams, right, builder.cores[vertex], bonds)
        builder.bras.pop(vertex, None)  # the conjugate of the old core
        return
    for child in vertex:
        if program.flops >= below:
            return
        mine = leaves(child)
        others = tuple(k for sibling in vertex if sibling is not child for k in leaves(sibling))
        outside = builder.environment(known, others)
        emit_updates(builder, child, builder.absorb_target(rhs, others, mine), outside, below)


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


@dataclass(frozen=True)
class HalvesPlan:
    """The represented tensor as a product of two matrices, one of leading legs and one of the others."""

    program: Program
    cores: tuple[int, ...]
    halves: tuple[int, int]
    split: int  # legs of the first half

    def run(self, arrays: Iterable[Array]) -> tuple[Array, Array]:
        """Both matrices."""
        slots = self.program.run(dict(zip(self.cores, arrays)))
        rows, columns = (self.program.value(slots, r) for r in self.halves)
        bonds = math.prod(rows.shape[self.split :])
        return rows.reshape(-1, bonds), columns.reshape(bonds, -1)

    def parts(self, arrays: Iterable[Array]) -> Iterator[tuple[Array, Array]]:
        """Some rows at a time, and the columns; their products have the entries of the tensor in order."""
        rows, columns = self.run(arrays)
        step = max(1, PART_ENTRIES // columns.shape[1])
        for first in range(0, len(rows), step):
            yield rows[first : first + step], columns


@cached
def halves_plan(structure: Structure, is_complex: bool) -> HalvesPlan:
    """The cheapest cut between two neighbouring legs; internal nodes go to one side of it."""
    order, inside = structure.order, tuple(range(structure.order, structure.num_nodes))

    def compile_at(split: int, inside_first: bool) -> tuple[float, HalvesPlan]:
        legs = Legs(structure)
        program = Program(legs.sizes, is_complex=is_complex)
        cores = [program.input(legs.ket(k)) for k in range(structure.num_nodes)]
        sides = [tuple(range(split)), tuple(range(split, order))]
        sides[0 if inside_first else 1] += inside
        cut = legs.open_bonds(sides[0])
        wanted = ((*sides[0], *cut), (*cut, *sides[1]))
        halves = [
            program.arrange(program.contract([cores[k] for k in side], keep), keep)
            for side, keep in zip(sides, wanted)
        ]
        bonds, columns = (math.prod(legs.sizes[x] for x in part) for part in (cut, sides[1]))
        # The product, and the columns, which are read again for every part.
        last = 2.0 * bonds * structure.num_entries * (1.0 + columns / PART_ENTRIES)
        plan = HalvesPlan(program.finish(halves), tuple(cores), (halves[0], halves[1]), len(sides[0]))
        return program.cost + last, plan

    options = [
        compile_at(k, first)
        for k in range(order - 1, 0, -1)
        for first in ((True, False) if inside else (True,))
    ]
    return min(options, key=lambda option: option[0])[1]


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


@dataclass(frozen=True)
class GramPlan:
    """The Gram matrix of a node's environment."""

    program: Program
    inputs: tuple[int, ...]  # registers to fill, in the order of the arrays that `run` takes
    results: Grams
    bonds: tuple[tuple[int, ...], ...]  # of the node, by position, that each result is about

    def run(self, arrays: Iterable[Array]) -> Array | GramParts:
        """The bonds of the node twice, ket, then bra."""
        slots = self.program.run(dict(zip(self.inputs, arrays)))
        return as_gram(self.bonds, [self.program.value(slots, r) for r in self.results])


@cached
def gram_plan(structure: Structure, node: int, is_complex: bool) -> GramPlan:
    """Gram of the environment of `node`, from all cores: at once, or as on the way to it in a sweep."""
    others = tuple(k for k in range(structure.num_nodes) if k != node)
    at_once = _compile_gram(structure, node, is_complex, ((node, others) if others else node))
    if at_once.program.cost < WORTH_COMPARING:
        return at_once
    as_in_sweeps = _compile_gram(structure, node, is_complex, best_tree(structure))
    return min(at_once, as_in_sweeps, key=lambda plan: plan.program.cost)


def _compile_gram(structure: Structure, node: int, is_complex: bool, tree: Tree) -> GramPlan:
    """Plan that goes from the root of a dimension tree to `node`, and absorbs what it leaves aside."""
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    known: Grams = ()
    while not isinstance(tree, int):
        below = next(child for child in tree if node in leaves(child))
        aside = tuple(k for child in tree if child is not below for k in leaves(child))
        known, tree = builder.environment(known, aside), below
    results, bonds = builder.arrange_grams(known, builder.legs.bonds[node])
    return GramPlan(builder.program.finish(results), tuple(builder.cores), tuple(results), bonds)
