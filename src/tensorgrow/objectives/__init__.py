"""What is minimised."""

from .base import HeldOutLeastSquares, LeastSquares, NormalEquations, PairProblem, SliceFit
from .classification import Classification, logits
from .dense import DenseLeastSquares
from .density import DensityLoss, Samples
from .differentiable import Differentiable, LossFunction, Screening
from .observed import ObservedLeastSquares
from .regression import RegressionLeastSquares
from .reweighted import ReweightedLeastSquares

__all__ = [
    "Classification",
    "DenseLeastSquares",
    "DensityLoss",
    "Differentiable",
    "HeldOutLeastSquares",
    "LeastSquares",
    "LossFunction",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "RegressionLeastSquares",
    "ReweightedLeastSquares",
    "Samples",
    "Screening",
    "SliceFit",
    "logits",
]
