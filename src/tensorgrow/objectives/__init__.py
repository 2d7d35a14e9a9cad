"""What is minimised."""

from .base import LeastSquares, NormalEquations, PairProblem, SliceFit
from .dense import DenseLeastSquares
from .differentiable import Differentiable, LossFunction
from .entries import EntriesLoss
from .observed import ObservedLeastSquares

__all__ = [
    "DenseLeastSquares",
    "Differentiable",
    "EntriesLoss",
    "LeastSquares",
    "LossFunction",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "SliceFit",
]
