"""The public names; `tensorgrow` passes them on when one of them is first used."""

from . import baselines, callbacks, interop, losses, nn, plotting, priors
from ._version import __version__
from .callbacks import trackers as tracking
from .data import parallel as distributed
from .data.axes import Axes
from .data.blocks import Blocks
from .data.features import FeatureMap
from .data.input_file import read
from .data.observations import Observations
from .data.tensorization import Tensorization, detensorize, tensorize
from .errors import (
    ClusterError,
    DataError,
    DataWarning,
    FileFormatError,
    MemoryLimitError,
    MissingPackageError,
    OptionError,
    StructureError,
    TensorgrowError,
    WriteError,
)
from .files import load
from .network import TensorNetwork
from .results import Errors, Result
from .search import GreedyOptions
from .solvers import TrainingOptions
from .steps import Step, StopReason
from .structure import Structure
from .tasks.approximate import approximate
from .tasks.complete import complete
from .tasks.decompose import decompose
from .tasks.density import DensityResult, learn_density
from .tasks.density_model import DensityModel
from .tasks.fit import fit
from .tasks.learn import learn

__all__ = [
    "Axes",
    "Blocks",
    "ClusterError",
    "DataError",
    "DataWarning",
    "DensityModel",
    "DensityResult",
    "Errors",
    "FeatureMap",
    "FileFormatError",
    "GreedyOptions",
    "MemoryLimitError",
    "MissingPackageError",
    "Observations",
    "OptionError",
    "Result",
    "Step",
    "StopReason",
    "Structure",
    "StructureError",
    "TensorNetwork",
    "TensorgrowError",
    "Tensorization",
    "TrainingOptions",
    "WriteError",
    "__version__",
    "approximate",
    "baselines",
    "callbacks",
    "complete",
    "decompose",
    "detensorize",
    "distributed",
    "fit",
    "interop",
    "learn",
    "learn_density",
    "load",
    "losses",
    "nn",
    "plotting",
    "priors",
    "read",
    "tensorize",
    "tracking",
]
