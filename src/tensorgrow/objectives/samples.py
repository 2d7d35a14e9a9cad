"""Responses of samples: tensor regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..contraction import dense_plan, pair_plan, sample_sweep_plan
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem
from .dense import numpy_is_faster
from .responses import Samples, norm_of, ridge_solution
from .sample_slices import RegressionPairProblem

__all__ = ["RegressionLeastSquares"]

Array = Any


class RegressionLeastSquares:
    """``||y - <X, network>||`` over samples, with a ridge.

    The ridge of a core is relative to the mean squared norm of the columns of its design matrix, in whatever
    gauge the cores come.

    Parameters
    ----------
    x
        Samples, ``(n, d_1, ..., d_p)``, of the dtype and on the device to compute in.
    y
        Responses, ``(n,)``; or ``(n, q)``: then the network has a last leg of size ``q``.
    held_out
        True for samples that are not fitted; the search measures candidates on them.
    ridge
        See above.
    use_numpy
        Compute with NumPy instead of torch; by default on the CPU when there is little data or one thread.
    """

    def __init__(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        held_out: torch.Tensor | None = None,
        ridge: float = 1e-2,
        use_numpy: bool | None = None,
    ) -> None:
        self.ridge = ridge
        outputs = tuple(y.shape[1:])
        self.dims = (*x.shape[1:], *outputs)
        self.output = len(self.dims) - 1 if outputs else None
        self.dtype, self.device = x.dtype, x.device
        self.use_numpy = numpy_is_faster(x) if use_numpy is None else use_numpy
        y = y.reshape(len(y), -1)
        if held_out is None or not bool(held_out.any()):
            self.fitted, self.held_out = Samples(x, y, use_numpy=self.use_numpy), None
        else:
            self.fitted = Samples(x[~held_out], y[~held_out], use_numpy=self.use_numpy)
            self.held_out = Samples(x[held_out], y[held_out], use_numpy=self.use_numpy)

    def _variant(self, fitted: Samples, held_out: Samples | None, ridge: float) -> RegressionLeastSquares:
        """The same samples with other responses or another ridge."""
        other = object.__new__(RegressionLeastSquares)
        other.__dict__ |= {k: v for k, v in self.__dict__.items() if k not in ("norm", "validation_norm")}
        other.fitted, other.held_out, other.ridge = fitted, held_out, ridge
        return other

    def with_ridge(self, ridge: float) -> RegressionLeastSquares:
        """The same samples with another ridge."""
        return self._variant(self.fitted, self.held_out, ridge)

    # -- properties ------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return float(torch.finfo(self.dtype).eps)

    @cached_property
    def norm(self) -> float:
        """Norm of the fitted responses."""
        return norm_of(self.fitted.y)

    @cached_property
    def validation_norm(self) -> float | None:
        """Norm of the held-out responses; None when there are none."""
        return None if self.held_out is None else norm_of(self.held_out.y)

    @property
    def num_fitted(self) -> int:
        """Responses that are fitted."""
        return self.fitted.count * int(self.fitted.y.shape[1])

    @property
    def num_held_out(self) -> int:
        """Responses that are not fitted."""
        return 0 if self.held_out is None else self.held_out.count * int(self.held_out.y.shape[1])

    # -- arrays ----------------------------------------------------------------------------------------

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores as NumPy arrays, or as tensors where the samples are."""
        cores = [c.to(device=self.device, dtype=self.dtype).resolve_conj() for c in network.cores]
        return [c.resolve_neg().numpy() for c in cores] if self.use_numpy else cores

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """Wrap arrays as a network."""
        if not self.use_numpy:
            return TensorNetwork(structure, arrays)
        return TensorNetwork(structure, [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays])

    # -- loss ------------------------------------------------------------------------------------------

    def _dense(self, structure: Structure, arrays: Sequence[Array]) -> Array:
        return dense_plan(structure, self.dtype.is_complex).run(list(arrays), self.dims)

    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        """Norms of the residual on the fitted and on the held-out samples."""
        dense = self._dense(structure, arrays)
        held = None if self.held_out is None else norm_of(self.held_out.residual(dense))
        return norm_of(self.fitted.residual(dense)), held

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """Norm of the residual on the fitted samples."""
        return norm_of(self.fitted.residual(self._dense(structure, arrays)))

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """Norm of the residual on the held-out samples."""
        if self.held_out is None:
            return None
        return norm_of(self.held_out.residual(self._dense(structure, arrays)))

    def residual(self, network: TensorNetwork) -> RegressionLeastSquares:
        """Objective whose responses are what the network does not explain."""
        return self._residual(network.structure, self.to_arrays(network))

    def _residual(self, structure: Structure, arrays: Sequence[Array]) -> RegressionLeastSquares:
        dense = self._dense(structure, arrays)
        fitted, held = (
            None if s is None else s.with_responses(s.residual(dense)) for s in (self.fitted, self.held_out)
        )
        assert fitted is not None
        return self._variant(fitted, held, self.ridge)

    # -- node problems ---------------------------------------------------------------------------------

    def as_problem(self, samples: Samples, node: int, design: Array) -> tuple[Array, Array]:
        """Design and responses of a node as matrices.

        The slices of the output node share one design; elsewhere every output has rows of its own.
        """
        if node == self.output:
            return design.reshape(samples.rows, -1), samples.y
        rows = samples.rows * samples.y.shape[1]
        return design.reshape(rows, -1), samples.y.reshape(rows, 1)

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once; partial contractions are shared along a dimension tree."""
        explained = 0.0

        def update(node: int, design: Array) -> Array:
            nonlocal explained
            matrix, responses = self.as_problem(self.fitted, node, design)
            core, explained = ridge_solution(matrix, responses, self.ridge, ridge)
            arrays[node] = core.reshape(structure.core_shape(node))
            return arrays[node]

        plan = sample_sweep_plan(structure, self.fitted.rows, self.output, self.dtype.is_complex)
        plan.run(self.fitted.in_order(structure, plan.leg_order), arrays, update)
        return max(self.norm**2 - explained, 0.0)

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """Gram matrix and right-hand side of one node, without the ridge.

        The Gram has the axes of the core twice, bra before ket, after one axis of size 1; for the output node
        whose slices share it, the axes are those of a slice.
        """
        structure = network.structure
        design = self.fitted.design(structure, self.to_arrays(network), node, self.output)
        matrix, responses = self.as_problem(self.fitted, node, design)
        dual = matrix.conj().T
        shape = structure.core_shape(node)
        axes = shape[1:] if node == self.output else shape
        rhs = (dual @ responses).T.reshape(shape)
        return NormalEquations((dual @ matrix).reshape(1, *axes, *axes), rhs)

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Responses contracted with the samples and all cores but two."""
        return self._gradients(network.structure, self.to_arrays(network), [edge])[0]

    def _gradients(self, structure: Structure, arrays: list[Array], edges: Sequence[Edge]) -> list[Array]:
        plan = pair_plan(structure, tuple(edges), self.dtype.is_complex)
        target = self.fitted.correlation(self.fitted.y)
        shape = tuple(structure.leg_dim(k) for k in range(structure.num_nodes))
        return [found.gradient for found in plan.run(target.reshape(shape), arrays)]

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems on the residual, which is formed once."""
        if not edges:
            return []
        rest = self._residual(structure, arrays)
        cores = list(arrays)
        gradients = rest._gradients(structure, cores, edges)
        return [RegressionPairProblem(rest, structure, cores, e, g) for e, g in zip(edges, gradients)]

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        """Contractions of the samples, and the Gram matrices of all nodes."""
        plan = sample_sweep_plan(structure, self.fitted.rows, self.output, self.dtype.is_complex)
        factor = 4.0 if self.dtype.is_complex else 1.0
        return plan.program.flops + sum(
            factor * rows * width * min(rows, width) for rows, width in self._shapes(structure)
        )

    def _shapes(self, structure: Structure) -> list[tuple[int, int]]:
        """Rows and columns of every node's design."""
        rows, outputs = self.fitted.rows, int(self.fitted.y.shape[1])
        return [
            (rows, structure.bond_product(k))
            if k == self.output
            else (rows * outputs, math.prod(structure.core_shape(k)))
            for k in range(structure.num_nodes)
        ]

    def memory_needed(self, structure: Structure) -> int:
        """Peak of a sweep, a reordered copy of the samples, and copies and squares of the largest design."""
        plan = sample_sweep_plan(structure, self.fitted.rows, self.output, self.dtype.is_complex)
        size = torch.empty((), dtype=self.dtype).element_size()
        largest = max(3 * r * w + 3 * min(r, w) ** 2 for r, w in self._shapes(structure))
        return (plan.program.peak_entries + self.fitted.rows * int(self.fitted.x.shape[1])) * size + (
            (16 if self.dtype.is_complex else 8) * largest
        )
