"""Negative log-likelihood of discrete samples under a network that stands for a distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch

from ..algebra.linalg import wide_dtype
from ..contraction import ResultPlan, dense_plan, inner_plan
from ..data.arrays import add_at
from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import Sharing, SliceLoss
from .density_slices import slice_losses

Kind = Literal["born", "nonnegative"]

# Up to this many entries the whole tensor is cheaper than a sum over it and listed entries apart.
DENSE_ENTRIES = 1 << 17
# Distinct samples that one evaluation may see; with more, training uses batches of `BATCH_SAMPLES`.
WHOLE_SAMPLES = 20_000
BATCH_SAMPLES = 2_000


class Samples:
    """Distinct samples and their weights.

    Parameters
    ----------
    rows
        Integers ``(n, order)``; equal rows are merged.
    weights
        One per row, none negative.
    dims
        Numbers of values of the legs.
    """

    def __init__(self, rows: torch.Tensor, weights: torch.Tensor, dims: tuple[int, ...]) -> None:
        self.rows, group = torch.unique(rows, dim=0, return_inverse=True)
        self.weights = torch.zeros(len(self.rows), dtype=weights.dtype, device=weights.device)
        add_at(self.weights, group, weights)
        self.total = float(weights.sum())
        self.flat = None
        if math.prod(dims) <= DENSE_ENTRIES:
            self.flat = torch.zeros_like(self.rows[:, 0])
            for k, d in enumerate(dims):
                self.flat = self.flat * d + self.rows[:, k]

    def __len__(self) -> int:
        return len(self.rows)


class DensityLoss(Sharing):
    r"""Mean negative log-likelihood, with exact normalisation.

    .. math:: p(x) = |f(x)|^2 / \sum_y |f(y)|^2 \quad\text{or}\quad p(x) = g(x) / \sum_y g(y)

    with ``f`` the network ("born"), or ``g`` the network with its cores squared entry by entry
    ("nonnegative"): free parameters, and no negative probabilities.

    Parameters
    ----------
    fitted, held_out
        Samples; held-out ones choose epochs, edges and the network to return.
    generator
        Shuffles batches.
    most_entries
        Numbers that the contraction for ``Z`` may hold at once; networks that need more are refused.
    """

    def __init__(
        self,
        fitted: Samples,
        dims: tuple[int, ...],
        kind: Kind,
        held_out: Samples | None = None,
        generator: torch.Generator | None = None,
        most_entries: float = math.inf,
    ) -> None:
        self.dims = dims
        self.kind: Kind = kind
        self.fitted = fitted
        self.held_out = held_out
        self.generator = generator
        self.most_entries = most_entries

    @property
    def is_whole(self) -> bool:
        return len(self.fitted) <= WHOLE_SAMPLES

    @property
    def holds_out(self) -> bool:
        return self.held_out is not None

    @property
    def num_batches(self) -> int:
        return 1 if self.is_whole else math.ceil(len(self.fitted) / BATCH_SAMPLES)

    def batches(self) -> Iterable[Any]:
        if self.is_whole:
            return (None,)
        order = torch.randperm(len(self.fitted), generator=self.generator).to(self.fitted.rows.device)
        return torch.split(order, BATCH_SAMPLES)

    def loss(self, network: TensorNetwork, batch: Any) -> torch.Tensor:
        return self._mean_of_batch(self._each(network, self.fitted, batch), batch)

    def mean_nll(self, values: torch.Tensor, whole: torch.Tensor, batch: Any) -> torch.Tensor:
        """The loss of a batch from the entries of a network at its samples and the partition function."""
        masses = self._masses(values)
        # Rounding in a difference of large numbers could make it less than the samples alone amount to.
        return self._mean_of_batch(self._nll(masses, torch.maximum(whole, masses.sum())), batch)

    def around(self, network: TensorNetwork, edges: Sequence[Edge]) -> Callable[[Edge], SliceLoss | None]:
        unit, norms = normalise_cores(self._base(network))
        with torch.no_grad():
            values, whole = self._read(unit, self.fitted, None)
        return slice_losses(self, unit, edges, values, whole, norms)

    def _mean_of_batch(self, each: torch.Tensor, batch: Any) -> torch.Tensor:
        weights = self.fitted.weights if batch is None else self.fitted.weights[batch]
        return (weights.to(each.dtype) * each).sum() * (self.num_batches / self.fitted.total)

    @torch.no_grad()
    def total(self, network: TensorNetwork) -> float:
        return self._mean(network, self.fitted)

    @torch.no_grad()
    def validate(self, network: TensorNetwork) -> float | None:
        return None if self.held_out is None else self._mean(network, self.held_out)

    def _mean(self, network: TensorNetwork, samples: Samples) -> float:
        each = self._each(network, samples, None)
        return float((samples.weights.to(each.dtype) * each).sum()) / samples.total

    def _each(self, network: TensorNetwork, samples: Samples, batch: torch.Tensor | None) -> torch.Tensor:
        """Negative log-likelihood of each distinct sample."""
        # The likelihood does not depend on the scale of a core, so gradients may treat scales as constants.
        unit, _ = normalise_cores(self._base(network))
        values, whole = self._read(unit, samples, batch)
        return self._nll(self._masses(values), whole)

    def _base(self, network: TensorNetwork) -> TensorNetwork:
        """The network that gives likelihoods: this one, or the one with its cores squared."""
        if self.kind == "born":
            return network
        return TensorNetwork(network.structure, [c * c for c in network.cores])

    def _read(
        self, network: TensorNetwork, samples: Samples, batch: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Entries at samples, and the partition function."""
        if samples.flat is not None:
            dense = network.to_dense().reshape(-1)
            where = samples.flat if batch is None else samples.flat[batch]
            return dense[where], self._masses(dense).sum()
        needed = _partition_plan(network, self.kind).program.peak_entries
        if needed > self.most_entries:
            raise MemoryLimitError(
                f"the sum over all values holds {needed:.3g} numbers at once for {network.structure}, but "
                f"memory allows {self.most_entries:.3g}. Restrict the edges, or give a smaller `init`"
            )
        rows = samples.rows if batch is None else samples.rows[batch]
        return network.entries_at(rows), _partition(network, self.kind)

    def _masses(self, values: torch.Tensor) -> torch.Tensor:
        """Probabilities before normalisation."""
        if self.kind == "nonnegative":
            return values
        return (values * values.conj()).real if values.is_complex() else values * values

    def _nll(self, masses: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        tiny = torch.finfo(masses.dtype).tiny
        # Samples less likely than this all cost the same: zeros have no finite logarithm.
        floor = max(1e-20 / math.prod(self.dims), 1e3 * tiny)
        return torch.log(whole.clamp_min(tiny)) - torch.log((masses + floor * whole).clamp_min(tiny))


def normalise_cores(network: TensorNetwork) -> tuple[TensorNetwork, list[float]]:
    """The network with cores of norm one, and what they were divided by."""
    with torch.no_grad():
        # In double precision, where squares of single-precision numbers neither overflow nor vanish.
        norms = [torch.linalg.vector_norm(c.to(wide_dtype(c.dtype))) for c in network.cores]
        factors = [n if 0.0 < n < math.inf else 1.0 for n in torch.stack(norms).tolist()]
    cores = [c / n for c, n in zip(network.cores, factors)]
    return TensorNetwork(network.structure, cores), factors


def log_partition(network: TensorNetwork, kind: Kind) -> torch.Tensor:
    """``log sum |f|^2``, or ``log sum f`` of a network that is not negative."""
    unit, norms = normalise_cores(network)
    log_scale = sum(map(math.log, norms))
    return torch.log(_partition(unit, kind)) + (2.0 if kind == "born" else 1.0) * log_scale


def _partition_plan(network: TensorNetwork, kind: Kind) -> ResultPlan:
    structure = network.structure
    if kind == "born":
        return inner_plan(structure, structure, network.is_complex)
    # The same graph with every leg summed over.
    bare = Structure((1,) * structure.order, dict(structure.ranks), num_nodes=structure.num_nodes)
    return dense_plan(bare, network.is_complex)


def _partition(network: TensorNetwork, kind: Kind) -> torch.Tensor:
    if kind == "born":
        arrays = [*(c.conj().resolve_conj() for c in network.cores), *network.cores]
    else:
        arrays = [c.sum(0, keepdim=True) for c in network.cores]
    value: torch.Tensor = _partition_plan(network, kind).run(arrays)
    return (value.real if value.is_complex() else value).reshape(())
