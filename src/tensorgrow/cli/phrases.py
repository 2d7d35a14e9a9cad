"""Words for sizes and structures. No torch: commands show their help at once."""

from __future__ import annotations

from ..errors import counted
from ..structure import Structure


def describe_size(num_parameters: int, ratio: float) -> str:
    """Parameters, and how they compare with the entries of the tensor."""
    than = f"{ratio:.3g}x smaller" if ratio >= 1.0 else f"{1.0 / ratio:.3g}x larger than the data"
    return f"[bold]{num_parameters:,}[/] ({than})"


def describe_structure(structure: Structure) -> str:
    """Edges and their ranks on one line."""
    if not structure.ranks:
        return "none: rank one"
    edges = "  ".join(f"{i}-{j}:[cyan]{rank}[/]" for (i, j), rank in structure.ranks.items())
    inner = structure.num_nodes - structure.order
    return edges + (f"  ({counted(inner, 'internal node')})" if inner else "")
