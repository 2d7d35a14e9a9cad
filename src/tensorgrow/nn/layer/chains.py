"""A convolution as a chain of small ones: channels are mixed before the kernel, and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch

from ...structure import Structure
from .costs import Machine, Work
from .layout import Layout
from .plans import LegTable, part_plan
from .products import Plan, run

Nodes = tuple[int, ...]
Convolution = Callable[..., torch.Tensor]
"""``F.conv1d``, ``F.conv2d`` or ``F.conv3d``."""


class Form(NamedTuple):
    """What a convolution does, in numbers: entries of the kernel, input positions per output, groups."""

    volume: int
    stride: int
    groups: int


class Step(NamedTuple):
    """A convolution with that many channels, `times` per position; `stride` positions come in for each."""

    inputs: int
    outputs: int
    volume: int
    times: int
    stride: int = 1

    def work(self, block: int = 1) -> Work:
        """What it does; channels are multiplied in blocks."""
        inputs, outputs = (-(-channels // block) * block for channels in (self.inputs, self.outputs))
        flops, weight = 2.0 * inputs * outputs * self.volume, float(self.inputs * self.outputs * self.volume)
        moved = self.times * (self.stride * self.inputs + self.outputs)
        return Work((0.0, self.times * flops), (weight, float(moved)))


class Chain(NamedTuple):
    """Convolutions of one position, of the kernel, and of one position, each by a part of the cores.

    Edges from the first part to the last pass by the kernel, which acts on each of their `passing` channels
    alike.
    """

    nodes: tuple[Nodes, Nodes, Nodes]
    before: Plan | None  # a matrix (passing * inner, channels); None: the kernel takes the input as it comes
    kernel: Plan  # a matrix (outer, inner * volume)
    after: Plan | None  # a matrix (outputs, passing * outer); None: the kernel gives the outputs
    passing: int
    inner: int
    outer: int
    steps: tuple[Step, ...]

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        plans = [p for p in (self.before, self.kernel, self.after) if p is not None]
        once = sum(p.seconds(1, itemsize, machine) for p in plans)
        return once + sum(s.work(machine.channels).seconds(rows, itemsize, machine) for s in self.steps)

    def entries(self, rows: int) -> int:
        """What one convolution reads and writes, the input of the chain aside."""
        return round(max(s.work().count_entries(rows) for s in self.steps))


def run_chain(
    chain: Chain,
    x: torch.Tensor,
    cores: Sequence[torch.Tensor],
    form: Form,
    convolve: Convolution,
    kernel_options: dict[str, object],
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Apply a chain to a batch; `kernel_options` are those of the convolution with the kernel."""
    batch, groups = x.shape[0], form.groups
    kernel_size = kernel_options["kernel_size"]
    assert isinstance(kernel_size, tuple)
    options = {k: v for k, v in kernel_options.items() if k != "kernel_size"}
    ones = (1,) * len(kernel_size)
    first, middle, last = ([cores[n] for n in part] for part in chain.nodes)
    h = x
    if chain.before is not None:
        # Groups and channels that pass go with the batch: all are treated alike, and nothing is copied.
        h = h.reshape(batch * groups, h.shape[1] // groups, *h.shape[2:])
        h = convolve(h, run(chain.before, first).reshape(chain.passing * chain.inner, -1, *ones))
    kernel = run(chain.kernel, middle).reshape(chain.outer, chain.inner, *kernel_size)
    if chain.after is None:
        h = h.reshape(batch, groups * chain.inner, *h.shape[2:])
        return convolve(h, kernel, bias, groups=groups, **options)
    h = h.reshape(batch * groups * chain.passing, chain.inner, *h.shape[2:])
    h = convolve(h, kernel, **options)
    h = h.reshape(batch, groups * chain.passing * chain.outer, *h.shape[2:])
    return convolve(h, run(chain.after, last).reshape(*chain.after.shape, *ones), bias, groups=groups)


def chains(layout: Layout, structure: Structure, form: Form) -> list[Chain]:
    """All chains that the graph allows; none where a node holds digits of inputs and of outputs.

    The last input digit holds the kernel. Channels that come in are mixed before the kernel or with it, those
    that go out after it or with it; nodes without a digit may belong to any of the three parts.
    """
    table = LegTable(layout, structure)
    if layout.in_dims[-1] % form.volume:
        return []
    digits = [[x for x in own if table.sizes[x] > 1] for own in table.digits]
    spatial = table.inputs[-1] if form.volume > 1 else None
    kernel = [n for n, own in enumerate(digits) if spatial in own]
    ins = [n for n, own in enumerate(digits) if n not in kernel and any(x in table.inputs for x in own)]
    outs = [n for n, own in enumerate(digits) if any(x in table.outputs for x in own)]
    free = [n for n, own in enumerate(digits) if not own]
    if set(ins) & set(outs):
        return []
    shapes: list[tuple[list[int], list[int], list[int]]] = []
    if not set(kernel) & set(outs):
        shapes.append(([], [*ins, *kernel], outs))
    if layout.in_dims[-1] == form.volume > 1 and ins:  # the kernel's node has no channels of its own
        rest = [n for n in outs if n not in kernel]
        if rest == outs:
            shapes.append((ins, kernel, outs))
        shapes.append((ins, [*kernel, *rest], []))
    found = []
    for shape in (s for s in shapes if s[1]):  # a kernel of one position, and one channel: nothing to chain
        for places in _places(len(free), shape):
            parts = [list(part) for part in shape]
            for node, place in zip(free, places):
                parts[place].append(node)
            found.append(_chain(table, layout, form, (tuple(parts[0]), tuple(parts[1]), tuple(parts[2]))))
    return found


def _places(count: int, parts: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Where nodes without a digit may go; all ways where there are few, else all together."""
    used = [p for p, nodes in enumerate(parts) if nodes]
    if count <= 3:
        yield from product(used, repeat=count)
    else:
        yield from ((p,) * count for p in used)


def _chain(table: LegTable, layout: Layout, form: Form, nodes: tuple[Nodes, Nodes, Nodes]) -> Chain:
    first, middle, last = ({x for n in part for x in table.cores[n]} for part in nodes)

    large, size = table.large, table.size
    passing, inner = large(sorted(first & last)), large(sorted(first & middle))
    outer = large(sorted(middle & last)) if nodes[2] else large(table.outputs)
    channels, outputs = layout.in_features // form.volume, layout.out_features
    p, o = size(passing), size(outer)
    i = size(inner) if nodes[0] else channels
    taken = large(x for x in table.inputs if x in middle)
    kernel = part_plan(table, nodes[1], (*outer, *inner, *taken), (o, i * form.volume))
    before = after = None
    groups, steps = form.groups, []
    if nodes[0]:
        given = large(x for x in table.inputs if x in first)
        before = part_plan(table, nodes[0], (*passing, *inner, *given), (p * i, channels))
        steps.append(Step(channels, p * i, 1, groups * form.stride))
    if nodes[2]:
        after = part_plan(table, nodes[2], (*large(table.outputs), *passing, *outer), (outputs, p * o))
        steps.append(Step(i, o, form.volume, groups * p, form.stride))
        steps.append(Step(p * o, outputs // groups, 1, groups))
    else:
        steps.append(Step(i, outputs // groups, form.volume, groups, form.stride))
    return Chain(nodes, before, kernel, after, p, i, o, tuple(steps))


def dense_conv_work(columns: int, outputs: int, form: Form) -> Work:
    """A convolution with a dense weight."""
    return Step(columns // form.volume, outputs // form.groups, form.volume, form.groups, form.stride).work()
