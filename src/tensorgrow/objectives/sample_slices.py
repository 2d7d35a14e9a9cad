"""New slices of one edge, fitted to the responses that a network leaves unexplained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algebra.linalg import solve_ridge, wide_norm
from ..contraction import Array
from ..structure import Edge, Structure
from .slices import SLICE_RIDGE, PairProblem, SliceFit, alternate, rescale, spectral_slice

if TYPE_CHECKING:
    from .samples import RegressionLeastSquares, SampleData


class SamplePairProblem(PairProblem):
    """Slices of one edge: the two cores of the same network without it, fitted to an objective's residual."""

    def __init__(
        self,
        objective: RegressionLeastSquares,
        structure: Structure,
        arrays: list[Array],
        edge: Edge,
        gradient: Array,
    ) -> None:
        self.edge = edge
        self._gradient = gradient
        self._objective = objective
        self._structure = structure.with_rank(*edge, 1)
        self._arrays = arrays

    @property
    def gradient(self) -> Array:
        return self._gradient

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        if not bool(abs(self.gradient).max() > 0):
            return SliceFit(0 * self.gradient[:, 0], 0 * self.gradient[0], 0.0)
        if right is None:
            right = spectral_slice(rescale(self.gradient))
        left, right, explained = alternate(self._improve, right, sweeps)
        if self._objective.held_out is not None:
            matrix, responses = self._problem(self._objective.held_out, 1, left)
            # The output node has a slice per response, any other node one row for all.
            own = right.reshape(responses.shape[1], -1)
            explained = wide_norm(responses) ** 2 - wide_norm(responses - matrix @ own.T) ** 2
        return SliceFit(left, right, explained)

    def _improve(self, side: int, other: Array) -> tuple[Array, float]:
        """Best slice of one end when the other end holds `other`."""
        matrix, responses = self._problem(self._objective.fitted, side, other)
        x, explained = solve_ridge(matrix, responses, self._objective.ridge, SLICE_RIDGE)
        return x.reshape(-1), explained

    def _problem(self, samples: SampleData, side: int, other: Array) -> tuple[Array, Array]:
        node, neighbour = self.edge if side == 0 else self.edge[::-1]
        cores = list(self._arrays)
        cores[neighbour] = other.reshape(self._structure.core_shape(neighbour))
        design = samples.design(self._structure, cores, node, self._objective.output)
        return self._objective.as_problem(samples, node, design)
