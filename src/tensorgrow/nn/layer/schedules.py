"""Which way a layer is applied, for every number of rows."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from ...contraction.cache import cached
from ...structure import Structure
from .costs import Machine, Work, machine_of
from .layout import Layout
from .plans import dense_plan, through_plan
from .products import NO_LIMIT, Plan

# Beyond this many rows the best plan no longer changes.
MOST_ROWS = 1 << 17

Schedule = tuple[tuple[int, Plan | None], ...]
"""Up to this many rows, use this plan; None: rebuild the weight."""


def pick(schedule: Schedule, rows: int) -> Plan | None:
    """The plan for a number of rows. Comparisons only, so that a compiler can guard on ranges of rows."""
    for limit, plan in schedule:
        if rows <= limit:
            return plan
    return None


@cached
def schedule(
    layout: Layout, structure: Structure, device: str, itemsize: int, *, gradients: bool = False
) -> Schedule:
    """What to do for every number of rows."""
    machine = machine_of(device).training() if gradients else machine_of(device)
    plans = through_plans(layout, structure, device, itemsize)
    build = dense_plan(layout, structure).seconds(1, itemsize, machine)
    dense = dense_work(layout.in_features, layout.out_features)

    def best(rows: int) -> Plan | None:
        rebuilt = build + dense.seconds(rows, itemsize, machine)
        times = [p.seconds(rows, itemsize, machine) for p in plans]
        # A clear gain only: estimates are rough, and a layer must not be slower than rebuilding.
        return plans[times.index(min(times))] if min(times) < 0.7 * rebuilt else None

    grid = sorted({round(2 ** (n / 2)) for n in range(2 * MOST_ROWS.bit_length() - 1)})
    out: list[tuple[int, Plan | None]] = []
    for low, high in pairwise(grid):
        now, after = best(low), best(high)
        if now == after:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if best(middle) == now else (low, middle)
        out.append((low, now))
    return (*out, (NO_LIMIT, best(grid[-1])))


def dense_work(inputs: int, outputs: int) -> Work:
    """``x W^T`` with a dense weight."""
    return Work((0.0, 2.0 * inputs * outputs), (float(inputs * outputs), float(inputs + outputs)))


def estimate(layout: Layout, structure: Structure, rows: int, like: torch.Tensor) -> tuple[float, int]:
    """Seconds that a layer takes for so many rows on the device of `like`, and the most numbers in memory."""
    device, itemsize = like.device.type, like.element_size()
    plan, machine = pick(schedule(layout, structure, device, itemsize), rows), machine_of(device)
    if plan is None:
        seconds = dense_plan(layout, structure).seconds(1, itemsize, machine)
        seconds += dense_work(layout.in_features, layout.out_features).seconds(rows, itemsize, machine)
    else:
        seconds = plan.seconds(rows, itemsize, machine)
    entries = structure.num_parameters + peak_entries(layout, structure, plan, rows)
    return seconds, entries + rows * layout.in_features


def estimate_dense(inputs: int, outputs: int, rows: int, like: torch.Tensor) -> tuple[float, int]:
    """The same of a dense layer."""
    work, machine = dense_work(inputs, outputs), machine_of(like.device.type)
    return work.seconds(rows, like.element_size(), machine), inputs * outputs + rows * (inputs + outputs)


def through_plans(layout: Layout, structure: Structure, device: str, itemsize: int) -> list[Plan]:
    """Plans through the cores to choose from: best orders for a few numbers of rows, whole and in parts."""
    # From one row to a large batch, evenly in logarithms.
    best = (through_plan(layout, structure, rows, device) for rows in (1, 16, 256, 4096))
    plans = list(dict.fromkeys(best))
    parts = [_in_parts(p, itemsize, machine_of(device)) for p in plans]
    return plans + [p for p in parts if p is not None]


def _in_parts(plan: Plan, itemsize: int, machine: Machine) -> Plan | None:
    """The plan with as many rows at once as stay in the cache; None where all do, or too few."""
    rows, least = MOST_ROWS, 16  # fewer are not worth a pass through the products of their own
    while rows >= least and any(
        w.count_entries(rows) * itemsize > machine.cache for w in plan.work if w.has_rows
    ):
        rows //= 2
    return plan._replace(part=rows) if least <= rows < MOST_ROWS else None


def peak_entries(layout: Layout, structure: Structure, plan: Plan | None, rows: int) -> int:
    """Most numbers that lie in memory beside cores and input while the layer is applied; counted."""
    rebuilds = plan is None
    plan = plan or dense_plan(layout, structure)
    together = min(rows, plan.part)
    pool = [0] * len(plan.inputs)
    live = peak = 0
    for product, work in zip(plan.products, plan.work):
        entries = abs(math.prod(product.shape)) * (together if product.has_rows else 1)
        live += entries
        copied = work.copied[0] + work.copied[1] * together
        peak = max(peak, live + round(copied))
        live -= pool[product.left] + pool[product.right]
        pool.append(entries)
    result = rows * layout.out_features
    if rebuilds:
        return max(peak, 2 * layout.in_features * layout.out_features) + result
    if rows > together:  # the results of all parts, and then all in one
        return result + max(peak, result)
    return max(peak, live + result)
