"""Tensors larger than memory, clusters, and many runs at once."""

from .decomposing import decompose, decompose_blocks, fits_in_memory
from .many import map_runs

__all__ = ["decompose", "decompose_blocks", "fits_in_memory", "map_runs"]
