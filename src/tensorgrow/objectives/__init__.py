"""What is minimised."""

from .base import HeldOutLeastSquares, LeastSquares, NormalEquations, PairProblem, SliceFit
from .dense import DenseLeastSquares
from .density import DensityLoss, Samples
from .differentiable import Differentiable, LossFunction
from .observed import ObservedLeastSquares
from .regression import RegressionLeastSquares
from .reweighted import ReweightedLeastSquares

__all__ = [
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
    "SliceFit",
]
