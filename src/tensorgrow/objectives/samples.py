"""Responses of samples: tensor regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from functools import cached_property

import numpy as np
import torch

from ..algebra.linalg import solve_ridge, wide_dtype, wide_norm
from ..contraction import Array, Gram, dense_plan, design_plan, pair_plan, sample_sweep_plan
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import HeldOut
from .dense import numpy_is_faster, permuted_copy
from .sample_slices import SamplePairProblem
from .slices import PairProblem

# Features up to which samples that outnumber them are replaced by as many orthogonal combinations.
COMPRESSED_FEATURES = 2048


class RegressionLeastSquares(HeldOut):
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
            self.fitted, self.held_out = SampleData(x, y, use_numpy=self.use_numpy), None
        else:
            self.fitted = SampleData(x[~held_out], y[~held_out], use_numpy=self.use_numpy)
            self.held_out = SampleData(x[held_out], y[held_out], use_numpy=self.use_numpy)

    @cached_property
    def norm(self) -> float:
        return wide_norm(self.fitted.y)

    @cached_property
    def validation_norm(self) -> float | None:
        return None if self.held_out is None else wide_norm(self.held_out.y)

    @property
    def num_fitted(self) -> int:
        return self.fitted.num_responses

    @property
    def num_held_out(self) -> int:
        return 0 if self.held_out is None else self.held_out.num_responses

    # -- loss ------------------------------------------------------------------------------------------

    def _dense(self, structure: Structure, arrays: Sequence[Array]) -> Array:
        return dense_plan(structure, self.dtype.is_complex).run(arrays)

    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        dense = self._dense(structure, arrays)
        held_out = None if self.held_out is None else wide_norm(self.held_out.residual(dense))
        return wide_norm(self.fitted.residual(dense)), held_out

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        return wide_norm(self.fitted.residual(self._dense(structure, arrays)))

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        if self.held_out is None:
            return None
        return wide_norm(self.held_out.residual(self._dense(structure, arrays)))

    def residual(self, network: TensorNetwork) -> RegressionLeastSquares:
        return self._residual(network.structure, self.to_arrays(network))

    def _residual(self, structure: Structure, arrays: Sequence[Array]) -> RegressionLeastSquares:
        dense = self._dense(structure, arrays)
        fitted, held = self.fitted, self.held_out
        return self._variant(
            fitted=fitted.with_responses(fitted.residual(dense)),
            held_out=None if held is None else held.with_responses(held.residual(dense)),
        )

    # -- node problems ---------------------------------------------------------------------------------

    def as_problem(self, samples: SampleData, node: int, design: Array) -> tuple[Array, Array]:
        """Design and responses of a node as matrices.

        The slices of the output node share one design; elsewhere every output has rows of its own.
        """
        if node == self.output:
            return design.reshape(samples.rows, -1), samples.y
        rows = samples.rows * samples.y.shape[1]
        return design.reshape(rows, -1), samples.y.reshape(rows, 1)

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        explained = 0.0

        def update(node: int, _: Gram, design: Array) -> Array:
            nonlocal explained
            matrix, responses = self.as_problem(self.fitted, node, design)
            core, explained = solve_ridge(matrix, responses, self.ridge, ridge)
            arrays[node] = core.reshape(structure.core_shape(node))
            return arrays[node]

        plan = sample_sweep_plan(structure, self.fitted.rows, self.output, self.dtype.is_complex)
        plan.run(self.fitted.in_order(plan.leg_order, plan.shape), arrays, update)
        return max(self.norm**2 - explained, 0.0)

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        rest = self._residual(structure, arrays)
        cores = list(arrays)
        plan = pair_plan(structure, tuple(edges), self.dtype.is_complex)
        target = rest.fitted.correlation().reshape(structure.leg_dims)
        return [
            SamplePairProblem(rest, structure, cores, e.edge, e.gradient) for e in plan.run([target], cores)
        ]

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
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

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        plan = sample_sweep_plan(structure, self.fitted.rows, self.output, self.dtype.is_complex)
        largest = max(3 * r * w + 3 * min(r, w) ** 2 for r, w in self._shapes(structure))
        entries = plan.program.peak_entries + self.fitted.rows * int(self.fitted.x.shape[1])
        return entries * self.dtype.itemsize + wide_dtype(self.dtype).itemsize * largest


class SampleData:
    """Samples ``(n, d_1, ..., d_p)`` with their responses ``(n, q)``.

    Where samples outnumber features, a triangular factor of both replaces them: least squares cannot tell it
    from the samples, and a sweep over it costs the same however many there are.
    """

    def __init__(self, x: torch.Tensor, y: torch.Tensor, *, use_numpy: bool) -> None:
        self.count = len(x)  # before they are replaced
        self.dims = tuple(x.shape[1:])
        self.use_numpy = use_numpy
        flat, y = _compress(x.reshape(len(x), -1), y)
        self.x: Array = flat.numpy() if use_numpy else flat
        self.y: Array = y.numpy() if use_numpy else y
        self._stored: dict[tuple[int, ...], Array] = {}

    def with_responses(self, y: Array) -> SampleData:
        other = copy(self)
        other.y = y
        return other

    @property
    def rows(self) -> int:
        """Number of samples, or of rows that replace them."""
        return int(self.x.shape[0])

    @property
    def num_responses(self) -> int:
        return self.count * int(self.y.shape[1])

    @property
    def is_complex(self) -> bool:
        return bool(np.iscomplexobj(self.x)) if self.use_numpy else bool(self.x.is_complex())

    def in_order(self, order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """Samples with their axes stored in an order, -1 for their own; the last order is cached."""
        inner = tuple(k for k in order if k < len(self.dims))
        stored = self._stored.get(inner)
        if stored is None:
            stored = permuted_copy(self.x.reshape(self.rows, *self.dims), tuple(k + 1 for k in inner))
            self._stored.clear()  # one copy at most, shared by all variants
            self._stored[inner] = stored
        return stored.reshape(shape)

    def design(self, structure: Structure, arrays: list[Array], node: int, output: int | None) -> Array:
        """Samples contracted with all cores but one, as updates of a sweep get it."""
        plan = design_plan(structure, node, self.rows, output, self.is_complex)
        samples = self.x.reshape(self.rows, *self.dims, *(1,) * (structure.num_nodes - structure.order))
        return plan.run([*arrays[:node], *arrays[node + 1 :], samples])

    def residual(self, dense: Array) -> Array:
        """Responses less those of a coefficient tensor."""
        return self.y - self.x @ dense.reshape(self.x.shape[1], -1)

    def correlation(self) -> Array:
        """``sum_n conj(X_n) y_n``, a matrix of features by outputs."""
        dual = self.x.conj().T if self.is_complex else self.x.T
        return dual @ self.y


def _compress(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    features, outputs = x.shape[1], y.shape[1]
    if len(x) <= features + outputs or features + outputs > COMPRESSED_FEATURES:
        return x.contiguous(), y.contiguous()
    wide = wide_dtype(x.dtype)
    joint = torch.cat([x.to(wide), y.to(wide)], 1)
    triangle = torch.linalg.qr(joint, mode="r")[1].to(x.dtype)
    return triangle[:, :features].contiguous(), triangle[:, features:].contiguous()
