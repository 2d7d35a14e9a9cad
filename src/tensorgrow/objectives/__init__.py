"""What is minimised."""

from .base import HeldOutLeastSquares, LeastSquares, NormalEquations, PairProblem, SharesPasses, SliceFit
from .blocked import BlockedLeastSquares
from .blocked_kernels import Model, SquaredResidual, Survey
from .classification import Classification, logits
from .compressed import CompressedLeastSquares
from .dense import DenseLeastSquares
from .density import DensityLoss, Samples
from .differentiable import Differentiable, LossFunction, Screening, Sharing
from .entry_parts import EntryPart, Parts, Task
from .observed import ObservedLeastSquares
from .partitioned import Census, PartitionedLeastSquares
from .regression import RegressionLeastSquares
from .reweighted import ReweightedLeastSquares

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
