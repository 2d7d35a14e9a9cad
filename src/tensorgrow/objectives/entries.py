"""Listed entries of a tensor, in memory, on CPU or GPU: completion."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import torch

from ..contraction import Entries, RowSource, RowTree
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import NormalEquations, PairProblem
from .entry_slices import ObservedPairProblem
from .entry_solve import LocalSums, solve_core
from .entry_sums import CHUNK_BYTES, GRAM_BYTES, SliceTable

__all__ = ["ObservedLeastSquares"]

Array = Any

# Ridges from here on smooth so much that rows in single precision cost nothing.
SINGLE_ABOVE = 1e-4
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
# Numbers held while entries of the network are computed: on the CPU they stay in cache.
VALUE_ENTRIES = {"cpu": 1 << 19, "cuda": 1 << 23}
# Gathering a row and handling its entry costs about as much as this many flops.
ROW_FLOPS = 200.0
# Share of the squared norm below which the loss from rows in single precision is rounding.
CANCELLATION_SINGLE = 1e-5


class ObservedLeastSquares:
    """``||values - network at the entries||``, weighted, with a ridge.

    The ridge of a core is relative to the mean diagonal of its Gram matrices, in whatever gauge the cores
    come. A slice without entries becomes the mean of the others.

    Parameters
    ----------
    indices
        Positions, ``(n, order)`` integers on the device to compute on, all different.
    values
        The entries, of the dtype to compute in.
    dims
        Shape of the tensor.
    weights
        Weight of each entry's squared residual, positive.
    held_out
        True for entries that are not fitted; the search measures candidates on them.
    ridge
        See above.
    rows
        Number of all entries, where these are a part of them.
    """

    def __init__(
        self,
        indices: torch.Tensor,
        values: torch.Tensor,
        dims: Sequence[int],
        *,
        weights: torch.Tensor | None = None,
        held_out: torch.Tensor | None = None,
        ridge: float = 1e-2,
        rows: int | None = None,
    ) -> None:
        self.dims = tuple(dims)
        self.values = values
        self.ridge = ridge
        self.index = _Index(Entries(indices, self.dims, rows), weights, held_out)

    def _variant(self, values: torch.Tensor, ridge: float) -> ObservedLeastSquares:
        """The same entries with other values or another ridge; index tables are shared."""
        other = object.__new__(ObservedLeastSquares)
        other.dims, other.values, other.ridge, other.index = self.dims, values, ridge, self.index
        return other

    def with_ridge(self, ridge: float) -> ObservedLeastSquares:
        """The same entries with another ridge."""
        return self._variant(self.values, ridge)

    def with_everything(self) -> ObservedLeastSquares:
        """The same with nothing held out."""
        other = self._variant(self.values, self.ridge)
        other.index = self.index.with_everything()
        return other

    # -- properties ------------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        """Relative rounding error of the numbers computed with."""
        return float(torch.finfo(self.values.dtype).eps)

    @cached_property
    def norm(self) -> float:
        """Loss of the zero network on the fitted entries."""
        return self._loss_of_zero(self.index.fitted)

    @cached_property
    def validation_norm(self) -> float | None:
        """The same for the held-out entries; None when there are none."""
        held = self.index.held_out
        return self._loss_of_zero(held) if len(held) else None

    def _loss_of_zero(self, chosen: torch.Tensor) -> float:
        return self.loss_at(torch.zeros_like(self.values[chosen]), chosen)

    @property
    def num_fitted(self) -> int:
        """Entries that are fitted."""
        return len(self.index.fitted)

    @property
    def num_held_out(self) -> int:
        """Entries that are not fitted."""
        return len(self.index.held_out)

    def norm_at(self, values: torch.Tensor, chosen: torch.Tensor) -> float:
        """Weighted norm of some of the entries of `values`."""
        return self._norm(values[chosen], chosen)

    def _norm(self, picked: torch.Tensor, chosen: torch.Tensor) -> float:
        if self.index.scale is not None:
            picked = picked * self.index.scale[chosen]
        wide = torch.complex128 if picked.is_complex() else torch.float64
        return float(torch.linalg.vector_norm(picked, dtype=wide))

    @property
    def row_dtype(self) -> torch.dtype:
        """Number type of environment rows: single precision where the ridge smooths more than it rounds."""
        dtype = self.values.dtype
        return SINGLE.get(dtype, dtype) if self.ridge >= SINGLE_ABOVE else dtype

    # -- arrays ----------------------------------------------------------------------------------------

    def to_arrays(self, network: TensorNetwork) -> list[Array]:
        """Cores as tensors where the entries are."""
        return [
            c.to(device=self.values.device, dtype=self.values.dtype).resolve_conj() for c in network.cores
        ]

    def to_network(self, structure: Structure, arrays: Sequence[Array]) -> TensorNetwork:
        """Wrap arrays as a network."""
        return TensorNetwork(structure, arrays)

    # -- loss ------------------------------------------------------------------------------------------

    def loss_at(self, found: torch.Tensor, chosen: torch.Tensor) -> float:
        """Weighted norm of the residual at some of the entries, where the network is `found`."""
        return self._norm(self.values[chosen] - found, chosen)

    def predict(self, structure: Structure, arrays: Sequence[Array]) -> torch.Tensor:
        """The network at all entries, fitted and held out."""
        return self._at(self.index.entries, structure, arrays)

    def _at(self, entries: Entries, structure: Structure, arrays: Sequence[Array]) -> torch.Tensor:
        return RowTree(entries, structure, arrays).values(VALUE_ENTRIES[self.values.device.type])

    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        """Losses on the fitted and on the held-out entries."""
        found = self.predict(structure, arrays)
        fitted, held = self.index.fitted, self.index.held_out
        return self.loss_at(found[fitted], fitted), self.loss_at(found[held], held) if len(held) else None

    def loss(self, structure: Structure, arrays: Sequence[Array]) -> float:
        """Loss on the fitted entries."""
        return self.losses(structure, arrays)[0]

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        """Loss on the held-out entries; the others are not looked at."""
        held = self.index.held_out
        if not len(held):
            return None
        return self.loss_at(self._at(self.index.held_out_entries, structure, arrays), held)

    def residual(self, network: TensorNetwork) -> ObservedLeastSquares:
        """Objective whose values are what the network does not explain."""
        rest = self.values - self.predict(network.structure, self.to_arrays(network))
        return self._variant(rest, self.ridge)

    # -- node problems ---------------------------------------------------------------------------------

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        """Solve for every node once; returns the squared loss after the last."""
        tree = RowTree(self.index.entries, structure, [a.to(self.row_dtype) for a in arrays])
        squared = 0.0
        for node in tree.order:
            arrays[node], explained = self.solve(
                node, tree.environment(node), tree.edges(node), arrays[node], self.values, ridge
            )
            tree.set_core(node, arrays[node].to(self.row_dtype))
            squared = self.norm**2 - explained
        if self.row_dtype != self.values.dtype and squared < CANCELLATION_SINGLE * self.norm**2:
            return self.loss(structure, arrays) ** 2  # rows in single precision cannot tell
        return squared

    def solve(
        self,
        node: int,
        source: RowSource,
        edges: Sequence[Edge],
        core: torch.Tensor,
        values: torch.Tensor,
        numerical: float,
    ) -> tuple[torch.Tensor, float]:
        """Best core for an environment, and by how much it lowers the squared residual of `values`."""
        given = LocalSums(self.index.table(node), source, values)
        return solve_core(given, edges, core, self.ridge, numerical)

    def normal_equations(self, network: TensorNetwork, node: int) -> NormalEquations:
        """One Gram matrix per slice, bonds in the order of the core, and the right-hand side; no ridge."""
        arrays = self.to_arrays(network)
        tree = RowTree(self.index.entries, network.structure, arrays)
        source, edges = tree.environment(node), tree.edges(node)
        table = self.index.table(node)
        gram, rhs = table.sums(source, self.values, 0, table.size)
        sizes = [network.structure.ranks[e] for e in source.edges]
        back = [source.edges.index(e) for e in edges]
        k = len(back)
        gram = gram.reshape(table.size, *sizes, *sizes)
        gram = gram.permute(0, *(1 + b for b in back), *(1 + k + b for b in back))
        rhs = rhs.reshape(table.size, *sizes).permute(0, *(1 + b for b in back))
        return NormalEquations(gram.contiguous(), rhs.contiguous())

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_gradient(self, network: TensorNetwork, edge: Edge) -> Array:
        """Values contracted with all cores but two, rows for the first node and columns for the second."""
        tree = RowTree(self.index.entries, network.structure, self.to_arrays(network))
        return ObservedPairProblem(self, tree, edge, self.values).gradient

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        """Slice problems on the residual; partial contractions are shared by all of them."""
        if not edges:
            return []
        tree = RowTree(self.index.entries, structure, [a.to(self.row_dtype) for a in arrays])
        rest = self.values - self.predict(structure, arrays)
        return [ObservedPairProblem(self, tree, edge, rest) for edge in edges]

    # -- cost ------------------------------------------------------------------------------------------

    def sweep_flops(self, structure: Structure) -> float:
        """Gram matrices of all nodes, and their environment rows, which cost as much as so many flops."""
        widths = [structure.bond_product(k) for k in range(structure.num_nodes)]
        per_entry = sum(2.0 * m * m + ROW_FLOPS * (1.0 + m / 4.0) for m in widths)
        return (4.0 if self.values.is_complex() else 1.0) * self.num_fitted * per_entry

    def memory_needed(self, structure: Structure) -> int:
        """Row tensors between the nodes, a chunk of rows and the Gram matrices of one node."""
        tree = RowTree(self.index.entries, structure, [])
        entries = tree.entries_needed()
        widest = max(structure.bond_product(k) for k in range(structure.num_nodes))
        grams = max(structure.leg_dim(k) * structure.bond_product(k) ** 2 for k in range(structure.num_nodes))
        device = self.values.device.type
        held = 3 * min(8 * grams, GRAM_BYTES[device] + 8 * widest**2) + 4 * CHUNK_BYTES[device]
        return entries * self.values.element_size() + held


class _Index:
    """Positions, weights and the split into fitted and held-out entries: what variants of the data share."""

    def __init__(
        self,
        entries: Entries,
        weights: torch.Tensor | None,
        held_out: torch.Tensor | None,
    ) -> None:
        self.entries = entries
        everyone = torch.arange(entries.count, device=entries.device)
        self.fitted = everyone if held_out is None else everyone[~held_out]
        self.held_out = everyone[:0] if held_out is None else everyone[held_out]
        self.scale = None if weights is None else weights.sqrt()
        self._tables: dict[int, SliceTable] = {}
        self._parent: _Index | None = None

    @cached_property
    def held_out_entries(self) -> Entries:
        """The held-out entries alone."""
        columns = torch.stack(self.entries.columns, 1)
        return Entries(columns[self.held_out], self.entries.dims)

    def with_everything(self) -> _Index:
        """The same entries, all fitted."""
        other = _Index(self.entries, None, None)
        other.scale = self.scale
        return other

    def rescaled(self, scale: torch.Tensor) -> _Index:
        """The same entries with other roots of weights."""
        other = copy(self)
        other.scale = scale
        other._tables = {k: t.rescaled(scale) for k, t in self._tables.items()}
        other._parent = self
        return other

    def table(self, node: int) -> SliceTable:
        """Fitted entries by slice of a node; internal nodes have one slice."""
        order = len(self.entries.dims)
        key = min(node, order)
        if key not in self._tables:
            inner = key == order
            index = None if inner else self.entries.columns[key]
            size = 1 if inner else self.entries.dims[key]
            if self._parent is not None:  # sorting once is enough
                self._tables[key] = self._parent.table(key).rescaled(self.scale)
            else:
                self._tables[key] = SliceTable(self.fitted, index, size, self.scale)
        return self._tables[key]
