"""What is minimised."""

from .base import LeastSquares, NormalEquations, PairProblem
from .dense import DenseLeastSquares

__all__ = ["DenseLeastSquares", "LeastSquares", "NormalEquations", "PairProblem"]
