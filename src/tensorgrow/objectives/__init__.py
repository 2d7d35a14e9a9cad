"""What is minimised."""

from .base import LeastSquares, NormalEquations, PairProblem, SliceFit
from .dense import DenseLeastSquares
from .differentiable import Differentiable, LossFunction
from .observed import ObservedLeastSquares
from .reweighted import ReweightedLeastSquares

__all__ = [
    "DenseLeastSquares",
    "Differentiable",
    "LeastSquares",
    "LossFunction",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "ReweightedLeastSquares",
    "SliceFit",
]
