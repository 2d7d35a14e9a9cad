"""New slices of one edge, fitted to the responses that a network leaves unexplained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..algebra.linalg import leading_pair
from ..structure import Edge, Structure
from .base import SliceFit
from .responses import Samples, explained_by, ridge_solution

if TYPE_CHECKING:
    from .samples import RegressionLeastSquares

__all__ = ["RegressionPairProblem"]

Array = Any

POWER_ITERATIONS = 3
# Scoring needs only rough slices; a larger ridge keeps them tame.
SLICE_RIDGE = 1e-12


class RegressionPairProblem:
    """Slices of one edge: the two cores of the same network without that edge.

    Parameters
    ----------
    objective
        Its responses are the residual.
    """

    def __init__(
        self,
        objective: RegressionLeastSquares,
        structure: Structure,
        arrays: list[Array],
        edge: Edge,
        gradient: Array,
    ) -> None:
        self.edge = edge
        self.gradient = gradient
        self._objective = objective
        self._structure = structure.with_rank(*edge, 1)
        self._arrays = arrays

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Slices by alternating least squares, from the gradient's spectrum unless `right` is given."""
        objective = self._objective
        if not bool(abs(self.gradient).max() > 0):
            return SliceFit(0 * self.gradient[:, 0], 0 * self.gradient[0], 0.0)
        if right is None:
            right = self._spectral_start()
        left, explained = right, 0.0
        for _ in range(sweeps):
            left, _ = self._improve(0, right / _largest(right))
            left = left / _largest(left)
            right, explained = self._improve(1, left)
        if objective.held_out is not None:
            matrix, responses = self._problem(objective.held_out, 1, left)
            # The output node has a slice per response, any other node one row for all.
            own = right.reshape(responses.shape[1], -1)
            explained = explained_by(responses, matrix @ own.T)
        return SliceFit(left, right, explained)

    def _spectral_start(self) -> Array:
        # The largest row is a deterministic start with weight on the leading singular vector.
        gradient = self.gradient / _largest(self.gradient)
        norms = (gradient.conj() * gradient).real.sum(1)
        return leading_pair(gradient, POWER_ITERATIONS, gradient[int(norms.argmax())])[1]

    def _improve(self, side: int, given: Array) -> tuple[Array, float]:
        """Best slice of one end when the other end holds `given`."""
        matrix, responses = self._problem(self._objective.fitted, side, given)
        found, explained = ridge_solution(matrix, responses, self._objective.ridge, SLICE_RIDGE)
        return found.reshape(-1), explained

    def _problem(self, samples: Samples, side: int, given: Array) -> tuple[Array, Array]:
        node, other = self.edge if side == 0 else self.edge[::-1]
        cores = list(self._arrays)
        cores[other] = given.reshape(self._structure.core_shape(other))
        design = samples.design(self._structure, cores, node, self._objective.output)
        return self._objective.as_problem(samples, node, design)


def _largest(array: Array) -> float:
    return max(float(abs(array).max()), 1e-30)
