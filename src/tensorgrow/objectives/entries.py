"""Listed entries of a tensor, in memory, on CPU or GPU: completion."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import torch

from ..algebra.linalg import Number, safe_norm
from ..algebra.uncertainty import as_columns
from ..contraction import Array, Entries, RowSource, RowTree, entries_needed, join_sets
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import CANCELLATION_SINGLE, HeldOut, Recording
from .entry_batches import EntryPairBatch, batch_bytes
from .entry_cores import GRAM_BYTES, gram_bytes, solve_core
from .entry_grid import LEAST_RIDGE, WIDE, grid_bytes
from .entry_slices import EntryPairProblem
from .entry_sums import KEPT_GRIDS, SliceTable, rows_bytes
from .magnitudes import interactions
from .slices import PairProblem

# Ridges from here on smooth so much that rows in single precision cost nothing.
SINGLE_ABOVE = 1e-4
SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
# Held-out entries from which their standard error says something.
ENOUGH = 25
# Levels below this quantile of the known values, or this share of their mean, count as that much, so that
# weights stay within reason.
LOW_SHARE = 0.05
# Numbers held while entries of the network are computed: on the CPU they stay in cache.
VALUE_ENTRIES = {"cpu": 1 << 19, "cuda": 1 << 23}


class ListedLeastSquares(HeldOut):
    """Least squares on listed entries, wherever these are."""

    @property
    def row_dtype(self) -> torch.dtype:
        """Number type of environment rows: single precision where the ridge smooths more than it rounds."""
        return SINGLE.get(self.dtype, self.dtype) if self.ridge >= SINGLE_ABOVE else self.dtype

    def sweep(self, structure: Structure, arrays: list[Array], ridge: float) -> float:
        return self._squared_loss(structure, arrays, float(self._solve_in_turn(structure, arrays, ridge)))

    def _squared_loss(self, structure: Structure, arrays: list[Array], explained: float) -> float:
        squared = self.norm**2 - explained
        if self.row_dtype != self.dtype and squared < CANCELLATION_SINGLE * self.norm**2:
            return self.loss(structure, arrays) ** 2  # rows in single precision cannot tell
        return squared

    @abstractmethod
    def _solve_in_turn(self, structure: Structure, arrays: list[Array], ridge: float) -> Number:
        """Solve for every node once; by how much the last core lowers the squared residual."""

    def sweep_flops(self, structure: Structure) -> float:
        """Gram matrices of all nodes, their environment rows, and what priors take to solve."""
        widths = [structure.bond_product(k) for k in range(structure.num_nodes)]
        flops = entry_flops(self.num_fitted, widths) + self.penalties.flops(structure)
        return (4.0 if self.dtype.is_complex else 1.0) * flops


class ObservedLeastSquares(ListedLeastSquares):
    """``||values - network at the entries||``, weighted, with a ridge.

    The ridge of a core is relative to the mean diagonal of its Gram matrices, in whatever gauge the cores
    come. A slice without entries becomes what its prior says, or the mean of the others.

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
        self._set(EntryIndex(Entries(indices, dims, rows), weights, held_out), values, ridge)

    def _set(self, index: EntryIndex, values: torch.Tensor, ridge: float) -> None:
        self.dims = index.entries.dims
        self.dtype, self.device = values.dtype, values.device
        self.index, self.values, self.ridge = index, values, ridge

    def with_everything(self) -> ObservedLeastSquares:
        """The same with nothing held out."""
        return self._variant(index=self.index.with_everything())

    def on(self, device: torch.device) -> ObservedLeastSquares:
        values = self.values.to(device)
        return self._variant(index=self.index.on(device), values=values, device=values.device)

    @cached_property
    def norm(self) -> float:
        return self._loss_of_zero(self.index.fitted)

    @cached_property
    def validation_norm(self) -> float | None:
        held = self.index.held_out
        return self._loss_of_zero(held) if len(held) else None

    def _loss_of_zero(self, where: torch.Tensor) -> float:
        return self.loss_at(torch.zeros_like(self.values[where]), where)

    @property
    def num_fitted(self) -> int:
        return len(self.index.fitted)

    @property
    def num_held_out(self) -> int:
        return len(self.index.held_out)

    # -- loss ------------------------------------------------------------------------------------------

    def loss_at(self, predicted: torch.Tensor, where: torch.Tensor) -> float:
        """Loss at some of the entries, where the network is `predicted`."""
        return self.norm_at(self.values[where] - predicted, where)

    def norm_at(self, values: torch.Tensor, where: torch.Tensor) -> float:
        """Weighted norm of numbers at some of the entries."""
        if self.index.scale is not None:
            values = values * self.index.scale[where]
        return safe_norm(values)

    def predict(self, structure: Structure, arrays: Sequence[Array]) -> torch.Tensor:
        """The network at all entries, fitted and held out."""
        return self._at(self.index.entries, structure, arrays)

    def _at(self, entries: Entries, structure: Structure, arrays: Sequence[Array]) -> torch.Tensor:
        return RowTree(entries, structure, arrays).values(VALUE_ENTRIES[self.values.device.type])

    def losses(self, structure: Structure, arrays: Sequence[Array]) -> tuple[float, float | None]:
        return self.losses_at(self.predict(structure, arrays))

    def losses_at(self, predicted: torch.Tensor) -> tuple[float, float | None]:
        """Losses on the fitted and on the held-out entries, where all of them are `predicted`."""
        fitted, held = self.index.fitted, self.index.held_out
        held_out = self.loss_at(predicted[held], held) if len(held) else None
        return self.loss_at(predicted[fitted], fitted), held_out

    def validation_loss(self, structure: Structure, arrays: Sequence[Array]) -> float | None:
        held = self.index.held_out
        if not len(held):
            return None
        return self.loss_at(self._at(self.index.held_out_entries, structure, arrays), held)

    def validation_gain(
        self, structure: Structure, arrays: Sequence[Array]
    ) -> tuple[float, float, float] | None:
        held = self.index.held_out
        if len(held) < ENOUGH:
            return None
        true, found = self.values[held], self._at(self.index.held_out_entries, structure, arrays)
        sizes, rest = true.abs().double().square(), (true - found).abs().double().square()
        if self.index.scale is not None:
            weights = self.index.scale[held].double().square()
            sizes, rest = weights * sizes, weights * rest
        gain, level, root = sizes - rest, float(sizes.mean()), math.sqrt(len(held))
        of_norm = 0.5 * float(sizes.std()) / root / level if level else 0.0
        return float(gain.mean()), float(gain.std()) / root, of_norm

    def held_out_pairs(
        self, structure: Structure, arrays: Sequence[Array]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        held = self.index.held_out
        if self.index.scale is not None or self.dtype.is_complex or len(held) < ENOUGH:
            return None
        found = self._at(self.index.held_out_entries, structure, arrays)
        return self.values[held].double(), found.double()

    def held_out_fibres(self) -> list[torch.Tensor]:
        found, columns = [], self.index.held_out_entries.columns
        for mode in range(len(self.dims)):
            fibre = torch.zeros_like(columns[mode])
            for k, size in enumerate(self.dims):
                if k != mode:  # numbered anew each time, as the number of all fibres may overflow
                    fibre = torch.unique(fibre * size + columns[k], return_inverse=True)[1]
            found.append(fibre)
        return found

    def levels(self, predicted: torch.Tensor) -> torch.Tensor:
        return predicted.clamp_min(self._least_level)

    @cached_property
    def _least_level(self) -> float:
        known = self.values.double()
        low = float(known.kthvalue(max(1, round(LOW_SHARE * len(known)))).values)
        return max(low, LOW_SHARE * float(known.mean()), 1e-150)

    def weighed(self, pilot: TensorNetwork, power: float) -> ObservedLeastSquares:
        levels = self.levels(self.predict(pilot.structure, self.to_arrays(pilot)).double())
        weights = (-power * levels.log()).exp()
        weights /= weights[self.index.fitted].mean()  # ridges are relative, but rounding is not
        weights[self.index.held_out] = 1.0
        return self._variant(index=self.index.with_scale(weights.sqrt().to(self.dtype)))

    def interactions(self) -> dict[Edge, float] | None:
        fitted = self.index.fitted
        columns = torch.stack([c[fitted] for c in self.index.entries.columns], 1)
        return interactions(columns, self.values[fitted], self.dims)

    def residual(self, network: TensorNetwork) -> ObservedLeastSquares:
        rest = self.values - self.predict(network.structure, self.to_arrays(network))
        return self._variant(values=rest)

    # -- node problems ---------------------------------------------------------------------------------

    def with_solved(self, network: TensorNetwork, nodes: Collection[int], ridge: float) -> TensorNetwork:
        """The network with the best cores of some nodes, one after the other, for what the rest is."""
        arrays = self.to_arrays(network)
        self._solve_in_turn(network.structure, arrays, ridge, nodes)
        return self.to_network(network.structure, arrays)

    def _solve_in_turn(
        self,
        structure: Structure,
        arrays: list[Array],
        ridge: float,
        nodes: Collection[int] | None = None,
        **how: Any,
    ) -> Number:
        dtype = self.row_dtype
        tree = RowTree(self.index.entries, structure, [a.to(dtype) for a in arrays])
        order = [k for k in tree.order if nodes is None or k in nodes]
        explained: Number = 0.0
        for node in order:
            source, edges = tree.environment(node), structure.edges_of(node)
            arrays[node], explained = self.solve(
                node, source, edges, arrays[node], ridge, explain=node == order[-1], **how
            )
            tree.set_core(node, arrays[node].to(dtype))
        return explained

    def recording(self, structure: Structure, ridge: float) -> Recording | None:
        nodes = range(structure.num_nodes)
        if any(self.penalties.of(k) is not None for k in nodes):
            return None  # iterations that the host ends
        if gram_bytes(structure, 8, self.values.device.type) >= GRAM_BYTES[self.values.device.type]:
            return None  # sums over the entries for some slices at a time

        def solve(arrays: list[Array], numbers: Sequence[Number]) -> torch.Tensor:
            (own,) = numbers
            return torch.as_tensor(self._solve_in_turn(structure, arrays, ridge, own=own, careful=False))

        return Recording(
            (id(self.index), id(self.values), self.row_dtype, self.ridge >= LEAST_RIDGE, structure, ridge),
            (self.ridge,),
            solve,
            lambda arrays, explained: self._squared_loss(structure, arrays, explained),
            lambda: self._prepare(structure),
        )

    def _prepare(self, structure: Structure) -> object:
        """Make the index tables of a sweep."""
        sets = join_sets(self.index.entries, structure)
        places, values = [], []
        for node, parts in sets.items():
            table = self.index.table(node)
            values.append(table.prepare(self.values, self.row_dtype))
            if len(parts) == 2 and structure.bond_product(node) >= WIDE:
                places += [table.places(*parts), table.places(*parts[::-1])]
        return sets, places, values

    def solve(
        self,
        node: int,
        source: RowSource,
        edges: Sequence[Edge],
        core: torch.Tensor,
        numerical: float,
        *,
        own: Number | None = None,
        **how: bool,
    ) -> tuple[torch.Tensor, Number]:
        """Best core for an environment, and by how much it lowers the squared residual.

        `own` stands in for the ridge of the objective; see `solve_core` for the others.
        """
        equations = self.index.table(node).equations(source, self.values, self.ridge)
        ridge, penalty = self.ridge if own is None else own, self.penalties.of(node)
        return solve_core(equations, edges, core, ridge, numerical, penalty, **how)

    def penalty(self, node: int, source: RowSource) -> Callable[[torch.Tensor], float] | None:
        """What ridge and prior add for a core, as a function of it; None where it has no prior."""
        known = self.penalties.of(node)
        coupling = None if known is None else known.coupling
        if coupling is None:
            return None
        table = self.index.table(node)
        unit = table.squared_norm(source) / (table.size * source.width)

        def penalty(core: torch.Tensor) -> float:
            flat = core.reshape(len(core), -1)
            size = self.ridge * float(torch.linalg.vector_norm(flat)) ** 2
            return unit * (size + float((flat.conj() * coupling.times(flat)).sum().real))

        return penalty

    def apply(
        self, node: int, source: RowSource, edges: Sequence[Edge], core: torch.Tensor, where: torch.Tensor
    ) -> torch.Tensor:
        """The network at some entries, from the environment of a node and its core."""
        moved = as_columns(core, edges, source).to(source.dtype)
        columns = self.index.entries.columns
        rows = source.rows(where)
        mine = moved if node >= len(columns) else moved.index_select(0, columns[node][where])
        return (rows * mine).sum(1)

    def precisions(
        self, structure: Structure, arrays: Sequence[Array], noise: float
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """What the fitted entries say of every parameter, and with what leverage on each entry.

        Parameters
        ----------
        noise
            Root mean square of the residuals. A parameter is known no worse than by its peers in other
            slices: where a slice has no entries, their size is all that is known.

        Returns
        -------
        precisions
            By core, of its shape: the diagonals of its Gram matrices.
        leverage
            Variance of every entry, fitted or not, over that of the noise.
        """
        tree = RowTree(self.index.entries, structure, [a.to(self.row_dtype) for a in arrays])
        found: dict[int, torch.Tensor] = {}
        everyone = self.index.with_everything()
        leverage = torch.zeros(len(self.values), dtype=torch.float64, device=self.device)
        for node in tree.order:
            source, edges = tree.environment(node), structure.edges_of(node)
            precision = self.index.table(node).diagonals(source)
            peers = as_columns(arrays[node], edges, source).abs().double().square().mean(0)
            precision += (noise**2 / peers.clamp_min(1e-300)).clamp_min(1e-300)
            known = everyone.table(node)
            leverage[known.order] += known.leverage(source, precision.reciprocal())
            sizes = [structure.rank(*e) for e in source.edges]
            order = (0, *(1 + source.edges.index(e) for e in edges))
            found[node] = precision.reshape(-1, *sizes).permute(order).contiguous()
        return tuple(found[node] for node in sorted(found)), leverage

    # -- edge problems ---------------------------------------------------------------------------------

    def pair_problems(
        self, structure: Structure, arrays: Sequence[Array], edges: Sequence[Edge]
    ) -> list[PairProblem]:
        if not edges:
            return []
        on_gpu = self.values.is_cuda
        rows = [a.to(self.row_dtype) for a in arrays]
        tree = RowTree(self.index.entries, structure, rows, keeps_layouts=on_gpu)
        rest = self.values - self.predict(structure, arrays)
        batch = None
        if on_gpu:
            for node in {k for edge in edges for k in edge}:
                self.index.table(node).keep(rest, self.row_dtype)
            batch = EntryPairBatch(self, tree, edges, rest)
        return [EntryPairProblem(self, tree, edge, rest, batch) for edge in edges]

    # -- cost ------------------------------------------------------------------------------------------

    def memory_needed(self, structure: Structure, edges: Sequence[Edge] = ()) -> int:
        count, item, device = len(self.values), self.dtype.itemsize, self.values.device.type
        rows = entries_needed(structure, count, self.index.entries.rows)
        # Gram matrices: added up, each part of the sum, and solved.
        grams = max(3 * gram_bytes(structure, item, device), self.penalties.solve_bytes(structure, item))
        held = grams + rows_bytes(structure, count, item, device) + grid_bytes(structure, count, item)
        if device != "cpu":  # values by table, sorted and in blocks, which padding may double
            held += 3 * item * count * structure.order
        if edges and device != "cpu":  # contractions in other orders of axes, and what edges share
            held += 2 * rows * item + batch_bytes(structure, edges, self.num_held_out, item)
        return index_bytes(structure, count) + rows * item + held


def entry_flops(count: int, widths: Sequence[float]) -> float:
    """Arithmetic of a sweep over entries, with environments of so many columns.

    Gathering a row and handling its entry costs about as much as 200 flops.
    """
    return count * sum(2.0 * m * m + 200.0 * (1.0 + m / 4.0) for m in widths)


def index_bytes(structure: Structure, count: int) -> int:
    """Bytes of everything but rows that `count` entries take while they are used.

    For each mode a column of indices, its entries sorted by slice, by cell and, with their weights, in
    blocks, which padding may double; for each join of the dimension tree, inside and outside, the row of
    every entry; what is fitted; predictions and residuals.
    """
    return 8 * count * ((8 + KEPT_GRIDS) * structure.order + 2 * (structure.num_nodes - 1) + 6)


class EntryIndex:
    """Positions, weights and the split into fitted and held-out entries: what variants of the data share."""

    def __init__(self, entries: Entries, weights: torch.Tensor | None, held_out: torch.Tensor | None) -> None:
        self.entries = entries
        everyone = torch.arange(entries.count, device=entries.device)
        self.fitted = everyone if held_out is None else everyone[~held_out]
        self.held_out = everyone[:0] if held_out is None else everyone[held_out]
        self.scale = None if weights is None else weights.sqrt()
        self._tables: dict[int, SliceTable] = {}
        self._parent: EntryIndex | None = None

    @cached_property
    def held_out_entries(self) -> Entries:
        columns = torch.stack(self.entries.columns, 1)
        return Entries(columns[self.held_out], self.entries.dims)

    def with_everything(self) -> EntryIndex:
        other = EntryIndex(self.entries, None, None)
        other.scale = self.scale
        return other

    def on(self, device: torch.device) -> EntryIndex:
        """The same on another device."""
        columns = torch.stack(self.entries.columns, 1).to(device)
        other = EntryIndex(Entries(columns, self.entries.dims, self.entries.rows), None, None)
        other.fitted, other.held_out = self.fitted.to(device), self.held_out.to(device)
        other.scale = None if self.scale is None else self.scale.to(device)
        return other

    def with_scale(self, scale: torch.Tensor) -> EntryIndex:
        """The same entries with other roots of weights."""
        other = copy(self)
        other.scale = scale
        other._tables = {k: t.with_scale(scale) for k, t in self._tables.items()}
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
                self._tables[key] = self._parent.table(key).with_scale(self.scale)
            else:
                self._tables[key] = SliceTable(self.fitted, index, size, self.scale)
        return self._tables[key]
