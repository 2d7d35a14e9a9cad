"""``tensorgrow show``: what is in a file."""

from __future__ import annotations

import math
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..results import Result
from ..tasks.api import load
from . import options as opt
from .console import emit_json, out
from .outputs import as_result, describe_size, describe_structure, json_of
from .reconstruct import NetworkFile

__all__ = ["NAME", "run"]

NAME = "show"
# Points of the error-size path that are listed.
LISTED = 12


def run(network: NetworkFile, as_json: opt.JsonOutput = False) -> None:
    """Show what is in a file: structure, sizes, errors, and how it was found."""
    result = as_result(load(network), network)
    if as_json:
        document = json_of(NAME, result, files=[str(network)])
        # A bare network has no error, and JSON has no NaN.
        emit_json({k: None if isinstance(v, float) and math.isnan(v) else v for k, v in document.items()})
        return
    out.print(_summary(result, escape(str(network))))
    if result.structure.order <= 40:
        out.print(_nodes(result))
    if result.path:
        out.print(_path(result))


def _summary(result: Result, name: str) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), title=name, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    source: dict[str, Any] = result.info.get("source") or {}
    if source:
        key = f" [{source['key']}]" if source.get("key") else ""
        table.add_row("data", escape(source["name"] + key))
    if result.tensorization is not None:
        table.add_row("tensor", str(result.tensorization))
    table.add_row("parameters", describe_size(result.num_parameters, result.compression_ratio))
    for label, value in (
        ("relative error", result.relative_error),
        ("held-out error", result.validation_error),
        ("hidden entries", result.test_error),
    ):
        if value is not None and not math.isnan(value):
            table.add_row(label, f"{value:.4g}")
    table.add_row("edges", describe_structure(result.structure))
    table.add_row("numbers", f"{result.network.dtype}".removeprefix("torch."))
    if result.history:
        table.add_row("stopped", f"{result.stop.name}. {result.stop.text}")
    if "seconds" in result.info:
        table.add_row("time", f"{result.info['seconds']:.1f} s, {len(result.history)} steps")
    return table


def _nodes(result: Result) -> Table:
    structure = result.structure
    table = Table(title="nodes", title_justify="left")
    for name in ("node", "leg", "joined to (rank)", "parameters"):
        table.add_column(name, justify="left" if name.startswith("joined") else "right")
    for k in range(structure.num_nodes):
        joined = ", ".join(f"{j} ([cyan]{structure.rank(k, j)}[/])" for j in structure.neighbours[k])
        leg = "internal" if structure.is_internal(k) else str(structure.leg_dim(k))
        table.add_row(str(k), leg, joined or "-", f"{math.prod(structure.core_shape(k)):,}")
    return table


def _path(result: Result) -> Table:
    table = Table(title="smaller networks on the way (reconstruct --max-error)", title_justify="left")
    table.add_column("parameters", justify="right")
    table.add_column("error", justify="right")
    points = result.path
    count = min(LISTED, len(points))
    chosen = sorted({round(k * (len(points) - 1) / max(1, count - 1)) for k in range(count)})
    for k in chosen:
        table.add_row(f"{points[k].num_parameters:,}", f"{points[k].relative_error:.4g}")
    return table
