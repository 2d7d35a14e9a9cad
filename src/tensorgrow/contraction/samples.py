"""Samples contracted with a network: the design matrix of every core.

A sample is a tensor over the dangling legs, and its response is the inner product with the network. The
response is linear in every core; its design matrix is the samples contracted with all other cores. A network
may have one output leg that the samples do not have: then there is one response per slice of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..structure import Structure
from .cache import cached
from .dimension_tree import Tree, best_tree, leaves
from .program import Legs, Program, ResultPlan
from .sweeps import SweepPlan


class _Builder:
    """Emits contractions of samples with cores.

    Parameters
    ----------
    count
        Number of samples.
    output
        Node of the output leg; None when there is one response.
    """

    def __init__(self, structure: Structure, count: int, output: int | None, *, is_complex: bool) -> None:
        self.legs = Legs(structure)
        self.sample = len(self.legs.sizes)
        self.output = output
        self.program = Program([*self.legs.sizes, count], is_complex=is_complex)
        self.cores = [self.program.input(self.legs.ket(k)) for k in range(structure.num_nodes)]

    def absorb(self, samples: int, nodes: Sequence[int], rest: Sequence[int]) -> int:
        """Contract the cores of `nodes` into the samples, leaving the legs of `rest`."""
        free = [k for k in rest if k != self.output]
        if self.output is not None and self.output not in rest:
            free.append(self.output)
        keep = (self.sample, *free, *self.legs.open_bonds(rest))
        return self.program.contract([samples, *(self.cores[k] for k in nodes)], keep)

    def arrange_design(self, samples: int, node: int) -> int:
        """The design of a node: sample, then the output where it is not the node's own, then the core."""
        if self.output == node:
            return self.program.arrange(samples, (self.sample, *self.legs.bonds[node]))
        outputs = () if self.output is None else (self.output,)
        return self.program.arrange(samples, (self.sample, *outputs, node, *self.legs.bonds[node]))


@cached
def sample_sweep_plan(structure: Structure, count: int, output: int | None, is_complex: bool) -> SweepPlan:
    """One sweep over all nodes for `count` samples; every update gets no Gram, and the design of its node.

    In `SweepPlan.leg_order` -1 stands for the samples' own axis. It lies between the two halves of the tree,
    so that contracting either half copies nothing.
    """
    builder = _Builder(structure, count, output, is_complex=is_complex)
    program = builder.program
    tree = best_tree(structure)
    first, second = ((), leaves(tree)) if isinstance(tree, int) else (leaves(tree[0]), leaves(tree[1]))
    order = (*(k for k in first if k != output), -1, *(k for k in second if k != output))
    samples = program.input(tuple(builder.sample if k < 0 else k for k in order))

    def visit(vertex: Tree, partial: int) -> None:
        if isinstance(vertex, int):
            program.solve(vertex, (), builder.arrange_design(partial, vertex), builder.cores[vertex])
            return
        for child in vertex:
            others = [k for sibling in vertex if sibling is not child for k in leaves(sibling)]
            visit(child, builder.absorb(partial, others, leaves(child)))

    visit(tree, samples)
    shape = tuple(count if k < 0 else structure.leg_dim(k) for k in order)
    return SweepPlan(program.finish(), tuple(builder.cores), samples, order, shape)


@cached
def design_plan(
    structure: Structure, node: int, count: int, output: int | None, is_complex: bool
) -> ResultPlan:
    """The design of one node, from all cores but its own and `count` samples, whose own axis is first."""
    builder = _Builder(structure, count, output, is_complex=is_complex)
    nodes = range(structure.num_nodes)
    samples = builder.program.input((builder.sample, *(k for k in nodes if k != output)))
    others = [k for k in nodes if k != node]
    result = builder.arrange_design(builder.absorb(samples, others, (node,)), node)
    inputs = (*(builder.cores[k] for k in others), samples)
    return ResultPlan(builder.program.finish([result]), inputs, result)
