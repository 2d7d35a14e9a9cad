"""Tensors larger than memory, clusters, and many runs at once."""

from .completing import PartitionedTask
from .decomposing import decompose, decompose_blocks, fit_blocks, fits_in_memory
from .many import map_runs
from .partitions import PartitionedObservations, as_partitions, is_partitioned

__all__ = [
    "PartitionedObservations",
    "PartitionedTask",
    "as_partitions",
    "decompose",
    "decompose_blocks",
    "fit_blocks",
    "fits_in_memory",
    "is_partitioned",
    "map_runs",
]
