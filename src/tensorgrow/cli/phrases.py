"""Words for sizes and structures. No torch: commands show their help at once."""

from __future__ import annotations

from ..data.sizes import bytes_text
from ..errors import counted
from ..structure import Structure


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
