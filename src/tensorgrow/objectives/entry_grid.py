"""Products of environments with cores where entries are missing, and wide cores solved for by iteration.

A Gram matrix of width ``m`` takes ``m`` multiplications per number of the environment, the product of the
environment with a core takes one. Where few of all combinations of indices are missing per listed entry, that
product is cheapest for all of them at once, as two matrix products.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from ..algebra.linalg import Number, wide_dtype
from ..contraction import RowSource
from ..structure import Structure

if TYPE_CHECKING:
    from .entry_sums import SliceTable

# Combinations per entry up to which computing all of them beats gathering two rows for each entry: one number
# of a gathered row costs as much as 100 flops, and both take about as many numbers.
DENSE_FACTOR = 32
# Ridges from which on iterations converge soon: below, directions that the entries leave open decide.
LEAST_RIDGE = 1e-4
# Entries per unknown of a slice from which on the Gram matrix of all combinations is near that of a slice.
LEAST_ENTRIES = 2.0
# Iterations stop when what they could still gain is this share of the squared residual: a hundredth of what
# sweeps are stopped by. A tenth of it takes a round more in each solve, and led to the same error on Einstein
# (0.12012 and 0.12011 at 4,992 parameters). After so many rounds the equations are solved directly.
ENOUGH, ROUNDS = 1e-5, 25
# Rounds that are made where the host does not look, and columns from which on a GPU makes them: on an H200
# Gram matrices of 1,452 columns and their factors take 16 ms, of 396 columns about as long as the rounds.
UNWATCHED_ROUNDS, WIDE = 6, 400
# What a number that is moved costs, a number of all combinations per round beside the products, and an entry;
# in flops of products in single precision, 90 a nanosecond on one core.
GATHER, COMBINATION, ENTRY = 50.0, 150.0, 1500.0
# Rounds that costs are estimated with at most.
USUAL_ROUNDS = 5
# Width of a core up to which rounds over the entries alone cost more than Gram matrices, of 16 * (16 + 450)
# flops for each entry.
NARROW = 16


def grid_where_cheap(table: SliceTable, source: RowSource, ridge: float, direct: float) -> CoreGrid | None:
    """The grid of a core if iterations on it take fewer flops than `direct`; None where they may stall."""
    if ridge < LEAST_RIDGE or not _is_dense(table, source):
        return None
    if len(table.order) < LEAST_ENTRIES * source.width * len(table.filled):
        return None
    costs = [_flops(table, source, fixed) for fixed in (0, 1)]
    is_cheap = min(costs) < direct if table.device.type == "cpu" else source.width >= WIDE
    return CoreGrid(table, source, costs.index(min(costs))) if is_cheap else None


def grid_for_product(table: SliceTable, source: RowSource, direct: float) -> CoreGrid | None:
    """The grid of a core if one product on it takes fewer flops than `direct`; None elsewhere.

    On a GPU wherever there are few combinations: it takes fewer kernels than gathered rows.
    """
    if not _is_dense(table, source):
        return None
    costs = [_round_flops(table, source, fixed) / 2.0 for fixed in (0, 1)]
    is_cheap = table.device.type != "cpu" or min(costs) < direct
    return CoreGrid(table, source, costs.index(min(costs))) if is_cheap else None


def _is_dense(table: SliceTable, source: RowSource) -> bool:
    """Whether the environment has two parts, with few combinations of their rows per entry."""
    combinations = table.size * math.prod(part.rows.count for part in source.parts)
    return len(source.parts) > 1 and combinations <= DENSE_FACTOR * len(table.order)


def _flops(table: SliceTable, source: RowSource, fixed: int) -> float:
    """Of a solve in which the core meets the part `fixed` first."""
    theirs, width = source.parts[1 - fixed].rows.count, source.width
    shared = source.parts[0].size(source.shared)
    inner = shared * (width // source.parts[fixed].size(source.free[fixed]))
    once = 2.0 * theirs * inner**2 + 2.0 * (shared * width) ** 2 + width**3
    # Of entries at random, each round leaves about this share of what was to gain.
    share = width * len(table.filled) / len(table.order)
    rounds = next((k for k in range(1, USUAL_ROUNDS) if share ** (k - 1) <= ENOUGH), USUAL_ROUNDS)
    return once + rounds * (_round_flops(table, source, fixed) + 4.0 * table.size * width**2)


def _round_flops(table: SliceTable, source: RowSource, fixed: int) -> float:
    """Of a product with the environment, and one with its adjoint."""
    mine, theirs = (source.parts[k].rows.count for k in (fixed, 1 - fixed))
    outer = source.parts[fixed].size(source.free[fixed])
    inner = source.parts[0].size(source.shared) * (source.width // outer)
    products = 4.0 * theirs * inner + COMBINATION * theirs + inner * (4.0 * outer + 4.0 * GATHER)
    return table.size * mine * products + ENTRY * len(table.order)


def grid_bytes(structure: Structure, count: int, item: int) -> int:
    """Bytes that iterations for a core hold at most, beside its environment, with numbers of `item` bytes.

    Numbers for all combinations, and what they come from; for every entry, where it is, and the residual.
    None where all cores are so narrow that a solve takes less than the rounds over the entries alone.
    """
    if max(structure.bond_product(k) for k in range(structure.num_nodes)) <= NARROW:
        return 0
    return 2 * item * min(math.prod(structure.leg_dims), DENSE_FACTOR * count) + 64 * count


class CoreGrid:
    """The network at the fitted entries as a linear function of one core, by products over all combinations.

    A row of the environment is ``A_i B_j``; the network at entry ``(s, i, j)`` is ``<X_s B_j^T, A_i>``.

    Parameters
    ----------
    table
        The fitted entries by slice of the core.
    source
        The environment, of two parts.
    fixed
        The part that the core meets first, ``B``.
    """

    def __init__(self, table: SliceTable, source: RowSource, fixed: int) -> None:
        self.table, self._fixed = table, fixed
        moving, part = source.part(1 - fixed).parts[0], source.parts[fixed]
        self.shared, self.outer = part.size(source.shared), part.size(source.free[fixed])
        self.inner = source.width // self.outer
        self._moving = moving.array.reshape(len(moving.array), -1)  # (rows of A, shared * inner)
        factors = part.matrices(source.shared, source.free[fixed])
        self._factors = factors.reshape(-1, self.outer)  # (rows of B * shared, outer)
        self._rows, self._others = len(factors), len(self._moving)
        self._where = table.places(part.rows, moving.rows)
        self._held: torch.Tensor | None = None

    # -- the map and its adjoint -----------------------------------------------------------------------

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """The network at the entries in the table's order, from the core's slices ``(d, m)``."""
        d, outer, inner = len(x), self.outer, self.inner
        sizes, order = ((d, inner, outer), (2, 0, 1)) if self._fixed else ((d, outer, inner), (1, 0, 2))
        slices = x.to(self._moving.dtype).reshape(sizes).permute(order).reshape(outer, d * inner)
        met = (self._factors @ slices).reshape(-1, d, inner).transpose(0, 1)  # slices first
        everywhere = met.reshape(-1, self._moving.shape[1]) @ self._moving.T
        return everywhere.reshape(-1).index_select(0, self._where)

    def adjoint(self, values: torch.Tensor) -> torch.Tensor:
        """``E^H values`` of every slice, ``(d, m)``, in double precision."""
        d, outer, inner = self.table.size, self.outer, self.inner
        met = self._everywhere(values.to(self._moving.dtype)).reshape(-1, self._others) @ self._moving.conj()
        flat = met.reshape(d, -1, inner).transpose(0, 1).reshape(-1, d * inner)
        slices = (
            (self._factors.mH @ flat)
            .reshape(outer, d, inner)
            .permute((1, 2, 0) if self._fixed else (1, 0, 2))
        )
        return slices.reshape(d, -1).to(wide_dtype(slices.dtype))

    def _everywhere(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers of the entries among all combinations, the rest zeros: no place has two entries.

        Valid until the next call.
        """
        if self._held is None or self._held.dtype != values.dtype:  # what is no entry stays zero
            self._held = values.new_zeros(self.table.size * self._rows * self._others)
        return self._held.index_copy_(0, self._where, values)

    def mean_gram(self) -> torch.Tensor:
        """About the mean Gram matrix of the slices: as if rows of both parts were combined at random.

        Exact where all combinations are listed, or as many of each.
        """
        scale = self.table.scale
        weights = (
            torch.ones_like(self._where, dtype=torch.float64) if scale is None else scale.double().square()
        )
        pairs = self._everywhere(weights).reshape(-1, self._rows, self._others).sum(0)
        mine, theirs = pairs.sum(1), pairs.sum(0)
        total = (mine.sum() * self.table.size).clamp_min(1e-300)
        scaled = self._moving * theirs.sqrt().to(self._moving.dtype)[:, None]
        c, w, f = self.shared, self.inner, self.outer
        first = (scaled.mH @ scaled).reshape(c, w, c, w).permute(1, 3, 0, 2).reshape(w * w, c * c)
        factors = self._factors.reshape(-1, c, f) * mine.sqrt().to(self._factors.dtype)[:, None, None]
        flat = factors.reshape(len(factors), c * f)
        second = (flat.mH @ flat).reshape(c, f, c, f).permute(0, 2, 1, 3).reshape(c * c, f * f)
        order = (0, 2, 1, 3) if self._fixed else (2, 0, 3, 1)
        gram = (first @ second).reshape(w, w, f, f).permute(order).reshape(w * f, w * f)
        return gram.to(wide_dtype(gram.dtype)) / total

    def squared_norm(self) -> torch.Tensor:
        """Sum of the squares of the environment's rows at all entries."""
        a = self._moving.reshape(self._others, self.shared, self.inner)
        b = self._factors.reshape(self._rows, self.shared, self.outer)
        squares = ((b @ b.mH).reshape(self._rows, -1) @ (a @ a.mH).reshape(self._others, -1).T).real
        each = squares.reshape(-1)[self._where.remainder(self._rows * self._others)].double()
        scale = self.table.scale
        return (each if scale is None else each * scale.double().square()).sum()

    # -- the solve -------------------------------------------------------------------------------------

    def solve(
        self,
        values: torch.Tensor,
        start: torch.Tensor,
        ridge: Number,
        *,
        careful: bool = True,
        explain: bool = True,
    ) -> tuple[torch.Tensor, Number] | None:
        """Best slices by conjugate gradients, each slice for itself, and by how much they lower the residual.

        None where they have not converged.

        Parameters
        ----------
        values
            Of all entries.
        start
            Slices to start from, ``(d, m)``.
        ridge
            Relative to the mean diagonal of the Gram matrices.
        careful
            Whether the host looks after every round. Without that a GPU is not waited for: a fixed number of
            rounds is made, each of which lowers the residual, and the slices are NaN where the
            preconditioner has no Cholesky factor.
        explain
            Whether it matters by how much; otherwise that is 0.
        """
        gram = self.mean_gram()
        weight: Number = ridge * self.squared_norm() / start.numel() + 1e-300
        weight = float(weight) if careful else weight
        gram.diagonal().add_(weight)
        factor, info = torch.linalg.cholesky_ex(gram)
        if careful and int(info):
            return None
        scale = self.table.scale
        y = values[self.table.order]
        y = y if scale is None else y * scale
        x = start.to(gram.dtype)
        rest = y - self._weighted(x).to(y.dtype)
        r = self._adjoint(rest) - weight * x
        if not careful:
            x = self._unwatched(factor, x, r, torch.as_tensor(weight).to(x.dtype))
            x = torch.where(info == 0, x, math.nan)
            if not explain:
                return x, 0.0
            return x, _square(y) - _square(y - self._weighted(x).to(y.dtype))
        z = torch.cholesky_solve(r.mT, factor).mT
        p, gain = z, (r.conj() * z).sum(1).real
        size = float(_square(rest) + weight * _square(x))  # what is minimised
        for _ in range(ROUNDS):
            if not math.isfinite(size) or float(gain.sum()) <= ENOUGH * size:
                break
            change = self._weighted(p).to(y.dtype)
            q = self._adjoint(change) + weight * p
            step = gain / (p.conj() * q).sum(1).real.clamp_min(1e-300)
            x, r = x + step[:, None] * p, r - step[:, None] * q
            rest = rest - step[self.table.slices].to(y.dtype) * change
            size -= float((step * gain).sum())
            z = torch.cholesky_solve(r.mT, factor).mT
            before, gain = gain, (r.conj() * z).sum(1).real
            p = z + (gain / before.clamp_min(1e-300))[:, None] * p
        else:
            return None
        return (x, _square(y) - _square(rest)) if math.isfinite(size) else None

    def _unwatched(
        self, factor: torch.Tensor, x: torch.Tensor, r: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """A fixed number of rounds from slices `x` of gradient `r`, in as few kernels as they take.

        What is left at the entries is not followed: whoever asks computes it once in the end.
        """
        # Triangular solves of a few columns are slow on a GPU, and may wait: the factor is inverted once.
        one = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        inverse = torch.linalg.solve_triangular(factor, one, upper=False)
        left, right = inverse.mT, inverse.conj()
        p = z = (r @ left) @ right
        gain = _dots(r, z)
        least = 1e-12 * gain  # slices stay where they are from there on: it is rounding
        is_open = gain > least
        for k in range(UNWATCHED_ROUNDS):
            q = torch.addcmul(self._adjoint(self._weighted(p)), p, weight)
            step = torch.where(is_open, gain / _dots(p, q).clamp_min(1e-300), 0.0).to(x.dtype)
            x = torch.addcmul(x, p, step)
            if k == UNWATCHED_ROUNDS - 1:
                break
            r = torch.addcmul(r, q, step, value=-1)
            z = (r @ left) @ right
            before, gain = gain, _dots(r, z)
            is_open = gain > least
            share = torch.where(is_open, gain / before.clamp_min(1e-300), 0.0)
            p = torch.addcmul(z, p, share.to(x.dtype))
        return x

    def _weighted(self, x: torch.Tensor) -> torch.Tensor:
        found = self.times(x)
        return found if self.table.scale is None else found * self.table.scale.to(found.dtype)

    def _adjoint(self, values: torch.Tensor) -> torch.Tensor:
        scale = self.table.scale
        return self.adjoint(values if scale is None else values * scale)


def _dots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Real parts of the inner products of rows, in one kernel: ``(d, 1)``."""
    return torch.bmm(a.conj()[:, None], b[:, :, None])[:, :, 0].real


def _square(values: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=wide_dtype(values.dtype)).real
    return norm.square()
