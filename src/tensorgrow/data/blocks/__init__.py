"""Tensors that are read block by block, and sums over their blocks."""

from .gpu_stage import StagedReducer
from .grid import Box, block_grid, entries_of
from .reducer import Form, Kernel, Partial, Reducer, ThreadReducer, computed, groups_of, run_group, widen
from .sources import ArraySource, BlockSource, as_source, is_lazy

__all__ = [
    "ArraySource",
    "BlockSource",
    "Box",
    "Form",
    "Kernel",
    "Partial",
    "Reducer",
    "StagedReducer",
    "ThreadReducer",
    "as_source",
    "block_grid",
    "computed",
    "entries_of",
    "groups_of",
    "is_lazy",
    "run_group",
    "widen",
]
