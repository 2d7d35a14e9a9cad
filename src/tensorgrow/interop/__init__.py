"""Networks to and from other libraries: quimb, TensorLy, networkx, and einsum equations.

What is exported holds the same numbers; reading it back gives the same network, cores and all. quimb,
TensorLy and networkx are imported when needed: the extra `interop` brings them.
"""

from .equations import from_einsum, to_einsum
from .graphs import from_networkx, structure_from_networkx, to_networkx
from .quimb_networks import from_quimb, to_quimb
from .tensorly_formats import from_tensorly, to_tensorly

__all__ = [
    "from_einsum",
    "from_networkx",
    "from_quimb",
    "from_tensorly",
    "structure_from_networkx",
    "to_einsum",
    "to_networkx",
    "to_quimb",
    "to_tensorly",
]
