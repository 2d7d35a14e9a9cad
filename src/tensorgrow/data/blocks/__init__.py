"""Tensors that are read block by block, and sums over their blocks."""

from .cluster import ClientReducer
from .gpu_stage import StagedReducer
from .grid import Box, block_grid, entries_of
from .readers import Blocks
from .reducer import Form, Partial, Reducer, ThreadReducer, run_group, widen
from .sources import ArraySource, BlockSource, as_source, is_lazy

__all__ = [
    "ArraySource",
    "BlockSource",
    "Blocks",
    "Box",
    "ClientReducer",
    "Form",
    "Partial",
    "Reducer",
    "StagedReducer",
    "ThreadReducer",
    "as_source",
    "block_grid",
    "entries_of",
    "is_lazy",
    "run_group",
    "widen",
]
