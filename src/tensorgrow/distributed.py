"""Tensors larger than memory, clusters, and many runs at once."""

from .data.parallel.many import map_runs
from .data.partitions.tables import PartitionedObservations
from .tasks.decompose_blocks import decompose

__all__ = ["PartitionedObservations", "decompose", "map_runs"]
