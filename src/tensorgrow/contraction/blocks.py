"""Sweeps over a target that comes in blocks: what is done per block, and what is left for one place.

Below the root of the dimension tree a sweep needs the target only through one partial contraction per child:
the target contracted with all cores outside the child. That contraction is a sum over blocks of the target,
each with its part of the cores. Its result is small, so the updates below the child run in one place.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..structure import Structure
from .cache import cached
from .dimension_tree import Tree, best_tree, leaves
from .program import Array, Program, Update
from .sweeps import EnvironmentBuilder, emit_updates


def branches(structure: Structure) -> tuple[Tree, ...]:
    """Children of the root of the dimension tree: a sweep reads the target once for each."""
    tree = best_tree(structure)
    return (tree,) if isinstance(tree, int) else tree


@dataclass(frozen=True)
class BranchPlan:
    """The updates of all nodes below one child of the root.

    Attributes
    ----------
    nodes
        The nodes, in the order of their legs in the partial target.
    shape
        Shape of the partial target: the legs of `nodes`, then the bonds that leave them.
    """

    program: Program
    cores: tuple[int, ...]
    partial: int
    nodes: tuple[int, ...]
    shape: tuple[int, ...]

    def run(self, partial: Array, cores: list[Array], update: Update) -> None:
        """Update the nodes, given the target contracted with all other cores."""
        values = dict(zip(self.cores, cores))
        values[self.partial] = partial
        self.program.run(values, update)


@cached(20_000)
def branch_plan(structure: Structure, branch: Tree, is_complex: bool) -> BranchPlan:
    """Plan for one of `branches`."""
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    legs, program = builder.legs, builder.program
    mine = leaves(branch)
    others = tuple(k for k in range(structure.num_nodes) if k not in mine)
    kept = (*mine, *legs.bra(legs.open_bonds(mine)))
    partial = program.input(kept)
    emit_updates(builder, branch, partial, builder.absorb_gram(None, others) if others else None)
    shape = tuple(legs.sizes[x] for x in kept)
    return BranchPlan(program.finish(), tuple(builder.cores), partial, mine, shape)


@dataclass(frozen=True)
class PartialTargetPlan:
    """Target, or a block of it, contracted with all cores but some; axes as in `BranchPlan.shape`."""

    program: Program
    cores: tuple[int, ...]
    target: int
    result: int

    def run(self, target: Array, cores: list[Array]) -> Array:
        """Contract; `target` has one axis per node (size 1 for internal ones)."""
        values = dict(zip(self.cores, cores))
        values[self.target] = target
        return self.program.value(self.program.run(values), self.result)


@cached(20_000)
def partial_target_plan(structure: Structure, nodes: tuple[int, ...], is_complex: bool) -> PartialTargetPlan:
    """Plan for a structure whose legs are those of the block."""
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    legs, program = builder.legs, builder.program
    everything = tuple(range(structure.num_nodes))
    target = program.input(everything)
    others = tuple(k for k in everything if k not in nodes)
    found = builder.absorb_target(target, others, nodes) if others else target
    result = program.arrange(found, (*nodes, *legs.bra(legs.open_bonds(nodes))))
    return PartialTargetPlan(program.finish([result]), tuple(builder.cores), target, result)
