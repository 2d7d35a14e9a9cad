"""Numbers as people write them, and those that sum up a result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ..data.sizes import bytes_text
from ..plotting.growth import error_name, headline
from ..results import Result, best_network


def shape_text(dims: Sequence[int]) -> str:
    """Write a shape as people do: ``4⁸×3`` for eight fours and a three."""
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    parts = []
    for dim, run in groupby(dims):
        count = len(list(run))
        parts += [f"{dim}{str(count).translate(raised)}"] if count > 2 else [str(dim)] * count
    return "×".join(parts)


def number(value: float | None) -> str:
    """Write an error; nothing where there is none."""
    if value is None:
        return ""
    return f"{value:.4g}" if value == 0 or abs(value) >= 1e-4 else f"{value:.2e}"


def summary(result: Result) -> list[tuple[str, str]]:
    """Names and values of what to know first; the error to judge by leads."""
    name, errors = error_name(result), result.errors
    lead, value = headline(result)
    ratio = result.compression_ratio
    out = [
        (lead, number(value)),
        ("parameters", f"{result.num_parameters:,}"),
        ("entries per parameter", f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"),
        ("bytes of the network", bytes_text(result.num_bytes)),
        ("bytes of the data", bytes_text(result.data_bytes)),
    ]
    if result.members:
        out.insert(1, ("members", f"{len(result.members)}"))
    if errors.validation is not None:
        rest = {f"held-out {name.removeprefix('relative ')}": errors.validation, "fitted error": errors.train}
        rest[f"{name} on all known data"] = errors.total
        out += [(key, number(v)) for key, v in rest.items() if v is not None and key != lead]
    if "gaps" in result.info:
        out.append(("gaps, held out alike", str(result.info["gaps"])))
    return out


def members_of(result: Result) -> list[dict[str, Any]]:
    """Each member of a committee in numbers, as for ``--json``; empty where there are none."""
    best = best_network(result.members) if result.members else None
    return [
        {
            "dims": list(m.structure.dims),
            "method": m.info.get("method"),
            "shift": [] if m.tensorization is None else list(m.tensorization.shift),
            "num_parameters": m.num_parameters,
            "weight": weight,
            "validation_error": m.validation_error,
            "test_error": m.test_error,
            "best": m is best,
        }
        for m, weight in zip(result.members, result.member_weights)
    ]


def member_table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Heads and rows that people read of a committee; columns that would be empty are left out."""
    columns: dict[str, list[str]] = {"member": [], "shape": [], "moved by": [], "parameters": [], "share": []}
    columns |= {"held-out": [], "hidden": []}
    for k, m in enumerate(members_of(result)):
        values = (
            f"{k + 1}" + (", best" if m["best"] else ""),
            m["method"] or shape_text(m["dims"]),
            ", ".join(map(str, m["shift"])),
            f"{m['num_parameters']:,}",
            f"{m['weight']:.0%}",
            number(m["validation_error"]),
            number(m["test_error"]),
        )
        for column, value in zip(columns.values(), values):
            column.append(value)
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    return list(shown), [list(row) for row in zip(*shown.values())]
