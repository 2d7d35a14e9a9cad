"""The diagram of a network: cores, dangling legs, edges as wide as their rank is large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import OptionError
from ..network import TensorNetwork
from ..results import Result
from ..structure import Edge, Structure
from .canvas import BLUE, GREEN, GREY, INK, ORANGE, one_axes
from .layout import Layout, Placement, bezier, choose_layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Units are the distance between neighbouring legs.
NODE_RADIUS = 0.21
LEG_LENGTH = 0.48
HALF_LETTER = 0.065  # half the width of one, in text as high as a core allows


def draw_network(
    what: Structure | TensorNetwork | Result,
    ax: Axes | None = None,
    *,
    layout: Layout | Literal["auto", "line", "circle"] = "auto",
    highlight: Edge | None = None,
    labels: bool = True,
    names: Sequence[str] | None = None,
) -> Axes:
    """Draw a structure, a network or the network of a result.

    Circles are cores with a dangling leg, which ends at its name and dimension; diamonds are internal cores.
    Edges are labelled with their ranks and widen with the logarithm of the rank; edges of rank 1 are not
    drawn.

    Parameters
    ----------
    what
        A `Structure`, `TensorNetwork` or `Result`.
    ax
        Where to draw; by default a new figure.
    layout
        "line", "circle", "auto" (a line for chains, else a circle), or a `Layout`, to have several drawings
        agree.
    highlight
        An edge to show in another colour.
    labels
        Whether to write ranks, names, dimensions and numbers of nodes.
    names
        Names of the dangling legs; by default those that a result knows.

    Returns
    -------
    matplotlib.axes.Axes
    """
    structure = as_structure(what)
    highlight = None if highlight is None else (min(highlight), max(highlight))
    layout = layout if isinstance(layout, Layout) else choose_layout(structure, layout)
    placed = layout.place(structure)
    legs = leg_texts(structure, getattr(what, "leg_names", None) if names is None else names)
    ax = one_axes(ax, _figure_size(layout, placed, legs))
    unit = _frame(ax, placed, legs)
    _draw_edges(ax, structure, placed, highlight, unit)
    _draw_nodes(ax, structure, placed, highlight)
    if labels:
        _write(ax, structure, placed, legs, highlight, unit)
    return ax


def as_structure(what: Any) -> Structure:
    """Return the structure of anything that has one."""
    structure = what if isinstance(what, Structure) else getattr(what, "structure", None)
    if not isinstance(structure, Structure):
        raise OptionError(f"a Structure, TensorNetwork or Result is needed, not {type(what).__name__}")
    return structure


def leg_texts(structure: Structure, names: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Lines at the end of each leg: its name where it has one, and its dimension. Long names are cut."""
    if names is None:
        return [(str(dim),) for dim in structure.dims]
    if len(names) != structure.order:
        raise OptionError(f"{len(names)} names are given, the network has {structure.order} legs")
    short = [name if len(name) <= 14 else f"{name[:13]}…" for name in names]
    return [(name, str(dim)) for name, dim in zip(short, structure.dims)]


def leg_end(placed: Placement, node: int, lines: tuple[str, ...]) -> tuple[float, float]:
    """Where the middle of the text at the end of a leg lies: beside it, above or below."""
    (x, y), (u, v) = placed.nodes[node], placed.legs[node]
    wide = HALF_LETTER * max(map(len, lines))
    return x + (LEG_LENGTH + 0.1 + wide) * u, y + (LEG_LENGTH + 0.07 + 0.1 * len(lines)) * v


def extent(
    placed: Placement, legs: Sequence[tuple[str, ...]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Limits of x and y that hold everything."""
    xs, ys = ([p[axis] for p in (*placed.nodes, *placed.labels.values())] for axis in (0, 1))
    for k, lines in enumerate(legs):
        x, y = leg_end(placed, k, lines)
        half = HALF_LETTER * max(map(len, lines))
        xs += [x - half, x + half]
        ys += [y - 0.12 * len(lines), y + 0.12 * len(lines)]
    margin = NODE_RADIUS + 0.1
    # 4.5 units are shown at least: two cores alone would fill the picture.
    spare = max(0.0, (4.5 - (max(xs) - min(xs) + 2 * margin)) / 2)
    return (min(xs) - margin - spare, max(xs) + margin + spare), (min(ys) - margin, max(ys) + margin)


def _figure_size(layout: Layout, placed: Placement, legs: Sequence[tuple[str, ...]]) -> tuple[float, float]:
    """Inches of a new figure: the same for most networks, more for those of many nodes."""
    # Half an inch per unit keeps labels readable, and 20 inches still fit a page or screen.
    width, height = (min(20.0, 0.5 * (high - low)) for low, high in extent(placed, legs))
    least = (5.5, 2.2) if layout.kind == "line" else (4.8, 4.8)
    return max(least[0], width), max(least[1], height)


def _frame(ax: Axes, placed: Placement, legs: Sequence[tuple[str, ...]]) -> float:
    """Set limits that hold everything; return the points of type per unit of length."""
    (left, right), (low, high) = extent(placed, legs)
    ax.set_xlim(left, right)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    ax.set_axis_off()
    box = ax.get_window_extent()
    pixels = min(box.width / (right - left), box.height / (high - low))
    return float(pixels * 72 / ax.figure.dpi)


def _draw_edges(
    ax: Axes, structure: Structure, placed: Placement, highlight: Edge | None, unit: float
) -> None:
    stops = np.linspace(0.0, 1.0, 25)
    for (i, j), rank in structure.ranks.items():
        curve = bezier(placed.nodes[i], placed.controls[i, j], placed.nodes[j], stops)
        color = ORANGE if (i, j) == highlight else GREY
        width = min((1.0 + 1.3 * math.log2(rank)) * min(unit / 40, 1.0), 0.4 * unit)
        (line,) = ax.plot(*curve.T, color=color, linewidth=width, zorder=1)
        line.set(solid_capstyle="round", gid=f"edge {i}-{j}")
    for k in range(structure.order):
        (x, y), (u, v) = placed.nodes[k], placed.legs[k]
        xs, ys = [x, x + LEG_LENGTH * u], [y, y + LEG_LENGTH * v]
        ax.plot(xs, ys, color=INK, linewidth=min(1.2, unit / 20), zorder=2, gid=f"leg {k}")


def _draw_nodes(ax: Axes, structure: Structure, placed: Placement, highlight: Edge | None) -> None:
    from matplotlib.patches import Circle, RegularPolygon

    for k, where in enumerate(placed.nodes):
        rim = ORANGE if highlight is not None and k in highlight else "white"
        if structure.is_internal(k):
            shape: Any = RegularPolygon(where, 4, radius=NODE_RADIUS * 1.05, gid=f"internal {k}")
            color = GREEN
        else:
            shape, color = Circle(where, NODE_RADIUS, gid=f"node {k}"), BLUE
        shape.set(facecolor=color, edgecolor=rim, linewidth=1.5, zorder=3)
        ax.add_patch(shape)


def _write(
    ax: Axes,
    structure: Structure,
    placed: Placement,
    legs: Sequence[tuple[str, ...]],
    highlight: Edge | None,
    unit: float,
) -> None:
    size = min(10.0, 0.21 * unit)
    middle: dict[str, Any] = {"ha": "center", "va": "center", "clip_on": True}
    for k, (x, y) in enumerate(placed.nodes):
        ax.text(x, y, str(k), color="white", fontsize=size, fontweight="bold", zorder=4, **middle)
        if not structure.is_internal(k):
            where = leg_end(placed, k, legs[k])
            # Names are text, not formulas of matplotlib.
            text = "\n".join(legs[k]).replace("$", r"\$")
            ax.text(*where, text, color="#596276", fontsize=size, linespacing=1.1, **middle)
    box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    for (i, j), rank in structure.ranks.items():
        where = placed.labels[i, j]
        label = ax.text(*where, str(rank), fontsize=size, fontweight="bold", bbox=box, zorder=5, **middle)
        label.set_color(ORANGE if (i, j) == highlight else INK)
