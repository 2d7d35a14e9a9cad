"""What is minimised."""

from .base import LeastSquares, NormalEquations, PairProblem, SliceFit
from .dense import DenseLeastSquares

__all__ = ["DenseLeastSquares", "LeastSquares", "NormalEquations", "PairProblem", "SliceFit"]
