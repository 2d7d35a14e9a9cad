"""Tensors larger than memory, clusters, and many runs at once."""

from ..partitions.tables import PartitionedObservations
from .many import map_runs

__all__ = ["PartitionedObservations", "map_runs"]
