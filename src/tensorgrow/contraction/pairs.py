"""Pair environments: everything but two cores, for all candidate edges at once.

To score the growth of edge (i, j) one needs the residual contracted with all other cores (the *pair
gradient*) and the Gram of those cores. Pairs share partial contractions: a set of nodes is cut into three
groups, and every pair lies within the union of two of them, so dropping one group at a time covers all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..structure import Edge, Structure
from .cache import cached
from .grams import Array
from .program import Program
from .sweeps import Data, EnvironmentBuilder, GramPlan

# Entries of a pair Gram that is worth forming; above, the Gram is contracted again for each slice.
PAIR_GRAM_ENTRIES = 100_000
# Entries of a shared Gram of a larger set, and flops that one step to it may cost.
SHARED_GRAM_ENTRIES = 2_000_000
SHARED_GRAM_FLOPS = 3e7


@dataclass(frozen=True)
class PairOutput:
    """Registers of one edge's environment."""

    gradient: int | None
    gram: int | None
    is_pair_gram: bool
    gram_nodes: tuple[int, ...]


@dataclass
class PairEnvironment:
    """Environment of the pair ``edge = (i, j)`` without the edge itself."""

    edge: Edge
    # Target contracted with all other cores, ``(d_i n_i, d_j n_j)`` where ``n`` counts the other bonds.
    gradient: Array
    # ``(n_i^2, n_j^2)`` with ket before bra in each factor when `is_pair_gram`; otherwise the Gram of the
    # nodes outside `gram_nodes` (None: of no node), to be finished by `slice_gram_plan`.
    gram: Array | None
    is_pair_gram: bool
    gram_nodes: tuple[int, ...]
    gram_legs: tuple[int, ...] | None


@dataclass(frozen=True)
class PairPlan:
    """Environments of several pairs in one program."""

    program: Program
    cores: tuple[int, ...]
    data: Data  # registers of the target; none in a plan of Gram matrices only
    outputs: dict[Edge, PairOutput]
    structure: Structure
    shares: bool  # whether pairs share partial contractions

    def run(self, data: Sequence[Array], cores: Sequence[Array]) -> list[PairEnvironment]:
        """Contract; a dense target has one axis per node (size 1 for internal ones)."""
        slots = self.program.run({**dict(zip(self.cores, cores)), **dict(zip(self.data, data))})
        environments = []
        for (i, j), out in self.outputs.items():
            n_i, n_j = (self.structure.bond_product(a, without=b) for a, b in ((i, j), (j, i)))
            rows, columns = self.structure.leg_dim(i) * n_i, self.structure.leg_dim(j) * n_j
            gram = None if out.gram is None else self.program.value(slots, out.gram)
            if out.is_pair_gram:
                assert gram is not None
                gram = gram.reshape(n_i * n_i, n_j * n_j)
            gradient = None
            if out.gradient is not None:
                gradient = self.program.value(slots, out.gradient).reshape(rows, columns)
            legs = None if out.gram is None else self.program.legs[out.gram]
            environments.append(
                PairEnvironment((i, j), gradient, gram, out.is_pair_gram, out.gram_nodes, legs)
            )
        return environments


@cached
def pair_plan(structure: Structure, edges: tuple[Edge, ...], is_complex: bool) -> PairPlan:
    """Plan for the environments of `edges`: shared partial contractions, or none where that is cheaper."""
    shared = compile_pairs(structure, edges, is_complex, share=True)
    if shared.program.cost < 3e8:
        return shared
    # Wide cuts make shared intermediates large: a plan without sharing may win.
    alone = compile_pairs(structure, edges, is_complex, share=False)
    return alone if alone.program.cost < shared.program.cost else shared


@cached
def pair_gradient_plan(structure: Structure, edges: tuple[Edge, ...], is_complex: bool) -> PairPlan:
    """As `pair_plan`, without the Gram matrices: for a block of the target, with its part of the legs."""
    plans = [compile_pairs(structure, edges, is_complex, share=s, grams=False) for s in (True, False)]
    return min(plans, key=lambda plan: plan.program.cost)


@cached
def pair_gram_plan(structure: Structure, edges: tuple[Edge, ...], is_complex: bool, share: bool) -> PairPlan:
    """As `pair_plan`, without the target: Gram matrices need only the cores."""
    return compile_pairs(structure, edges, is_complex, share=share, gradients=False)


def compile_pairs(
    structure: Structure,
    edges: tuple[Edge, ...],
    is_complex: bool,
    *,
    share: bool,
    gradients: bool = True,
    grams: bool = True,
) -> PairPlan:
    """Environments of `edges`, with or without shared contractions, gradients and Gram matrices."""
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    data = (builder.program.input(tuple(range(structure.num_nodes))),) if gradients else ()
    return emit_pairs(builder, structure, edges, data, share=share, grams=grams)


def emit_pairs(
    builder: EnvironmentBuilder,
    structure: Structure,
    edges: tuple[Edge, ...],
    data: Data,
    *,
    share: bool,
    grams: bool = True,
) -> PairPlan:
    """Environments of `edges` in the network of a builder; gradients where there is `data`."""
    program, legs = builder.program, builder.legs
    everything = tuple(range(structure.num_nodes))
    wanted = set(edges)
    outputs: dict[Edge, PairOutput] = {}

    def visit(nodes: tuple[int, ...], rhs: Data, gram: int | None, gram_nodes: tuple[int, ...]) -> None:
        if len(nodes) == 2:
            i, j = nodes
            bonds_i, bonds_j = (_other_bonds(builder, a, b) for a, b in ((i, j), (j, i)))
            gradient = None
            if rhs:
                gradient = builder.arrange_target(rhs, (i, *legs.bra(bonds_i), j, *legs.bra(bonds_j)))
            is_pair = gram is not None and gram_nodes == nodes
            if is_pair:
                assert gram is not None
                gram = program.arrange(gram, (*bonds_i, *legs.bra(bonds_i), *bonds_j, *legs.bra(bonds_j)))
            outputs[i, j] = PairOutput(gradient, gram, is_pair, gram_nodes)
            return
        for group in _groups(structure, nodes):
            rest = tuple(k for k in nodes if k not in group)
            if not any((i, j) in wanted and (i, j) not in outputs for i in rest for j in rest if i < j):
                continue
            smaller = builder.absorb_target(rhs, group, rest) if rhs else ()
            entries = math.prod(legs.sizes[b] for b in legs.open_bonds(rest)) ** 2
            limit = PAIR_GRAM_ENTRIES if len(rest) == 2 else SHARED_GRAM_ENTRIES
            if grams and gram_nodes == nodes and entries <= limit:
                mark, before = builder.mark(), program.flops
                shared = builder.absorb_gram(() if gram is None else (gram,), group)
                if program.flops - before <= SHARED_GRAM_FLOPS:
                    visit(rest, smaller, shared, rest)
                    continue
                builder.rollback(mark)
            visit(rest, smaller, gram, gram_nodes)

    if structure.num_nodes == 2:
        # Nothing else to contract: the Gram of no node at all is 1.
        gradient = builder.arrange_target(data, everything) if data else None
        outputs[0, 1] = PairOutput(gradient, None, False, everything)
    elif share:
        visit(everything, data, None, everything)
    else:
        for edge in edges:
            others = tuple(k for k in everything if k not in edge)
            visit(edge, builder.absorb_target(data, others, edge) if data else (), None, everything)
    outputs = {e: outputs[e] for e in edges}
    results = [r for o in outputs.values() for r in (o.gradient, o.gram) if r is not None]
    return PairPlan(program.finish(results), tuple(builder.cores), data, outputs, structure, share)


@cached
def slice_gram_plan(
    structure: Structure,
    i: int,
    j: int,
    gram_nodes: tuple[int, ...],
    gram_legs: tuple[int, ...] | None,
    is_complex: bool,
) -> GramPlan:
    """Gram of the environment of node i when node j holds a slice and edge (i, j) is absent.

    Inputs are all cores, with the slice in the place of core j, and the Gram of the nodes outside
    `gram_nodes` where there is one.
    """
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    program = builder.program
    builder.cores[j] = program.input((j, *_other_bonds(builder, j, i)))
    shared = () if gram_legs is None else (program.input(gram_legs),)
    outside = builder.environment(shared, tuple(k for k in gram_nodes if k != i))
    results, bonds = builder.arrange_grams(outside, _other_bonds(builder, i, j))
    return GramPlan(program.finish(results), (*builder.cores, *shared), results, bonds)


def _other_bonds(builder: EnvironmentBuilder, node: int, neighbour: int) -> tuple[int, ...]:
    pair = (node, neighbour) if node < neighbour else (neighbour, node)
    skip = builder.legs.edge.get(pair)
    return tuple(b for b in builder.legs.bonds[node] if b != skip)


def _groups(structure: Structure, nodes: Sequence[int]) -> list[tuple[int, ...]]:
    """Three groups of nearly equal size, strongly joined nodes together."""
    rest = list(nodes)
    joint = {(k, j): math.log(structure.rank(k, j)) for k in nodes for j in nodes if j != k}
    groups: list[tuple[int, ...]] = []
    for count in ((len(nodes) + 2) // 3, (len(nodes) + 1) // 3, len(nodes) // 3):
        group: list[int] = []
        while rest and len(group) < count:
            near = group or rest
            best = max(rest, key=lambda k: sum([joint[k, j] for j in near if j != k]))
            group.append(best)
            rest.remove(best)
        groups.append(tuple(sorted(group)))
    return [g for g in groups if g]
