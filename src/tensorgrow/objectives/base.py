"""The least-squares seam: what ALS and the greedy search ask of data, whatever its form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..network import TensorNetwork
from ..structure import Edge, Structure

__all__ = [
    "HeldOutLeastSquares",
    "LeastSquares",
    "NormalEquations",
    "PairProblem",
    "SharesPasses",
    "SliceFit",
]

Array = Any


class NormalEquations(NamedTuple):
    """Least-squares problem of one core.

    For full data ``X gram = rhs``: `gram` has the bonds of the node twice (ket, then bra) and is None for a
    network of one node. Where entries are missing there is one Gram per slice ``s`` of the dangling leg, its
    number first, bra before ket: ``gram[s] x[s] = rhs[s]``. `rhs` has the shape of the core.
    """

    gram: Array | None
    rhs: Array


class PairProblem(Protocol):
    """Best new slices for one edge, everything else fixed.

    The slices are a left one for node ``i`` and a right one for node ``j``, both as vectors in the order of
    their core's axes without the edge.
    """

    @property
    def edge(self) -> Edge:
        """The edge ``(i, j)``."""

    @property
    def gradient(self) -> Array:
        """Residual contracted with all cores but two: a matrix, left slice by right slice."""

    def fit(self, right: Array | None, sweeps: int) -> SliceFit:
        """Optimise the slices by alternating sweeps, from a right slice or from the gradient's spectrum."""


class SliceFit(NamedTuple):
    """New slices of an edge, and by how much they lower the squared loss the search goes by.

    That is the loss on held-out entries where there are some.
    """

    left: Array
    right: Array
    explained: float


class LeastSquares(Protocol):
    """Data that a network is fitted to in the least-squares sense.

    Cores travel as *arrays*, a list in whatever form the objective computes in (NumPy on small CPU problems,
    torch elsewhere).
    """

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""

    @property
    def norm(self) -> float:
        """Norm of the data: the loss of the zero network."""

    @property
    def validation_norm(self) -> float | None:
        """Norm of the data held out of the fit; None when there is none."""

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores of a network in the form this objective computes in."""

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """The inverse of `to_arrays`."""

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """``||data - network||``, computed from the residual itself."""

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """The same on entries held out of the fit; None when there are none."""

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every core once, in an order that shares work; returns the squared loss after the last.

        `ridge` is added to the unit diagonal of every scaled Gram, against rounding. The loss may cancel.
        """

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """Gram matrix and right-hand side of one node."""

    def residual(self, network: TensorNetwork) -> LeastSquares:
        """The same kind of objective for what is left to explain."""

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Data contracted with all cores but two, rows for the first node and columns for the second."""

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems of several edges at once, on the residual of the network."""

    def sweep_flops(self, structure: Structure) -> float:
        """Arithmetic of one sweep, estimated."""

    def memory_needed(self, structure: Structure) -> int:
        """Bytes one sweep and one scoring step take beyond the data itself, estimated."""


@runtime_checkable
class SharesPasses(Protocol):
    """Data that is costly to go through, so that several networks are measured at once."""

    def losses_of(self, networks: Sequence[TensorNetwork]) -> list[tuple[float, float | None]]:
        """Losses of every network on the fitted and on the held-out data, in one pass."""


class HeldOutLeastSquares(LeastSquares, Protocol):
    """Data of which a part may be held out of the fit, with a ridge that the held-out part decides on."""

    @property
    def ridge(self) -> float:
        """Weight of the penalty on every core, relative to the mean diagonal of its Gram matrices."""

    @property
    def num_fitted(self) -> int:
        """Numbers that are fitted."""

    @property
    def num_held_out(self) -> int:
        """Numbers that are not fitted."""

    def with_ridge(self, ridge: float) -> HeldOutLeastSquares:
        """The same data with another ridge."""
