"""What is minimised."""

from .base import HeldOutLeastSquares, LeastSquares, NormalEquations, PairProblem, SliceFit
from .blocked import BlockedLeastSquares
from .blocked_kernels import Model, SquaredResidual, Survey
from .classification import Classification, logits
from .compressed import CompressedLeastSquares
from .dense import DenseLeastSquares
from .density import DensityLoss, Samples
from .differentiable import Differentiable, LossFunction, Screening, Sharing
from .observed import ObservedLeastSquares
from .regression import RegressionLeastSquares
from .reweighted import ReweightedLeastSquares

__all__ = [
    "BlockedLeastSquares",
    "Classification",
    "CompressedLeastSquares",
    "DenseLeastSquares",
    "DensityLoss",
    "Differentiable",
    "HeldOutLeastSquares",
    "LeastSquares",
    "LossFunction",
    "Model",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "RegressionLeastSquares",
    "ReweightedLeastSquares",
    "Samples",
    "Screening",
    "Sharing",
    "SliceFit",
    "SquaredResidual",
    "Survey",
    "logits",
]
