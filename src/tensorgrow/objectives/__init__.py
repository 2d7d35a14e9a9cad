"""What is minimised."""

from .base import HeldOutLeastSquares, LeastSquares, NormalEquations, PairProblem, SharesPasses, SliceFit
from .block_kernels import Model, SquaredResidual, Survey
from .blocks import BlockedLeastSquares
from .classes import Classification, logits
from .compressed import CompressedLeastSquares
from .dense import DenseLeastSquares
from .density import DensityLoss, Samples
from .entries import ObservedLeastSquares
from .entry_losses import ReweightedLeastSquares
from .loss import Differentiable, LossFunction, Screening, Sharing
from .partition_parts import EntryPart, Parts, Task
from .partitions import Census, PartitionedLeastSquares
from .samples import RegressionLeastSquares

__all__ = [
    "BlockedLeastSquares",
    "Census",
    "Classification",
    "CompressedLeastSquares",
    "DenseLeastSquares",
    "DensityLoss",
    "Differentiable",
    "EntryPart",
    "HeldOutLeastSquares",
    "LeastSquares",
    "LossFunction",
    "Model",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "PartitionedLeastSquares",
    "Parts",
    "RegressionLeastSquares",
    "ReweightedLeastSquares",
    "Samples",
    "Screening",
    "SharesPasses",
    "Sharing",
    "SliceFit",
    "SquaredResidual",
    "Survey",
    "Task",
    "logits",
]
