"""Words for sizes, structures and comparisons. No torch: commands show their help at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from ..data.sizes import bytes_text
from ..errors import counted
from ..structure import Structure

if TYPE_CHECKING:
    from ..report.comparison import Comparison


def describe_size(num_parameters: int, ratio: float, num_bytes: int, data_bytes: int) -> str:
    """Parameters, how they compare with the entries of the tensor, and both in bytes."""
    than = f"{ratio:.3g}x smaller" if ratio >= 1.0 else f"{1.0 / ratio:.3g}x larger than the data"
    sizes = f"{bytes_text(num_bytes)} for {bytes_text(data_bytes)} of data"
    return f"[bold]{num_parameters:,}[/] ({than}), {sizes}"


def describe_structure(structure: Structure) -> str:
    """Edges and their ranks on one line."""
    if not structure.ranks:
        return "none: rank one"
    edges = "  ".join(f"{i}-{j}:[cyan]{rank}[/]" for (i, j), rank in structure.ranks.items())
    inner = structure.num_nodes - structure.order
    return edges + (f"  ({counted(inner, 'internal node')})" if inner else "")


def describe_comparison(comparison: Comparison) -> str:
    """What interpolation gives on the same entries, and that it does better where it does."""
    if comparison.verdict is not None:
        return f"[bold yellow]{escape(comparison.verdict)}[/]"
    parts = []
    for f in comparison.others:
        error = "" if f.error is None else f" {f.error:.4g}"
        parts.append(
            f.name.removesuffix(" interpolation") + error + ("" if f.psnr is None else f" ({f.psnr:.1f} dB)")
        )
    return escape(", ".join(parts))
