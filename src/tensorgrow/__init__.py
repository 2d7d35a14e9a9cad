"""Learn the structure of a tensor network from data: graph, ranks and weights."""

from ._version import __version__
from .api import decompose, fit, load
from .errors import (
    DataError,
    FileFormatError,
    MemoryLimitError,
    OptionError,
    StructureError,
    TensorgrowError,
)
from .network import TensorNetwork
from .results import Result, Step, StopReason
from .search import GreedyOptions, GreedySearch
from .structure import Structure

__all__ = [
    "DataError",
    "FileFormatError",
    "GreedyOptions",
    "GreedySearch",
    "MemoryLimitError",
    "OptionError",
    "Result",
    "Step",
    "StopReason",
    "Structure",
    "StructureError",
    "TensorNetwork",
    "TensorgrowError",
    "__version__",
    "decompose",
    "fit",
    "load",
]
