"""``tensorgrow show``: describe a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ..errors import counted
from . import options as opt
from .console import emit_json, out, print_facts
from .phrases import describe_comparison, describe_size, describe_structure

if TYPE_CHECKING:
    from ..data.axes import Axes
    from ..results import Result

NAME = "show"


def run(network: opt.NetworkFile, as_json: opt.JsonOutput = False) -> None:
    """Show the contents of a file: structure, sizes, errors, and the run it came from."""
    from .inputs import load_result
    from .outputs import describe_result

    result = load_result(network)
    if as_json:
        document = describe_result(NAME, result, files=[str(network)])
        # A bare network has no error, and JSON has no NaN.
        emit_json({k: None if isinstance(v, float) and math.isnan(v) else v for k, v in document.items()})
        return
    print_facts(_facts(result), title=escape(str(network)))
    if result.members:
        out.print(_members(result))
    if result.structure.order <= 40:
        out.print(_nodes(result))
    if result.path:
        out.print(_path(result))


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    from ..report.comparison import Comparison

    source: dict[str, Any] = result.info.get("source") or {}
    if source:
        key = f" [{source['key']}]" if source.get("key") else ""
        yield "data", escape(source["name"] + key)
    if result.tensorization is not None:
        yield "tensor", str(result.tensorization)
    if result.axes is not None:
        yield "axes", escape(", ".join(_describe_axes(result.axes)))
    yield (
        "parameters",
        describe_size(result.num_parameters, result.compression_ratio, result.num_bytes, result.data_bytes),
    )
    if "gaps" in result.info:
        yield "gaps", escape(str(result.info["gaps"]))
    for label, value in (
        ("hidden entries", result.test_error),
        ("held-out error", result.validation_error),
        (result.errors.name, result.errors.total),
    ):
        if value is not None and not math.isnan(value):
            yield label, f"{value:.4g}"
    if (comparison := Comparison.from_dict(result.info.get("interpolation"))) is not None:
        yield "interpolation", describe_comparison(comparison)
    yield "edges", describe_structure(result.structure)
    yield "numbers", f"{result.network.dtype}".removeprefix("torch.")
    if result.history:
        yield "stopped", f"{result.stop.name}. {result.stop.text}"
    if "seconds" in result.info:
        yield "time", f"{result.info['seconds']:.1f} s, {counted(len(result.history), 'step')}"


def _describe_axes(axes: Axes) -> Iterator[str]:
    """Names, with the first and the last label where there are labels."""
    for name, labels in zip(axes.names, axes.labels):
        yield name if labels is None else f"{name} ({len(labels)}: {labels[0]} to {labels[-1]})"


def _members(result: Result) -> Table:
    from ..report.numbers import member_table

    heads, rows = member_table(result)
    table = Table(title="members; all else is of the best", title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head == "shape" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _nodes(result: Result) -> Table:
    structure, names = result.structure, result.leg_names
    table = Table(title="nodes", title_justify="left")
    for name in ("node", "leg", "joined to (rank)", "parameters"):
        table.add_column(name, justify="left" if name.startswith("joined") else "right")
    for k in range(structure.num_nodes):
        joined = ", ".join(f"{j} ([cyan]{structure.rank(k, j)}[/])" for j in structure.neighbours[k])
        leg = "internal" if structure.is_internal(k) else str(structure.dims[k])
        if names is not None and not structure.is_internal(k):
            leg = f"{escape(names[k])}: {leg}"
        table.add_row(str(k), leg, joined or "-", f"{math.prod(structure.core_shape(k)):,}")
    return table


def _path(result: Result) -> Table:
    from ..plotting.growth import pick_evenly

    table = Table(title="smaller networks on the way (reconstruct --max-error)", title_justify="left")
    table.add_column("parameters", justify="right")
    table.add_column("error", justify="right")
    for point in pick_evenly(result.path, 12):
        table.add_row(f"{point.num_parameters:,}", f"{point.error:.4g}")
    return table
