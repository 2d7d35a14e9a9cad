"""Rows of a table by the digits of their index: each is a product of rows of two small tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ...structure import Structure
from .costs import Machine, Work
from .layout import Layout
from .plans import LegTable, part_plan
from .products import Plan, run


class Lookup(NamedTuple):
    """A row of the table is a product of a row of each of two tables.

    The first digits of its index say which row of the first, the others which of the second.
    """

    nodes: tuple[tuple[int, ...], tuple[int, ...]]
    tables: tuple[Plan, Plan]  # (rows, left * bond) and (rows, bond * right)
    counts: tuple[int, int]  # rows of the tables
    left: int
    bond: int
    right: int
    shape: tuple[int, ...]  # digits of the product
    order: tuple[int, ...] | None  # of these digits in the output
    work: tuple[Work, ...]

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        once = sum(p.seconds(1, itemsize, machine) for p in self.tables)
        return once + sum(w.seconds(rows, itemsize, machine) for w in self.work)

    def entries(self, rows: int) -> int:
        tables = self.counts[0] * self.left * self.bond + self.counts[1] * self.bond * self.right
        each = self.left * self.bond + self.left * self.right
        if self.counts[1] > 1:
            each += self.bond * self.right
        return tables + rows * each


def run_lookup(lookup: Lookup, tokens: torch.Tensor, cores: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of the table, for a vector of indices."""
    left, bond, right = lookup.left, lookup.bond, lookup.right
    first, second = (run(p, [cores[n] for n in part]) for p, part in zip(lookup.tables, lookup.nodes))
    if lookup.counts[1] == 1:
        out = F.embedding(tokens, first).reshape(-1, bond) @ second.reshape(bond, right)
    else:
        high = torch.div(tokens, lookup.counts[1], rounding_mode="floor")
        low = tokens - high * lookup.counts[1]
        a = F.embedding(high, first).reshape(-1, left, bond)
        out = torch.bmm(a, F.embedding(low, second).reshape(-1, bond, right))
    if lookup.order is not None:
        out = out.reshape(-1, *lookup.shape).permute(0, *(1 + k for k in lookup.order))
    return out.reshape(-1, left * right)


def lookups(layout: Layout, structure: Structure) -> list[Lookup]:
    """All lookups that cut the digits of the index in two, each with the best place of the other nodes."""
    table = LegTable(layout, structure)
    places = {digit: n for n, own in enumerate(table.digits) for digit in own if digit in table.inputs}
    ins = [places[x] for x in table.inputs]
    free = [n for n in range(structure.num_nodes) if n not in ins]
    found = []
    for cut in range(1, len(ins) + 1):
        if cut < len(ins) and math.prod(layout.in_dims[cut:]) == 1:
            continue
        few = len(free) <= 5  # beyond, all nodes without a digit of the index stay together
        sides = product((0, 1), repeat=len(free)) if few else [(0,) * len(free), (1,) * len(free)]
        options = []
        for side in sides:
            first = [*ins[:cut], *(n for n, s in zip(free, side) if s == 0)]
            second = [*ins[cut:], *(n for n, s in zip(free, side) if s == 1)]
            if not second:  # that is the whole weight
                continue
            options.append(_lookup(table, layout, cut, (tuple(first), tuple(second))))
        found += [min(options, key=_effort)] if options else []
    return found


def _effort(lookup: Lookup) -> tuple[float, int]:
    """Numbers that a row touches, then those of the tables; a guess that ranks lookups with one cut."""
    return sum(w.entries[1] + w.copied[1] for w in lookup.work), lookup.entries(0)


def _lookup(
    table: LegTable, layout: Layout, cut: int, nodes: tuple[tuple[int, ...], tuple[int, ...]]
) -> Lookup:
    sides = [{x for n in part for x in table.cores[n]} for part in nodes]

    def large(legs: Iterable[int]) -> tuple[int, ...]:
        return tuple(x for x in legs if table.sizes[x] > 1)

    def size(legs: Sequence[int]) -> int:
        return math.prod(table.sizes[x] for x in legs)

    bonds = large(sorted(sides[0] & sides[1]))
    outs = [large(x for x in table.outputs if x in side) for side in sides]
    ins = large(table.inputs[:cut]), large(table.inputs[cut:])
    left, bond, right = size(outs[0]), size(bonds), size(outs[1])
    counts = size(ins[0]), size(ins[1])
    plans = (
        part_plan(table, nodes[0], (*ins[0], *outs[0], *bonds), (counts[0], left * bond)),
        part_plan(table, nodes[1], (*ins[1], *bonds, *outs[1]), (counts[1], bond * right)),
    )
    have, want = [*outs[0], *outs[1]], list(large(table.outputs))
    order = None if have == want else tuple(have.index(x) for x in want)
    taken = float(left * bond + (bond * right if counts[1] > 1 else 0))
    product_work = Work((0.0, 2.0 * left * bond * right), (float(bond * right), taken + left * right))
    work = [Work(entries=(0.0, 2 * taken)), product_work]
    if order is not None:
        run_length = table.sizes[want[-1]] if have[-1] == want[-1] else 1
        work.append(Work(copied=(0.0, float(left * right)), tiles=(0.0, left * right / run_length)))
    shape = tuple(table.sizes[x] for x in have)
    return Lookup(nodes, plans, counts, left, bond, right, shape, order, tuple(work))
