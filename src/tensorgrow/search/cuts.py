"""Lower bounds from cuts: what no network with these ranks can do.

For a set A of legs, the matricization of the represented tensor with A as rows has at most as high a rank as
the product of the network's ranks across any cut that separates A from the other legs. By Eckart and Young
the error is then at least the norm of the target's remaining singular values. So the spectra of the target
tell, before any fit, which ranks cannot be lowered at a given error. A structure in which no rank can be
lowered is *certified*: pruning it is pointless.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt
import torch

from ..algebra.forest import Forest
from ..algebra.linalg import on_host
from ..algebra.spectra import tail_norms
from ..data.devices import flops_in
from ..structure import Edge, Structure

# There are 2^(order - 1) cuts, and 2^internal ways for an internal node to lie on one side of each.
MAX_ORDER = 10
MAX_INTERNAL = 8
# Copies of the target that spectra and trees take: a matrix of it, what LAPACK overwrites, and its factors.
SVD_COPIES = 5


class CutBounds:
    """Ranks that a target needs across its cuts at one error, computed when first needed.

    Parameters
    ----------
    target
        The tensor.
    max_error
        Relative error up to which singular values may be dropped.
    seconds
        Spectra that would take longer than this in total are left out: the bounds stay valid, only weaker.
    bases
        Where the target is given in orthonormal bases: one matrix per leg, or None. Spectra do not change;
        the sizes of the legs are those of the bases.
    """

    def __init__(
        self,
        target: torch.Tensor,
        max_error: float,
        seconds: float = 0.5,
        bases: Sequence[torch.Tensor | None] | None = None,
    ) -> None:
        self.target = target
        (self._near,) = on_host([target])
        self.bases = [None] * target.dim() if bases is None else list(bases)
        self.dims = tuple(n if u is None else u.shape[0] for n, u in zip(target.shape, self.bases))
        self.max_error = max_error
        self.order = target.dim()
        self._spectra: dict[int, torch.Tensor] = {}
        self._needed: dict[tuple[int, float], int] = {}
        cuts = []
        if 2 <= self.order <= MAX_ORDER:
            # The last leg is always on the far side, so each cut is listed once.
            for mask in range(1, 1 << (self.order - 1)):
                rows = math.prod(target.shape[k] for k in range(self.order) if mask >> k & 1)
                small, large = sorted((rows, target.numel() // rows))
                cuts.append((4.0 * small * small * large, mask))
        cuts.sort()
        spent, most = 0.0, flops_in(seconds, self._near.device)
        self.cuts: list[int] = []
        for flops, mask in cuts:
            spent += flops
            if spent <= most:
                self.cuts.append(mask)
        self.is_complete = len(self.cuts) == len(cuts) > 0

    @classmethod
    def within(
        cls,
        memory_limit: float,
        target: torch.Tensor,
        max_error: float,
        bases: Sequence[torch.Tensor | None] | None = None,
    ) -> CutBounds | None:
        """Bounds where computing them stays within so many bytes; otherwise None."""
        needed = SVD_COPIES * target.numel() * target.element_size()
        return cls(target, max_error, bases=bases) if needed <= memory_limit else None

    def spectrum(self, mask: int) -> torch.Tensor:
        """Norms of what remains after keeping r singular values across a cut, relative to the target."""
        if mask not in self._spectra:
            inside = [k for k in range(self.order) if mask >> k & 1]
            outside = [k for k in range(self.order) if not mask >> k & 1]
            rows = math.prod(self.target.shape[k] for k in inside)
            matrix = self._near.permute(*inside, *outside).reshape(rows, -1)
            if rows > matrix.shape[1]:
                matrix = matrix.T
            if 2 * matrix.shape[0] < matrix.shape[1]:
                matrix = torch.linalg.qr(matrix.T, mode="r")[1]
            self._spectra[mask] = _relative_tails(torch.linalg.svdvals(matrix))
        return self._spectra[mask]

    def needed_rank(self, mask: int, max_error: float | None = None) -> int:
        """Smallest rank across a cut that keeps the error within `max_error`."""
        if mask >> (self.order - 1) & 1:
            mask ^= (1 << self.order) - 1
        allowed = self.max_error if max_error is None else max_error
        known = self._needed.get((mask, allowed))
        if known is None:
            known = self._needed[mask, allowed] = max(1, int((self.spectrum(mask) > allowed).sum()))
        return known

    @cached_property
    def apart(self) -> frozenset[Edge]:
        """Pairs of legs that no edge seems to join, as far as the cuts around legs and pairs tell.

        A leg that has less rank than its size has the product of the ranks of its edges. Of two such legs
        that nothing joins ranks multiply, while an edge between them takes its share away.
        """
        if not self.is_complete:
            return frozenset()
        free = [k for k, n in enumerate(self.target.shape) if self.needed_rank(1 << k) < n]
        found = {e for e in combinations(free, 2) if self._lost(*e) == 1.0}
        for leaf, near in permutations(range(self.order), 2):
            if self.leaf_rank(leaf, near) is not None:
                others = (k for k in range(self.order) if k not in (leaf, near))
                found |= {(min(leaf, k), max(leaf, k)) for k in others}
        return frozenset(found)

    def leaf_rank(self, leaf: int, near: int) -> int | None:
        """Rank of the edge between two legs where the first seems to be joined to no other one; else None.

        The rank of that edge divides the rank of the leaf, and its square is at least what the pair has lost.
        """
        if not self.is_complete:
            return None
        own, lost = self.needed_rank(1 << leaf), self._lost(leaf, near)
        if not (1 < own < self.target.shape[leaf] and lost > 1.0):
            return None
        is_whole = all(r * r < lost for r in range(1, own) if own % r == 0)
        is_only = all(self._lost(leaf, k) == 1.0 for k in range(self.order) if k not in (leaf, near))
        return own if is_whole and is_only else None

    def _lost(self, i: int, j: int) -> float:
        """How many times lower the rank across a cut around two legs is than the product of theirs.

        Below 1 where the size of the other legs may limit it.
        """
        product = self.needed_rank(1 << i) * self.needed_rank(1 << j)
        outside = math.prod(n for k, n in enumerate(self.target.shape) if k not in (i, j))
        return product / self.needed_rank(1 << i | 1 << j) if outside >= product else 0.0

    def leg_basis(self, leg: int) -> torch.Tensor:
        """Orthonormal columns that span what the target needs of a leg."""
        rows = self._near.movedim(leg, 0).reshape(self.target.shape[leg], -1)
        factor = torch.linalg.qr(rows.T, mode="r")[1].T if rows.shape[0] < rows.shape[1] else rows
        basis = torch.linalg.svd(factor)[0][:, : self.needed_rank(1 << leg)].to(self.target.device)
        outer = self.bases[leg]
        return basis if outer is None else torch.mm(outer.to(basis), basis)

    def reducible_edges(self, structure: Structure) -> set[Edge]:
        """Edges whose rank the bounds do not forbid to lower by one."""
        if not structure.edges or structure.num_nodes - self.order > MAX_INTERNAL:
            return set(structure.edges)
        log_ranks = _log_ranks(structure)
        saved = log_ranks - np.log(np.exp(log_ranks) - 1.0)
        left = np.ones(len(structure.edges), dtype=bool)
        pairs = ((m, c) for masks, crossing in self._crossings(structure) for m, c in zip(masks, crossing))
        for mask, crossing in pairs:
            capacity = crossing @ log_ranks
            # Lowering an edge lowers every placement of the internal nodes that it crosses.
            lowered = (capacity[:, None] - crossing * saved).min(0)
            if not (left & (lowered < capacity.min() - 1e-12)).any():
                continue  # no open edge crosses this cut at its narrowest
            left &= lowered >= math.log(self.needed_rank(mask)) - 1e-9
            if not left.any():
                break
        return {e for e, open_ in zip(structure.edges, left) if open_}

    def admits(self, structure: Structure) -> bool:
        """Whether the bounds allow this structure to reach the error at all."""
        if structure.num_nodes - self.order > MAX_INTERNAL:
            return True
        if not structure.edges:
            return all(self.needed_rank(mask) == 1 for mask in self.cuts)
        log_ranks = _log_ranks(structure)
        return all(
            capacity >= math.log(self.needed_rank(mask)) - 1e-9
            for masks, crossing in self._crossings(structure)
            for mask, capacity in zip(masks, (crossing @ log_ranks).min(1).tolist())
        )

    @cached_property
    def _near_legs(self) -> npt.NDArray[np.bool_]:
        """For every cut, which legs are on its near side. There may be more of them than bits in a number."""
        return np.array([[mask >> k & 1 for k in range(self.order)] for mask in self.cuts], dtype=bool)

    def _crossings(self, structure: Structure) -> Iterator[tuple[list[int], npt.NDArray[np.float64]]]:
        """Some cuts at a time, and for every placement of the internal nodes on their sides what crosses."""
        internal = structure.num_nodes - self.order
        cuts, placed = self._near_legs, np.arange(2**internal)[:, None] >> np.arange(internal) & 1
        i, j = np.array(structure.edges).T
        step = max(1, 4096 // len(placed))  # cuts at a time: few arrays, none of them large
        for first in range(0, len(cuts), step):
            some = cuts[first : first + step]
            sides = np.empty((len(some), len(placed), structure.num_nodes), dtype=bool)
            sides[:, :, : self.order], sides[:, :, self.order :] = some[:, None], placed
            crossing = (sides[:, :, i] != sides[:, :, j]).astype(float)
            yield self.cuts[first : first + step], crossing


class ForestBounds(CutBounds):
    """Bounds from a network without cycles that stands for the target: the cuts at its edges are known."""

    def __init__(self, forest: Forest, max_error: float) -> None:
        self.dims, self.order, self.max_error = forest.dims, len(forest.dims), max_error
        everything = (1 << self.order) - 1
        self._spectra, self._needed = {}, {}
        for mask, values in forest.copy().spectra():
            # The last leg is always on the far side. An edge of an internal node may have no leg on one side.
            near = mask ^ everything if mask >> (self.order - 1) & 1 else mask
            if near:
                self._spectra[near] = _relative_tails(values)
        self.cuts, self.is_complete = list(self._spectra), False


def _relative_tails(values: torch.Tensor) -> torch.Tensor:
    """Norms of what remains after keeping r singular values, relative to that of all."""
    tails = tail_norms(values).cpu()
    return tails / max(float(tails[0]), 1e-300)


def _log_ranks(structure: Structure) -> npt.NDArray[np.float64]:
    ranks = np.array([structure.ranks[e] for e in structure.edges], dtype=float)
    logarithms: npt.NDArray[np.float64] = np.log(ranks)
    return logarithms
