"""What is minimised."""

from .base import LeastSquares, NormalEquations, PairProblem, SliceFit
from .dense import DenseLeastSquares
from .observed import ObservedLeastSquares

__all__ = [
    "DenseLeastSquares",
    "LeastSquares",
    "NormalEquations",
    "ObservedLeastSquares",
    "PairProblem",
    "SliceFit",
]
