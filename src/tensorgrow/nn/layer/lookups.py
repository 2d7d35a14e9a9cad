"""Rows of a table by the digits of their index: each is a product of rows of a few small tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ...structure import Structure
from .costs import Machine, Work
from .layout import Layout
from .plans import LegTable, order_of, part_plan
from .products import Plan, run

Parts = tuple[tuple[int, ...], ...]
"""Nodes that are contracted to one table each; the last part holds no digit of the index and may be empty."""


class Join(NamedTuple):
    """What was found so far, times a row of the next table: matrices (left, bond) and (bond, right)."""

    shape: tuple[int, ...]  # legs of what was found
    order: tuple[int, ...] | None  # these legs, those that are summed over last
    left: int
    bond: int
    right: int


class Lookup(NamedTuple):
    """A row of the table as a product of rows of small ones, each for some digits of the index."""

    parts: Parts
    tables: tuple[Plan, ...]
    counts: tuple[int, ...]  # rows of each table; 1: all rows of the large table meet the same
    joins: tuple[Join, ...]
    shape: tuple[int, ...]  # digits of the result
    order: tuple[int, ...] | None  # of these digits in the output
    work: tuple[Work, ...]

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        once = sum(p.seconds(1, itemsize, machine) for p in self.tables)
        return once + sum(w.seconds(rows, itemsize, machine) for w in self.work)

    def entries(self, rows: int) -> int:
        tables = sum(math.prod(p.shape) for p in self.tables)
        return tables + round(max(w.count_entries(rows) for w in self.work))


def run_lookup(lookup: Lookup, tokens: torch.Tensor, cores: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of the table, for a vector of indices."""
    tables = [run(p, [cores[n] for n in part]) for p, part in zip(lookup.tables, lookup.parts)]
    rows, rest = tokens.shape[0], tokens
    digits = []
    for count in lookup.counts[:0:-1]:
        digits.append(rest % count)
        rest = torch.div(rest, count, rounding_mode="floor")
    out = F.embedding(rest, tables[0])
    for join, table, count, digit in zip(lookup.joins, tables[1:], lookup.counts[1:], digits[::-1]):
        if join.order is not None:
            out = out.reshape(rows, *join.shape).permute(0, *(1 + k for k in join.order))
        if count == 1:
            out = out.reshape(rows * join.left, join.bond) @ table.reshape(join.bond, join.right)
        else:
            some = F.embedding(digit, table).reshape(rows, join.bond, join.right)
            out = torch.bmm(out.reshape(rows, join.left, join.bond), some)
    if lookup.order is not None:
        out = out.reshape(rows, *lookup.shape).permute(0, *(1 + k for k in lookup.order))
    return out.reshape(rows, math.prod(lookup.shape))


def lookups(layout: Layout, structure: Structure) -> list[Lookup]:
    """Lookups with the digits of the index in all groups of neighbours.

    For each, nodes without such a digit are placed so that a row takes least, and so that the tables do.
    """
    table = LegTable(layout, structure)
    places = {digit: n for n, own in enumerate(table.digits) for digit in own}
    ins = [places[x] for x in table.inputs]
    free = [n for n in range(structure.num_nodes) if n not in ins]
    found: list[Lookup] = []
    for cuts in product((False, True), repeat=len(ins) - 1):
        groups: list[list[int]] = [[ins[0]]]
        for node, apart in zip(ins[1:], cuts):
            groups.extend([[node]]) if apart else groups[-1].append(node)
        options = [_Sketch(table, parts) for parts in _placements(groups, free)]
        best = {min(options, key=cost) for cost in (_Sketch.row_cost, _Sketch.table_cost)} if options else ()
        found += [sketch.lookup() for sketch in best]
    return found


def _placements(groups: Sequence[Sequence[int]], free: Sequence[int]) -> Iterator[Parts]:
    """The groups with other nodes in them, or apart; all ways where there are few, else all together."""
    number = len(groups) + 1
    few = len(free) <= 3
    sides = product(range(number), repeat=len(free)) if few else ((k,) * len(free) for k in range(number))
    for side in sides:
        parts = [[*group] for group in (*groups, [])]
        for node, place in zip(free, side):
            parts[place].append(node)
        if number > 2 or parts[-1]:  # else there is one table, the large one
            yield tuple(tuple(part) for part in parts)


class _Sketch:
    """A lookup without its plans: legs and costs."""

    def __init__(self, table: LegTable, parts: Parts) -> None:
        self.table = table
        self.parts = tuple(part for part in parts if part)
        # Edges within a part are summed over; its other legs are met once.
        held = [Counter(x for n in part for x in table.cores[n]) for part in self.parts]
        self.ins = [table.large(x for x in table.inputs if x in part) for part in held]
        rest = [
            table.large(x for x in sorted(part) if part[x] == 1 and x not in table.inputs) for part in held
        ]
        self.legs = [rest[0]]  # of every table but for the index, in the order of its axes
        self.joins: list[Join] = []
        self.work: list[Work] = []
        now, size = rest[0], table.size(rest[0])
        self._take(size)
        for part, ins in zip(rest[1:], self.ins[1:]):
            shared = tuple(x for x in now if x in part)
            kept, new = tuple(x for x in now if x not in part), tuple(x for x in part if x not in shared)
            self.legs.append((*shared, *new))
            left, bond, right = table.size(kept), table.size(shared), table.size(new)
            order = order_of(now, (*kept, *shared))
            self.joins.append(Join(tuple(table.sizes[x] for x in now), order, left, bond, right))
            if ins:
                self._take(bond * right)
            each = float(left * (bond + right) + (bond * right if ins else 0))
            work = Work((0.0, 2.0 * left * bond * right), (float(bond * right), each))
            copied = 0.0 if order is None else float(left * bond)
            self.work.append(work._replace(copied=(0.0, copied), tiles=(0.0, copied)))
            now = (*kept, *new)
        self.shape = tuple(table.sizes[x] for x in now)
        self.order = order_of(now, table.large(table.outputs))
        if self.order is not None:
            entries = float(table.size(now))
            self.work.append(Work(copied=(0.0, entries), tiles=(0.0, entries)))

    def _take(self, entries: int) -> None:
        self.work.append(Work(entries=(0.0, 2.0 * entries)))

    def row_cost(self) -> float:
        """Numbers that a row touches."""
        return sum(w.entries[1] + 2 * w.copied[1] for w in self.work)

    def table_cost(self) -> float:
        """Numbers of all tables, and what a row touches where these are alike."""
        size = self.table.size
        tables = sum(size(ins) * size(legs) for ins, legs in zip(self.ins, self.legs))
        return tables + self.row_cost()

    def lookup(self) -> Lookup:
        size = self.table.size
        plans = [
            part_plan(self.table, part, (*ins, *legs), (size(ins), size(legs)))
            for part, ins, legs in zip(self.parts, self.ins, self.legs)
        ]
        counts = tuple(size(ins) for ins in self.ins)
        return Lookup(
            self.parts, tuple(plans), counts, tuple(self.joins), self.shape, self.order, tuple(self.work)
        )
