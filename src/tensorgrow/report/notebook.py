"""What a notebook shows of a result or a network: a table of numbers and a drawing, without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from ..network import TensorNetwork
from ..plotting.canvas import BLUE, GREEN, GREY
from ..plotting.diagram import LEG_LENGTH, NODE_RADIUS, extent, leg_end, leg_texts
from ..plotting.layout import choose_layout
from ..results import Result
from ..structure import Structure
from .numbers import shape_text, summary

# Pixels per unit of length: enough for labels of two digits. Beyond the width of a notebook it shrinks.
UNIT = 48
WIDEST = 640


def result_html(result: Result) -> str:
    """Return the fragment of a result: the numbers that sum it up, why it stopped, and its network."""
    rows = [*summary(result), ("stopped", result.stop.text)]
    return _fragment(f"Result: {_describe(result.structure)}", rows, result.structure, result.leg_names)


def network_html(network: TensorNetwork) -> str:
    """Return the fragment of a network."""
    rows = [
        ("parameters", f"{network.num_parameters:,}"),
        ("dtype", str(network.dtype).removeprefix("torch.")),
    ]
    return _fragment(f"TensorNetwork: {_describe(network.structure)}", rows, network.structure)


def _describe(structure: Structure) -> str:
    edges = len(structure.edges)
    return f"{shape_text(structure.dims)}, {edges} edge{'s' if edges != 1 else ''}"


def _fragment(
    heading: str, rows: Iterable[tuple[str, str]], structure: Structure, names: Sequence[str] | None = None
) -> str:
    body = "".join(
        f'<tr><th style="text-align:left;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    # A drawing of hundreds of cores says nothing, and would fill the notebook.
    drawing = network_svg(structure, names) if structure.num_nodes <= 60 else ""
    return (
        f"<div><strong>{escape(heading)}</strong>"
        f'<div style="display:flex;flex-wrap:wrap;gap:1em;align-items:center">'
        f'<table style="max-width:34em;color:inherit">{body}</table>{drawing}</div></div>'
    )


def network_svg(structure: Structure, names: Sequence[str] | None = None) -> str:
    """Draw a network as SVG, as `tensorgrow.plotting.draw_network` does; text takes the colour around it."""
    placed = choose_layout(structure).place(structure)
    texts = leg_texts(structure, names)
    (left, right), (low, high) = extent(placed, texts)
    unit = min(UNIT, WIDEST / (right - left))
    width, height = unit * (right - left), unit * (high - low)
    nodes, legs, controls, labels = (
        [((x - left) * unit, (high - y) * unit) for x, y in points]
        for points in (
            placed.nodes,
            [(x + LEG_LENGTH * u, y + LEG_LENGTH * v) for (x, y), (u, v) in zip(placed.nodes, placed.legs)],
            [placed.controls[e] for e in structure.edges],
            [placed.labels[e] for e in structure.edges],
        )
    )
    size, radius = min(13.0, 0.3 * unit), NODE_RADIUS * unit
    parts = []
    for (i, j), (cx, cy) in zip(structure.edges, controls):
        wide = min(1.5 + 1.3 * math.log2(structure.rank(i, j)), 0.3 * unit)
        curve = f"M{_pair(nodes[i])}Q{cx:.1f} {cy:.1f} {_pair(nodes[j])}"
        parts.append(f'<path d="{curve}" fill="none" stroke="{GREY}" stroke-width="{wide:.1f}"/>')
    for k in range(structure.order):
        line = f"M{_pair(nodes[k])}L{_pair(legs[k])}"
        parts.append(f'<path d="{line}" stroke="currentColor" stroke-width="1.3"/>')
        where = leg_end(placed, k, texts[k])
        for n, line in enumerate(texts[k]):
            down = size * (n - (len(texts[k]) - 1) / 2)
            parts.append(_text((where[0] - left) * unit, (high - where[1]) * unit + down, line, 0.8 * size))
    for k, (x, y) in enumerate(nodes):
        if structure.is_internal(k):
            side = 1.3 * radius
            parts.append(
                f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}" '
                f'fill="{GREEN}" transform="rotate(45 {x:.1f} {y:.1f})"/>'
            )
        else:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{BLUE}"/>')
        parts.append(_text(x, y, str(k), 0.9 * size, fill="#ffffff"))
    for (x, y), edge in zip(labels, structure.edges):
        rank = str(structure.rank(*edge))
        # A plate behind the number, readable on light and on dark pages.
        half = 0.34 * size * len(rank) + 2
        parts.append(
            f'<rect x="{x - half:.1f}" y="{y - 0.6 * size:.1f}" width="{2 * half:.1f}" '
            f'height="{1.2 * size:.1f}" rx="3" fill="#ffffff" fill-opacity="0.9"/>'
        )
        parts.append(_text(x, y, rank, size, fill="#191d28"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Network of {structure.num_nodes} '
        f'cores" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="sans-serif" text-anchor="middle">{"".join(parts)}</svg>'
    )


def _pair(point: tuple[float, float]) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _text(x: float, y: float, text: str, size: float, fill: str = "currentColor") -> str:
    # Of the ways to centre text vertically, a shift of the baseline works in every renderer.
    place = f'x="{x:.1f}" y="{y + 0.35 * size:.1f}" font-size="{size:.1f}"'
    return f'<text {place} fill="{fill}">{escape(text)}</text>'
