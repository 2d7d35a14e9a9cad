"""SVDinsTN: a complete graph with sparse diagonal factors on its edges (Zheng et al., CVPR 2024)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Unpack

import torch

from ..contraction import whole_gram
from ..errors import OptionError
from ..network import TensorNetwork
from ..objectives import DenseLeastSquares
from ..results import Result
from ..search import Context
from ..structure import Edge, Structure
from .common import DenseKeywords, Setting, explore
from .exploration import Outcome, Proposal, Strategy
from .inner_fit import Fit

# Sparsity weights that are tried, strongest first, where the user sets none.
LADDER: tuple[float, ...] = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
# What takes the place of a norm or a diagonal entry that is zero.
TINY = 1e-300


def svd_ins_tn(
    x: Any,
    *,
    max_rank: int = 4,
    sparsity: float | Iterable[float] | None = None,
    ridge: float = 1.0,
    proximal: float = 1e-4,
    warm_up: int = 50,
    iterations: int = 600,
    tolerance: float = 1e-4,
    refinements: int = 2,
    polish: bool = True,
    fit: Fit = "als",
    **common: Unpack[DenseKeywords],
) -> Result:
    """Start with every edge and let sparse diagonal factors cut ranks and edges, in one run per sparsity.

    Minimises ``1/2 ||x - TN(G, S)||^2 + mu/2 sum ||G_k||^2 + sum lambda_ij ||S_ij||_1`` in turn: cores by
    regularised least squares with a proximal term, diagonals by coordinate descent with soft thresholds.
    Zeros in a diagonal are cut at once.

    Parameters
    ----------
    max_rank
        Largest rank of an edge at the start.
    sparsity
        ``lambda_ij``, the same for all edges, for a tensor of norm 1. Several values are run one after the
        other; by default a falling ladder, until the error is reached or the network outgrows
        `max_parameters`.
    ridge
        ``mu`` relative to ``lambda``.
    proximal
        Weight of the squared change of a core, relative to the mean diagonal of its normal equations.
    warm_up
        Sweeps over which ``mu`` and ``lambda`` rise to their values: at full strength they would kill the
        random cores of the start, all of them.
    iterations, tolerance
        Sweeps at most, and the relative change of the loss below which they end.
    refinements
        Once the error is reached, how often the weight is bisected between the last that did not reach it and
        the one that did.
    polish
        Fit the structure once more without penalties (`fit`): they bias the error.

    Notes
    -----
    Diagonals start as the leading singular values of the mean of `x` over all modes but two, cores at random.
    Where the complete graph would be too costly to contract, small singular values are dropped first, which
    removes edges before the start. Real tensors only.
    """
    if max_rank < 2 or iterations < 1 or min(ridge, proximal, tolerance, warm_up, refinements) < 0:
        raise OptionError("max_rank must be at least 2, iterations at least 1, and no other number negative")
    weights = LADDER
    if sparsity is not None:
        weights = tuple(sparsity) if isinstance(sparsity, Iterable) else (sparsity,)
        if not weights or not all(0 < v < 1 for v in weights):
            raise OptionError(f"sparsity={sparsity!r} must be numbers between 0 and 1")

    def strategy(setting: Setting) -> Strategy:
        if setting.target.is_complex():
            raise OptionError(
                "svd_ins_tn is for real tensors; split real and imaginary part along a new mode"
            )
        descent = Descent(ridge, proximal, warm_up, iterations, tolerance, setting.context)
        goal, most = setting.goal, setting.goal.max_parameters

        def attempt(weight: float) -> Generator[Sequence[Proposal | Outcome], list[Outcome], Outcome]:
            outcome = setting.outcome(descent.run(setting, max_rank, weight))
            yield [outcome]
            if polish and outcome.structure.edges:
                outcome = (yield [Proposal(outcome.structure, outcome.network)])[0]
            return outcome

        strong: float | None = None
        for weight in weights:
            outcome = yield from attempt(weight)
            if goal.is_reached(outcome):
                break
            if most is not None and outcome.num_parameters > most:
                return
            strong = weight
        else:
            return
        for _ in range(refinements if strong is not None else 0):
            assert strong is not None
            middle = math.sqrt(strong * weight)
            if goal.is_reached((yield from attempt(middle))):
                weight = middle
            else:
                strong = middle

    return explore(x, "svd_ins_tn", strategy, common, fit=fit, needs_goal=sparsity is None)


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
                axis = self.structure.axis(node, j) - 1
                scale = scale * _along(axis, self.diagonals[(node, j)], len(shape))
        return scale

    def arrays(self) -> list[torch.Tensor]:
        return [core * self.scale(k) for k, core in enumerate(self.cores)]

    def normalise(self) -> None:
        """Slices of about unit norm on both sides of every edge; the diagonal takes their norms."""
        for (i, j), diagonal in self.diagonals.items():
            for node, other in ((i, j), (j, i)):
                axis = self.structure.axis(node, other)
                core = self.cores[node]
                axes = [a for a in range(core.dim()) if a != axis]
                norms = core.square().sum(axes).sqrt().clamp_min(TINY)
                self.cores[node] = core / _along(axis, norms, core.dim())
                diagonal = diagonal * norms
            self.diagonals[(i, j)] = diagonal

    def _strongest(self, edge: Edge) -> torch.Tensor:
        """Index of the component with the largest slices."""
        size = torch.ones_like(self.diagonals[edge])
        for node, other in (edge, edge[::-1]):
            axis = self.structure.axis(node, other)
            size = size * self.cores[node].movedim(axis, 0).reshape(len(size), -1).square().sum(1)
        return size.argmax().reshape(1)

    def cut(self) -> bool:
        """Drop components whose diagonal entry is zero; an edge keeps one. Whether anything changed."""
        living: dict[Edge, torch.Tensor] = {}
        for edge, diagonal in self.diagonals.items():
            alive = (diagonal != 0).nonzero()[:, 0]
            if not len(alive):
                # What is left has rank 1, and its scale lies in the cores: a zero would kill them all.
                alive = self._strongest(edge)
                self.diagonals[edge] = torch.ones_like(diagonal)
            living[edge] = alive
        if all(len(living[e]) == len(d) for e, d in self.diagonals.items()):
            return False
        for (i, j), alive in living.items():
            diagonal = self.diagonals[(i, j)][alive]
            for node, other in ((i, j), (j, i)):
                core = self.cores[node].index_select(self.structure.axis(node, other), alive)
                # An edge of rank 1 is no edge: its only entry goes into the first core.
                self.cores[node] = core * diagonal if len(alive) == 1 and node == i else core
            self.diagonals[(i, j)] = diagonal
        ranks = {e: len(a) for e, a in living.items()}
        self.structure = Structure(self.structure.dims, ranks)
        self.cores = [c.reshape(s) for c, s in zip(self.cores, self.structure.core_shapes)]
        self.diagonals = {e: d for e, d in self.diagonals.items() if len(d) > 1}
        return True


@dataclass(frozen=True)
class Descent:
    """The alternating steps of one run: cores by least squares, diagonals with soft thresholds."""

    ridge: float
    proximal: float
    warm_up: int
    iterations: int
    tolerance: float
    context: Context

    def run(self, setting: Setting, max_rank: int, sparsity: float) -> TensorNetwork:
        norm = float(torch.linalg.vector_norm(setting.target))
        objective = DenseLeastSquares(setting.target / norm, use_numpy=False)
        factors = _start(objective, setting, max_rank)
        previous, calm = math.inf, 0
        for sweep in range(self.iterations):
            # No penalties in the first sweeps: random cores have next to nothing in common with the data.
            share = min(1.0, max(0.0, (sweep + 1 - 5) / (self.warm_up + 1)))
            self._sweep(objective, factors, sparsity * share)
            is_cut = factors.cut()
            loss = objective.loss(factors.structure, factors.arrays())
            same = abs(previous - loss) <= self.tolerance * loss and not is_cut and share == 1.0
            calm = calm + 1 if same else 0
            previous = loss
            if calm >= 3 or self.context.is_out_of_time:
                break
        cores = factors.arrays()
        return TensorNetwork(factors.structure, [cores[0] * norm, *cores[1:]])

    def _sweep(self, objective: DenseLeastSquares, factors: Factors, sparsity: float) -> None:
        def update(node: int, gram: Any, rhs: Any) -> Any:
            if gram is None:
                factors.cores[node] = rhs
                return rhs
            shape = rhs.shape
            right = rhs.reshape(shape[0], -1)
            matrix = whole_gram(gram).reshape(right.shape[1], right.shape[1])
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
        axis = factors.structure.axis(node, other)
        core = factors.cores[node] * factors.scale(node, without=other)
        leg, *bonds = core.shape
        rank = core.shape[axis]
        slices = core.movedim(axis, 0).reshape(rank, leg, -1)  # component, leg, all other bonds
        rest = slices.shape[2]
        both = gram.reshape(*bonds, *bonds).movedim((axis - 1, len(bonds) + axis - 1), (0, 1))
        quadratic = torch.einsum("rla,rsab,slb->rs", slices, both.reshape(rank, rank, rest, rest), slices)
        linear = (slices.flatten(1) * rhs.reshape(core.shape).movedim(axis, 0).reshape(rank, -1)).sum(1)
        factors.diagonals[edge] = solve_sparse_diagonal(quadratic, linear, factors.diagonals[edge], sparsity)


def _along(axis: int, vector: torch.Tensor, order: int) -> torch.Tensor:
    """A vector as a tensor of this order, to be broadcast over all axes but one."""
    return vector.reshape([-1 if k == axis else 1 for k in range(order)])


def solve_sparse_diagonal(
    quadratic: torch.Tensor, linear: torch.Tensor, start: torch.Tensor, sparsity: float
) -> torch.Tensor:
    """Minimise ``s Q s / 2 - q s + sparsity * |s|_1`` by coordinate descent."""
    q, b, s = quadratic.tolist(), linear.tolist(), start.tolist()
    for _ in range(20):  # passes; a diagonal has a handful of entries
        for r, row in enumerate(q):
            if row[r] <= TINY:
                s[r] = 0.0
                continue
            rest = b[r] - sum(v * t for k, (v, t) in enumerate(zip(row, s)) if k != r)
            s[r] = math.copysign(max(abs(rest) - sparsity, 0.0), rest) / row[r]
    return start.new_tensor(s)


# -- the start -----------------------------------------------------------------------------------------


def _start(objective: DenseLeastSquares, setting: Setting, max_rank: int) -> Factors:
    """Random cores, and diagonals from the spectra of pairs of modes, as many as can be contracted."""
    spectra = dict(_pair_spectra(setting.target, max_rank))
    cuts = [0.0, *sorted({float(v) for s in spectra.values() for v in s[1:]})]

    def structure_above(cut: float) -> Structure:
        return Structure(setting.dims, {e: max(1, int((s > cut).sum())) for e, s in spectra.items()})

    def fits(cut: float) -> bool:
        structure = structure_above(cut)
        is_small = structure.num_parameters <= structure.num_entries
        return is_small and objective.sweep_flops(structure) < 1e9  # flops that the first sweep may take

    # The last cut leaves no edges, which always fits.
    structure = structure_above(cuts[bisect_left(cuts[:-1], True, key=fits)])
    generator = torch.Generator().manual_seed(int(setting.rng.integers(2**62)))
    target = setting.target
    like: dict[str, Any] = {"dtype": target.dtype, "device": target.device}
    network = TensorNetwork.random(structure, random_state=generator, **like)
    ones = {e: target.new_ones(r) for e, r in structure.ranks.items()}
    factors = Factors(structure, list(network.cores), ones)
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
