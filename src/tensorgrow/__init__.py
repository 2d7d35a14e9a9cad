"""Learn the structure of a tensor network from data: graph, ranks and weights."""

from . import nn
from ._version import __version__
from .api import decompose, fit, load
from .completion import complete
from .errors import (
    DataError,
    DataWarning,
    FileFormatError,
    MemoryLimitError,
    OptionError,
    StructureError,
    TensorgrowError,
)
from .network import TensorNetwork
from .observations import Observations
from .results import Result, Step, StopReason
from .search import GreedyOptions, GreedySearch
from .structure import Structure

__all__ = [
    "DataError",
    "DataWarning",
    "FileFormatError",
    "GreedyOptions",
    "GreedySearch",
    "MemoryLimitError",
    "Observations",
    "OptionError",
    "Result",
    "Step",
    "StopReason",
    "Structure",
    "StructureError",
    "TensorNetwork",
    "TensorgrowError",
    "__version__",
    "complete",
    "decompose",
    "fit",
    "load",
    "nn",
]
