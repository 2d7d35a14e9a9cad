"""What solvers and searches need from data of any form.

`LeastSquares` is what alternating least squares and the scoring of edges use, `HeldOut` adds held-out data
and a ridge, and `Differentiable` is any loss that gradients can be taken of.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch

from ..algebra.linalg import Number, contributions_to, explained_by, is_single, solve_for_core
from ..contraction import Array, Gram, Update, whole_gram
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .penalties import NO_PRIORS, Penalties
from .slices import PairProblem, as_torch

# Below this share of the squared norm, a loss computed as ``||T||^2 - <X, rhs>`` is mostly rounding, in
# double and in single precision; there the residual itself is formed.
CANCELLATION = 1e-9
CANCELLATION_SINGLE = 1e-5

SliceFitter = Callable[[Edge, Sequence[torch.Tensor], int], tuple[list[torch.Tensor], float]]
"""``fit(edge, starts, rounds)``: the flat new slices of an edge, and the measure of the network with them."""


@dataclass(frozen=True)
class Recording:
    """A sweep that the host need not watch, so that a GPU can be told once and repeat it.

    Attributes
    ----------
    key
        Of all that decides on a sweep, besides the cores and `numbers`.
    numbers
        What may differ from one repetition to the next.
    solve
        ``solve(cores, numbers)`` replaces all cores in place. By how much the last one lowers the squared
        loss; NaN where a factorisation failed.
    squared_loss
        ``squared_loss(cores, explained)`` after a sweep, as `LeastSquares.sweep` returns it.
    prepare
        Make everything that sweeps share, which must not become a part of what is recorded; what it returns
        must stay in memory, beside what `solve` refers to.
    """

    key: Hashable
    numbers: tuple[float, ...]
    solve: Callable[[list[Array], Sequence[Number]], torch.Tensor]
    squared_loss: Callable[[list[Array], float], float]
    prepare: Callable[[], object] = tuple


class LeastSquares(ABC):
    """Data that a network is fitted to in the least-squares sense.

    Cores travel as *arrays*, a list in whatever form the objective computes in: NumPy on small CPU problems,
    torch elsewhere.
    """

    dims: tuple[int, ...]  # shape of the tensor
    dtype: torch.dtype  # of the numbers computed with
    device: torch.device | str = "cpu"
    use_numpy: bool = False  # whether arrays are NumPy arrays

    def is_rounded(self, structure: Structure) -> bool:
        """Whether sweeps compute in less precision than the data has, so that only `loss` is exact."""
        return False

    def in_full(self) -> LeastSquares:
        """The same in the precision of the data."""
        return self

    def on(self, device: torch.device) -> LeastSquares:
        """The same on another device; itself where its data must stay where it is."""
        return self

    def least_ridge(self, structure: Structure) -> float:
        """What sweeps add to the unit diagonal of every scaled Gram matrix at least."""
        return 0.0

    @property
    @abstractmethod
    def norm(self) -> float:
        """Norm of the data: the loss of the zero network."""

    @property
    def validation_norm(self) -> float | None:
        """Norm of the data held out of the fit; None when there is none."""
        return None

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return float(torch.finfo(self.dtype).eps)

    def nonnegative(self, structure: Structure) -> frozenset[int]:
        """Nodes of a network whose cores must have no negative entries."""
        return frozenset()

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores of a network in the form this objective computes in."""
        cores = [
            c.to(device=self.device, dtype=self.dtype).resolve_conj().resolve_neg() for c in network.cores
        ]
        return [c.numpy() for c in cores] if self.use_numpy else cores

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """The inverse of `to_arrays`."""
        return TensorNetwork(structure, [as_torch(a) for a in arrays])

    @abstractmethod
    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """``||data - network||``, computed from the residual itself."""

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """`loss` on data held out of the fit; None when there is none."""
        return None

    @abstractmethod
    def residual(self, network: TensorNetwork) -> LeastSquares:
        """The objective for what the network leaves to explain."""

    @abstractmethod
    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every core once, in place and in an order that shares work.

        `ridge` is added to the unit diagonal of every scaled Gram matrix, against rounding. Returns the
        squared loss after the last core, which may suffer from cancellation.
        """

    def recording(self, structure: Structure, ridge: float) -> Recording | None:
        """`sweep` as something to record; None where the host decides on something in between."""
        return None

    @abstractmethod
    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Problems of the new slices of several edges, on the residual of the network."""

    def screen(self, structure: Structure, edges: list[Edge]) -> list[Edge]:
        """Those of some edges that are worth scoring: all of them, unless something cheap tells."""
        return edges

    @abstractmethod
    def sweep_flops(self, structure: Structure) -> float:
        """Estimated arithmetic of one sweep."""

    @abstractmethod
    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        """Estimated bytes that a sweep, and scoring `edges` in one go, take beyond the data itself."""

    def _variant(self, **changes: Any) -> Self:
        """A copy with some attributes replaced and no cached properties."""
        other = copy(self)
        for kind in type(self).__mro__:
            for name, member in vars(kind).items():
                if isinstance(member, cached_property):
                    other.__dict__.pop(name, None)
        other.__dict__.update(changes)
        return other


class NodeVisits(LeastSquares):
    """Least squares on a full tensor: every node has one Gram matrix, whatever its slice."""

    @abstractmethod
    def visit(self, structure: Structure, arrays: list[Array], update: Update) -> None:
        """Hand the normal equations of every node to `update`, which returns its new core."""

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        solver = InTurn(max(ridge, self.least_ridge(structure)))
        self.visit(structure, arrays, solver)
        squared = self.norm**2 - float(solver.explained)
        if squared < float(solver.rounding):
            return self.loss(structure, arrays) ** 2
        return squared

    def _node_grams(self, structure: Structure, arrays: list[Array]) -> dict[int, Array]:
        """Gram of every node's environment, from a sweep that changes nothing."""
        grams: dict[int, Array] = {}

        def note(node: int, gram: Gram, rhs: Array) -> Array:
            grams[node] = whole_gram(gram)
            return arrays[node]

        self.visit(structure, list(arrays), note)
        return grams


class InTurn:
    """Solves for one core after the other."""

    def __init__(self, ridge: float, *, careful: bool = True) -> None:
        self.ridge, self.careful = ridge, careful
        self._last: tuple[Gram, Array, Array] | None = None

    def __call__(self, node: int, gram: Gram, rhs: Array) -> Array:
        core = solve_for_core(gram, rhs, self.ridge, careful=self.careful)
        self._last = gram, rhs, core
        return core

    @property
    def explained(self) -> Number:
        """By how much the last core lowers the squared loss."""
        return 0.0 if self._last is None else explained_by(*self._last)

    @property
    def rounding(self) -> Number:
        """Squared losses below this are mostly rounding, because the entries of the last core cancel.

        Doubles have digits enough for all cores that come up.
        """
        if self._last is None or not is_single(self._last[2].dtype):
            return -math.inf
        gram, _, core = self._last
        return CANCELLATION_SINGLE * contributions_to(gram, core)


class SharesPasses(ABC):
    """Ability of data that is costly to read: several networks are measured in one pass."""

    @abstractmethod
    def losses_of(self, networks: Sequence[TensorNetwork]) -> list[tuple[float, float | None]]:
        """Losses of every network on the fitted and on the held-out data."""


class HeldOut(LeastSquares):
    """Data of which a part may be held out of the fit, with a ridge that the held-out part decides on."""

    ridge: float  # weight of the penalty on every core, relative to the mean diagonal of its Gram matrices
    penalties: Penalties = NO_PRIORS  # what priors add

    @property
    @abstractmethod
    def num_fitted(self) -> int:
        """How many numbers are fitted."""

    @property
    @abstractmethod
    def num_held_out(self) -> int:
        """How many numbers are held out."""

    def on(self, device: torch.device) -> HeldOut:
        return self

    def nonnegative(self, structure: Structure) -> frozenset[int]:
        return self.penalties.nonnegative_nodes(structure)

    def with_ridge(self, ridge: float) -> Self:
        """The same data with another ridge."""
        return self._variant(ridge=ridge)

    def with_penalties(self, penalties: Penalties) -> Self:
        """The same data with other priors, or others of their strengths."""
        return self._variant(penalties=penalties)

    @abstractmethod
    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        """Losses on the fitted and on the held-out data; None where nothing is held out."""

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        return self.losses(structure, arrays)[0]

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        return self.losses(structure, arrays)[1] if self.num_held_out else None

    def validation_gain(
        self, structure: Structure, arrays: Sequence[Array]
    ) -> tuple[float, float, float] | None:
        """How much smaller squared residuals of held-out numbers are than without a network.

        Their mean difference, its standard error, and that of the norm of the numbers relative to it; None
        where this data cannot tell.
        """
        return None

    def held_out_pairs(
        self, structure: Structure, arrays: Sequence[Array]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Held-out numbers and what a network says of them; None where weights make no sense."""
        return None

    def held_out_fibres(self) -> list[torch.Tensor]:
        """For every mode: which fibre along it each held-out number lies in, numbered from 0."""
        raise NotImplementedError

    def levels(self, predicted: torch.Tensor) -> torch.Tensor:
        """Predictions as levels that a power can be taken of: none much below the data."""
        raise NotImplementedError

    def weighed(self, pilot: TensorNetwork, power: float) -> Self:
        """The same data, fitted with weights ``level**-power``; held-out numbers count as they do here.

        The levels are what `pilot` says of the data.
        """
        raise NotImplementedError

    def interactions(self) -> dict[Edge, float] | None:
        """By how many standard errors pairs of modes interact; None where this data cannot tell."""
        return None


class Differentiable(ABC):
    """A loss that gradients can be taken of."""

    dims: tuple[int, ...]  # dangling legs of the network

    @property
    def is_whole(self) -> bool:
        """Whether one evaluation sees all the data, so that line searches make sense."""
        return False

    @property
    def holds_out(self) -> bool:
        """Whether `validate` returns numbers."""
        return False

    @property
    def num_batches(self) -> int | None:
        """Batches of one epoch, where that is known."""
        return None

    @abstractmethod
    def batches(self) -> Iterable[Any]:
        """The batches of one epoch."""

    @abstractmethod
    def loss(self, network: TensorNetwork, batch: Any) -> torch.Tensor:
        """Scalar loss on a batch, differentiable with respect to the cores."""

    @abstractmethod
    def total(self, network: TensorNetwork) -> float:
        """Mean loss over all the fitted data."""

    def validate(self, network: TensorNetwork) -> float | None:
        """Score on held-out data, lower is better; None when there is none."""
        return None


class Sharing(Differentiable):
    """A loss that fits the new slices of candidate edges and contracts what they leave frozen only once."""

    @abstractmethod
    def around(self, network: TensorNetwork) -> SliceFitter:
        """What fits new slices to this network, from given ones, and measures the outcome.

        The measure is `validate` of the grown network, or `total` where nothing is held out.
        """


class Sweeping(Differentiable):
    """A loss that can be lowered one core after the other, without gradients of the whole network."""

    @abstractmethod
    def sweep(self, network: TensorNetwork, deadline: float) -> tuple[TensorNetwork, float]:
        """Every core improved once, and the loss after the last; it never rises.

        After `deadline`, a value of ``time.perf_counter()``, the other cores stay as they are.
        """

    @abstractmethod
    def sweep_flops(self, structure: Structure) -> float:
        """What a sweep takes, estimated, to compare structures."""


class Screening(Differentiable):
    """A loss that knows which edges are worth growing without training each of them."""

    @abstractmethod
    def screen(
        self,
        network: TensorNetwork,
        edges: Sequence[Edge],
        max_parameters: int | None,
        generator: torch.Generator,
    ) -> tuple[list[Edge], TensorNetwork]:
        """The most promising of the edges, best first, and the network with these grown by one rank each.

        No edges and the unchanged network where none of them can grow.
        """
