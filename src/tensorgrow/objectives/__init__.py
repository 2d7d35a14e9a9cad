"""What is minimised."""

from .base import HeldOutLeastSquares, LeastSquares, NormalEquations, PairProblem, SliceFit
from .classification import Classification, logits
from .dense import DenseLeastSquares
from .differentiable import Differentiable, LossFunction, Screening
from .observed import ObservedLeastSquares
from .regression import RegressionLeastSquares
from .reweighted import ReweightedLeastSquares

__all__ = [
    "Classification",
    "DenseLeastSquares",
    "Differentiable",
    "HeldOutLeastSquares",
    "LeastSquares",
    "LossFunction",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "RegressionLeastSquares",
    "ReweightedLeastSquares",
    "Screening",
    "SliceFit",
    "logits",
]
