"""Sweeps over a target that comes in blocks: what is done per block, and what is left for one place.

Below the root of the dimension tree a sweep needs the target only through one partial contraction per child:
the target contracted with all cores outside the child. That contraction is a sum over blocks of the target,
each with its part of the cores. Its result is small, so the updates below the child run in one place.
"""

from __future__ import annotations

from ..structure import Structure
from .cache import cached
from .dimension_tree import Tree, best_tree, leaves
from .program import ResultPlan
from .sweeps import EnvironmentBuilder, SweepPlan, emit_updates


def branches(structure: Structure) -> tuple[Tree, ...]:
    """Children of the root of the dimension tree: a sweep reads the target once for each."""
    tree = best_tree(structure)
    return (tree,) if isinstance(tree, int) else tree


@cached
def branch_plan(structure: Structure, branch: Tree, is_complex: bool) -> SweepPlan:
    """Updates of the nodes below one of `branches`, from the target contracted with all other cores.

    Axes of that partial target are the legs of the nodes, then the bonds that leave them.
    """
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    legs, program = builder.legs, builder.program
    mine = leaves(branch)
    others = tuple(k for k in range(structure.num_nodes) if k not in mine)
    axes = (*mine, *legs.bra(legs.open_bonds(mine)))
    partial = program.input(axes)
    emit_updates(builder, branch, (partial,), builder.environment((), others) if others else ())
    shape = tuple(legs.sizes[x] for x in axes)
    return SweepPlan(program.finish(), tuple(builder.cores), partial, mine, shape)


@cached
def partial_target_plan(structure: Structure, nodes: tuple[int, ...], is_complex: bool) -> ResultPlan:
    """All cores and the target, or a block of it, contracted but for `nodes`; axes as in `branch_plan`.

    The target has one axis per node, of size 1 for internal ones. For a block, `structure` has its dims.
    """
    builder = EnvironmentBuilder(structure, is_complex=is_complex)
    legs, program = builder.legs, builder.program
    everything = tuple(range(structure.num_nodes))
    target = program.input(everything)
    others = tuple(k for k in everything if k not in nodes)
    partial = builder.absorb_target((target,), others, nodes) if others else (target,)
    result = builder.arrange_target(partial, (*nodes, *legs.bra(legs.open_bonds(nodes))))
    return ResultPlan(program.finish([result]), (*builder.cores, target), result)
