"""Which way a layer is applied, for every number of rows."""

from __future__ import annotations

from itertools import pairwise

import torch

from ...contraction.cache import cached
from ...structure import Structure
from .application import Application, Way
from .costs import machine_of
from .layout import Layout
from .plans import MOST_ROWS, dense_plan
from .products import NO_LIMIT

Schedule = tuple[tuple[int, Way | None], ...]
"""Up to this many rows, go this way; None: rebuild the weight."""


def pick(schedule: Schedule, rows: int) -> Way | None:
    """The way for a number of rows. Comparisons only, so that a compiler can guard on ranges of rows."""
    for limit, way in schedule[:-1]:
        if rows <= limit:
            return way
    return schedule[-1][1]


@cached
def schedule(
    application: Application,
    layout: Layout,
    structure: Structure,
    device: str,
    itemsize: int,
    *,
    gradients: bool = False,
) -> Schedule:
    """What to do for every number of rows."""
    machine = machine_of(device).training() if gradients else machine_of(device)
    ways = application.ways(layout, structure, device, itemsize)
    if not ways:
        return ((NO_LIMIT, None),)
    build = dense_plan(layout, structure).seconds(1, itemsize, machine)
    dense = application.dense_work(layout.in_features, layout.out_features)

    def best(rows: int) -> Way | None:
        rebuilt = build + dense.seconds(rows, itemsize, machine)
        times = [p.seconds(rows, itemsize, machine) for p in ways]
        # A clear gain only: estimates are rough, and a layer must not be slower than rebuilding.
        return ways[times.index(min(times))] if min(times) < 0.7 * rebuilt else None

    grid = sorted({round(2 ** (n / 2)) for n in range(2 * MOST_ROWS.bit_length() - 1)})
    out: list[tuple[int, Way | None]] = []
    for low, high in pairwise(grid):
        now, after = best(low), best(high)
        if now == after:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if best(middle) == now else (low, middle)
        out.append((low, now))
    return (*out, (NO_LIMIT, best(grid[-1])))


def estimate(
    application: Application, layout: Layout, structure: Structure, rows: int, like: torch.Tensor
) -> tuple[float, int]:
    """Seconds that a layer takes for so many rows on the device of `like`, and the most numbers in memory."""
    device, itemsize = like.device.type, like.element_size()
    way, machine = (
        pick(schedule(application, layout, structure, device, itemsize), rows),
        machine_of(device),
    )
    if way is None:
        seconds = dense_plan(layout, structure).seconds(1, itemsize, machine)
        work = application.dense_work(layout.in_features, layout.out_features)
        seconds += work.seconds(rows, itemsize, machine)
    else:
        seconds = way.seconds(rows, itemsize, machine)
    entries = structure.num_parameters + peak_entries(layout, structure, way, rows)
    return seconds, entries + application.input_entries(layout.in_features, rows)


def estimate_dense(
    application: Application, sizes: tuple[int, int], rows: int, like: torch.Tensor
) -> tuple[float, int]:
    """The same of a dense layer with so many inputs and outputs."""
    inputs, outputs = sizes
    work, machine = application.dense_work(inputs, outputs), machine_of(like.device.type)
    entries = inputs * outputs + application.input_entries(inputs, rows) + rows * outputs
    return work.seconds(rows, like.element_size(), machine), entries


def peak_entries(layout: Layout, structure: Structure, way: Way | None, rows: int) -> int:
    """Most numbers that lie in memory beside cores and input while the layer is applied; counted."""
    if way is None:
        return dense_plan(layout, structure).entries(rows) + rows * layout.out_features
    return way.entries(rows)
