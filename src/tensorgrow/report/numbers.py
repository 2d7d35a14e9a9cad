"""Numbers as people write them, and those that sum up a result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ..data.sizes import bytes_text
from ..plotting.growth import error_name, headline
from ..results import Result


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
    if errors.validation is not None:
        rest = {f"held-out {name.removeprefix('relative ')}": errors.validation, "fitted error": errors.train}
        rest[f"{name} on all known data"] = errors.total
        out += [(key, number(v)) for key, v in rest.items() if v is not None and key != lead]
    return out
