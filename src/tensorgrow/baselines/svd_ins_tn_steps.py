"""The alternating steps of SVDinsTN: cores by regularised least squares, diagonals with soft thresholds."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch

from ..network import TensorNetwork
from ..objectives import DenseLeastSquares
from ..structure import Edge, Structure
from .common import Setting

__all__ = ["Descent", "sparse_diagonal"]

# A first sweep may take so many flops: a complete graph of high rank is out of reach.
MAX_FLOPS = 1e9
# Passes of coordinate descent over a diagonal; it has a handful of entries.
PASSES = 20
# Sweeps before the penalties begin: random cores have nearly nothing in common with the data.
SETTLING = 5
TINY = 1e-300


@dataclass
class Factors:
    """Cores, and a diagonal for every edge; the network has each diagonal in the core of its first node."""

    structure: Structure
    cores: list[torch.Tensor]
    diagonals: dict[Edge, torch.Tensor]

    def scale(self, node: int, without: int | None = None) -> torch.Tensor:
        """What the core of a node is multiplied with, over its bonds."""
        shape = self.structure.core_shape(node)[1:]
        scale = self.cores[node].new_ones(shape)
        for j in self.structure.neighbours[node]:
            if j > node and j != without:
                view = [1] * len(shape)
                axis = self.structure.axis(node, j) - 1
                view[axis] = shape[axis]
                scale = scale * self.diagonals[(node, j)].reshape(view)
        return scale

    def arrays(self) -> list[torch.Tensor]:
        """Cores of the network."""
        return [core * self.scale(k) for k, core in enumerate(self.cores)]

    def normalise(self) -> None:
        """Slices of about unit norm on both sides of every edge; the diagonal takes their norms."""
        for (i, j), diagonal in self.diagonals.items():
            for node, other in ((i, j), (j, i)):
                axis = self.structure.axis(node, other)
                core = self.cores[node]
                axes = [a for a in range(core.dim()) if a != axis]
                norms = core.square().sum(axes).sqrt().clamp_min(TINY)
                view = [1] * core.dim()
                view[axis] = -1
                self.cores[node] = core / norms.reshape(view)
                diagonal = diagonal * norms
            self.diagonals[(i, j)] = diagonal

    def _strongest(self, edge: Edge) -> torch.Tensor:
        """Number of the component with the largest slices."""
        size = torch.ones_like(self.diagonals[edge])
        for node, other in (edge, edge[::-1]):
            axis = self.structure.axis(node, other)
            size = size * self.cores[node].movedim(axis, 0).reshape(len(size), -1).square().sum(1)
        return size.argmax().reshape(1)

    def cut(self) -> bool:
        """Drop components whose diagonal entry is zero; an edge keeps one. Whether anything changed."""
        kept: dict[Edge, torch.Tensor] = {}
        for edge, diagonal in self.diagonals.items():
            alive = (diagonal != 0).nonzero()[:, 0]
            if not len(alive):
                # What is left is rank 1, whose scale is the cores' business: a zero would kill them all.
                alive = self._strongest(edge)
                self.diagonals[edge] = torch.ones_like(diagonal)
            kept[edge] = alive
        if all(len(kept[e]) == len(d) for e, d in self.diagonals.items()):
            return False
        for (i, j), alive in kept.items():
            diagonal = self.diagonals[(i, j)][alive]
            for node, other in ((i, j), (j, i)):
                core = self.cores[node].index_select(self.structure.axis(node, other), alive)
                # An edge of rank 1 is no edge: its only entry goes into the first core.
                self.cores[node] = core * diagonal if len(alive) == 1 and node == i else core
            self.diagonals[(i, j)] = diagonal
        ranks = {e: len(a) for e, a in kept.items()}
        self.structure = Structure(self.structure.dims, ranks)
        self.cores = [c.reshape(s) for c, s in zip(self.cores, self.structure.core_shapes)]
        self.diagonals = {e: d for e, d in self.diagonals.items() if len(d) > 1}
        return True


@dataclass(frozen=True)
class Descent:
    """The alternating steps of one run."""

    ridge: float
    proximal: float
    warm_up: int
    iterations: int
    tolerance: float
    deadline: float

    def run(self, setting: Setting, max_rank: int, sparsity: float) -> tuple[TensorNetwork, float]:
        """Network and relative error for one sparsity."""
        norm = float(torch.linalg.vector_norm(setting.target))
        objective = DenseLeastSquares(setting.target / norm, use_numpy=False)
        factors = start(objective, setting, max_rank)
        previous, calm = math.inf, 0
        for sweep in range(self.iterations):
            share = min(1.0, max(0.0, (sweep + 1 - SETTLING) / (self.warm_up + 1)))
            self._sweep(objective, factors, sparsity * share)
            is_cut = factors.cut()
            loss = objective.loss(factors.structure, factors.arrays())
            same = abs(previous - loss) <= self.tolerance * loss and not is_cut and share == 1.0
            calm = calm + 1 if same else 0
            previous = loss
            if calm >= 3 or time.perf_counter() > self.deadline:
                break
        cores = factors.arrays()
        return TensorNetwork(factors.structure, [cores[0] * norm, *cores[1:]]), previous

    def _sweep(self, objective: DenseLeastSquares, factors: Factors, sparsity: float) -> None:
        def update(node: int, gram: Any, rhs: Any) -> Any:
            if gram is None:
                factors.cores[node] = rhs
                return rhs
            shape = rhs.shape
            right = rhs.reshape(shape[0], -1)
            matrix = gram.reshape(right.shape[1], right.shape[1])
            factors.cores[node] = self._core(factors, node, matrix, right, sparsity).reshape(shape)
            for j in factors.structure.neighbours[node]:
                if j > node:
                    self._diagonal(factors, (node, j), matrix, right, sparsity)
            return factors.cores[node] * factors.scale(node)

        objective.visit(factors.structure, factors.arrays(), update)

    def _core(
        self, factors: Factors, node: int, gram: torch.Tensor, rhs: torch.Tensor, sparsity: float
    ) -> torch.Tensor:
        """Regularised least squares for a core, its diagonals fixed."""
        scale = factors.scale(node).reshape(-1)
        system = gram * scale * scale[:, None]
        near = self.proximal * float(system.diagonal().mean()) + TINY
        system.diagonal().add_(self.ridge * sparsity + near)
        right = rhs * scale + near * factors.cores[node].reshape(rhs.shape)
        solution: torch.Tensor = torch.linalg.solve(system, right.T).T
        return solution

    def _diagonal(
        self, factors: Factors, edge: Edge, gram: torch.Tensor, rhs: torch.Tensor, sparsity: float
    ) -> None:
        """Soft-thresholded least squares for a diagonal, everything else fixed."""
        node, other = edge
        structure = factors.structure
        axis = structure.axis(node, other)
        core = factors.cores[node] * factors.scale(node, without=other)
        shape = core.shape
        rank = shape[axis]
        moved = core.movedim(axis, 0).reshape(rank, -1)  # component by (leg, other bonds)
        bonds = shape[1:]
        both = gram.reshape(*bonds, *bonds).movedim((axis - 1, len(bonds) + axis - 1), (0, 1))
        rest = math.prod(bonds) // rank
        both = both.reshape(rank, rank, rest, rest)
        slices = moved.reshape(rank, shape[0], rest)
        quadratic = torch.einsum("rla,rsab,slb->rs", slices, both, slices)
        linear = (moved * rhs.reshape(shape).movedim(axis, 0).reshape(rank, -1)).sum(1)
        factors.diagonals[edge] = sparse_diagonal(quadratic, linear, factors.diagonals[edge], sparsity)


def sparse_diagonal(
    quadratic: torch.Tensor, linear: torch.Tensor, start: torch.Tensor, sparsity: float
) -> torch.Tensor:
    """Minimise ``s Q s / 2 - q s + sparsity * |s|_1`` by coordinate descent."""
    q, b, s = quadratic.tolist(), linear.tolist(), start.tolist()
    for _ in range(PASSES):
        for r, row in enumerate(q):
            if row[r] <= TINY:
                s[r] = 0.0
                continue
            rest = b[r] - sum(v * t for k, (v, t) in enumerate(zip(row, s)) if k != r)
            s[r] = math.copysign(max(abs(rest) - sparsity, 0.0), rest) / row[r]
    return start.new_tensor(s)


# -- the start -----------------------------------------------------------------------------------------


def start(objective: DenseLeastSquares, setting: Setting, max_rank: int) -> Factors:
    """Random cores, and diagonals from the spectra of pairs of modes, as many as can be contracted."""
    spectra = dict(_pair_spectra(setting.target, max_rank))
    cuts = [0.0, *sorted({float(v) for s in spectra.values() for v in s[1:]})]

    def fits(number: int) -> bool:
        found = _above(setting.dims, spectra, cuts[number])
        small = found.num_parameters <= found.num_entries
        return small and objective.sweep_flops(found) < MAX_FLOPS

    # The last cut leaves no edges, which always fits.
    number = bisect_left(range(len(cuts) - 1), True, key=fits)
    structure = _above(setting.dims, spectra, cuts[number])
    generator = torch.Generator().manual_seed(int(setting.rng.integers(2**62)))
    target = setting.target
    network = TensorNetwork.random(
        structure, random_state=generator, dtype=target.dtype, device=target.device
    )
    factors = Factors(
        structure, list(network.cores), {e: network.cores[0].new_ones(r) for e, r in structure.ranks.items()}
    )
    factors.normalise()
    factors.diagonals = {e: spectra[e][: structure.rank(*e)].to(target) for e in structure.edges}
    # Started at a norm of almost 0, everything would vanish under the penalties.
    norm = TensorNetwork(structure, factors.arrays()).norm()
    factors.cores = [c / max(norm, TINY) ** (1.0 / len(factors.cores)) for c in factors.cores]
    return factors


def _pair_spectra(x: torch.Tensor, max_rank: int) -> Iterator[tuple[Edge, torch.Tensor]]:
    """Leading singular values of the mean over all modes but two, relative to the first."""
    for i, j in combinations(range(x.dim()), 2):
        others = [k for k in range(x.dim()) if k not in (i, j)]
        values = torch.linalg.svdvals((x.mean(others) if others else x).double())[:max_rank]
        yield (i, j), (values / values[0].clamp_min(TINY)).clamp_min(1e-3)


def _above(dims: tuple[int, ...], spectra: dict[Edge, torch.Tensor], share: float) -> Structure:
    return Structure(dims, {e: max(1, int((s > share).sum())) for e, s in spectra.items()})
