"""Negative log-likelihood of discrete samples under a network that stands for a distribution."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch

from ..algebra.linalg import wide_dtype
from ..contraction import (
    ResultPlan,
    SumTree,
    dense_plan,
    entries_needed,
    inner_plan,
    sum_entries,
    sweep_flops,
)
from ..errors import MemoryLimitError
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import Sharing, SliceFitter, Sweeping
from .density_slices import DensityTree, Samples

Kind = Literal["born", "nonnegative"]

# Up to this many entries the whole tensor is cheaper than a sum over it and listed entries apart.
DENSE_ENTRIES = 1 << 17
# Numbers that contractions at samples may hold whatever the memory: 32 MB.
FEW_ENTRIES = 1 << 22
# Distinct samples that one evaluation may see; with more, training by gradients uses batches.
WHOLE_SAMPLES = 20_000
BATCH_SAMPLES = 2_000


class DensityLoss(Sharing, Sweeping):
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
        Numbers that all contractions may hold together; networks that need more are refused.
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

    def sweep_flops(self, structure: Structure) -> float:
        return sweep_flops(structure, rows=len(self.fitted)) + sweep_flops(
            structure, rows=1, layers=self._layers
        )

    # -- cores and slices, one after the other ---------------------------------------------------------

    @torch.no_grad()
    def sweep(self, network: TensorNetwork, deadline: float) -> tuple[TensorNetwork, float]:
        self._check_memory(network)
        tree = self._tree(network, self.fitted)[0]
        loss = math.inf
        for node in tree.rows.order:
            if time.perf_counter() > deadline and loss < math.inf:
                break
            loss = tree.improve(node)
        cores = tree.cores if self.kind == "born" else [c.sqrt() for c in tree.cores]
        return TensorNetwork(network.structure, [c.to(network.dtype) for c in cores]), loss

    @torch.no_grad()
    def around(self, network: TensorNetwork) -> SliceFitter:
        structure = network.structure
        at_rows = self._entries_at_rows(structure)
        tree, norms = self._tree(network, self.fitted)
        values, total = tree.values(), tree.sums.total()
        judged = tree if self.held_out is None else DensityTree(self.held_out, tree.cores, tree.sums)
        known = values if judged is tree else judged.values()

        @torch.no_grad()
        def fit(edge: Edge, starts: Sequence[torch.Tensor], rounds: int) -> tuple[list[torch.Tensor], float]:
            self._check_entries(tree.sums.entries(edge) + at_rows, structure)
            slices = [(s * s if self.kind == "nonnegative" else s).to(tree.cores[0]) for s in starts]
            slices = [
                s.reshape(_slice_shape(structure, *e)) / norms[e[0]]
                for s, e in zip(slices, (edge, edge[::-1]))
            ]
            for k in (0, 1) * rounds:
                ends = edge if k == 0 else edge[::-1]
                share, axes = tree.slice_share(ends, slices[1 - k], values, float(total))
                inverse = [axes.index(a) for a in range(len(axes))]
                start = slices[k].permute(inverse)
                found = share.improve(start.reshape(len(start), -1))
                slices[k] = found.reshape(start.shape).permute(axes).contiguous()
            share, axes = judged.slice_share(edge, slices[1], known, float(total))
            inverse = [axes.index(a) for a in range(len(axes))]
            left = slices[0].permute(inverse).reshape(len(slices[0]), -1)
            order, _ = judged.samples.by_value(edge[0])
            each = self._nll(self._masses(share.values(left)), share.total(left))
            measure = float((judged.samples.shares[order] * each).sum())
            sizes = [float(torch.linalg.vector_norm(s)) for s in slices]
            even = math.sqrt(sizes[0] * sizes[1])
            scaled = [s * (even / n * norms[k]) for s, n, k in zip(slices, sizes, edge) if n > 0]
            if len(scaled) < 2:  # nothing to gain: a slice vanished
                return list(starts), math.inf
            if self.kind == "nonnegative":
                scaled = [s.sqrt() for s in scaled]
            return [s.to(network.dtype) for s in scaled], measure

        return fit

    def _tree(self, network: TensorNetwork, samples: Samples) -> tuple[DensityTree, list[float]]:
        """The network with cores of norm one in double precision, and their norms."""
        unit, norms = normalise_cores(self._base(network))
        cores = [c.detach().to(wide_dtype(c.dtype)) for c in unit.cores]
        return DensityTree(samples, cores, SumTree(network.structure, cores, self._layers)), norms

    @property
    def _layers(self) -> int:
        return 2 if self.kind == "born" else 1

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
        self._check_memory(network)
        tree, _ = self._tree(network, samples)
        each = self._nll(self._masses(tree.values()), tree.sums.total())
        return float((samples.shares * each).sum())

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
        if math.prod(self.dims) <= DENSE_ENTRIES:
            dense = network.to_dense()
            rows = samples.rows if batch is None else samples.rows[batch]
            return dense[tuple(rows.T)], self._masses(dense).sum()
        self._check_memory(network)
        rows = samples.rows if batch is None else samples.rows[batch]
        return network.entries_at(rows), _partition(network, self.kind)

    def _check_memory(self, network: TensorNetwork) -> None:
        """Refuse a network whose sums over all values, with its contractions at samples, do not fit."""
        structure = network.structure
        self._check_entries(
            sum_entries(structure, self._layers) + self._entries_at_rows(structure), structure
        )

    def _entries_at_rows(self, structure: Structure) -> int:
        """Numbers that contractions at samples take beyond those that need not be counted."""
        return max(0, entries_needed(structure, len(self.fitted)) - FEW_ENTRIES)

    def _check_entries(self, needed: float, structure: Structure) -> None:
        if needed > self.most_entries:
            raise MemoryLimitError(
                f"the likelihood holds {needed:.3g} numbers at once for {structure}, but "
                f"memory allows {self.most_entries:.3g}. Restrict the edges, or give a smaller `init`"
            )

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


def _slice_shape(structure: Structure, node: int, other: int) -> tuple[int, ...]:
    """Of a core without the axis of one edge."""
    ranks = (structure.rank(node, k) for k in structure.neighbours[node] if k != other)
    return (structure.leg_dim(node), *ranks)
