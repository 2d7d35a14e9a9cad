"""Samples contracted with a network: the design matrix of every core.

A sample is a tensor over the dangling legs, and its response is the inner product with the network. The
response is linear in every core; its design matrix is the samples contracted with all other cores. A network
may have one output leg that the samples do not have: then there is one response per slice of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..structure import Structure
from .cache import cached
from .dimension_tree import Tree, best_tree, leaves
from .program import Array, Legs, Program


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


@dataclass(frozen=True)
class SampleSweepPlan:
    """One sweep over all nodes; partial contractions are shared through a dimension tree.

    Attributes
    ----------
    leg_order
        Order in which the axes of the samples are to be stored; -1 stands for the samples themselves. They
        lie between the two halves of the tree, so that contracting either half copies nothing.
    """

    program: Program
    cores: tuple[int, ...]
    samples: int
    leg_order: tuple[int, ...]

    def run(self, samples: Array, cores: list[Array], update: Callable[[int, Array], Array]) -> None:
        """Sweep once; `update` gets each node's design and returns its new core."""
        values = dict(zip(self.cores, cores))
        values[self.samples] = samples
        self.program.run(values, lambda node, _, design: update(node, design))


@cached(5_000)
def sample_sweep_plan(
    structure: Structure, count: int, output: int | None, is_complex: bool
) -> SampleSweepPlan:
    """Plan for `count` samples."""
    builder = _Builder(structure, count, output, is_complex=is_complex)
    program = builder.program
    tree = best_tree(structure)
    first, second = ((), leaves(tree)) if isinstance(tree, int) else (leaves(tree[0]), leaves(tree[1]))
    order = (*(k for k in first if k != output), -1, *(k for k in second if k != output))
    samples = program.input(tuple(builder.sample if k < 0 else k for k in order))

    def visit(vertex: Tree, partial: int) -> None:
        if isinstance(vertex, int):
            program.solve(vertex, None, builder.arrange_design(partial, vertex), builder.cores[vertex])
            return
        for child in vertex:
            others = [k for sibling in vertex if sibling is not child for k in leaves(sibling)]
            visit(child, builder.absorb(partial, others, leaves(child)))

    visit(tree, samples)
    return SampleSweepPlan(program.finish(), tuple(builder.cores), samples, order)


@dataclass(frozen=True)
class DesignPlan:
    """The design of one node; the samples come with their own axis first."""

    program: Program
    cores: dict[int, int]
    samples: int
    result: int

    def run(self, samples: Array, cores: Sequence[Array]) -> Array:
        """Contract; the node's own core is not read."""
        values = {register: cores[k] for k, register in self.cores.items()}
        values[self.samples] = samples
        return self.program.value(self.program.run(values), self.result)


@cached(20_000)
def design_plan(
    structure: Structure, node: int, count: int, output: int | None, is_complex: bool
) -> DesignPlan:
    """Plan for one node and `count` samples."""
    builder = _Builder(structure, count, output, is_complex=is_complex)
    nodes = range(structure.num_nodes)
    samples = builder.program.input((builder.sample, *(k for k in nodes if k != output)))
    others = [k for k in nodes if k != node]
    result = builder.arrange_design(builder.absorb(samples, others, (node,)), node)
    used = {k: builder.cores[k] for k in others}
    return DesignPlan(builder.program.finish([result]), used, samples, result)
