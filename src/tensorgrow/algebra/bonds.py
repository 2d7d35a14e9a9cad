"""Edges on a cycle with fewer components, everything else fixed.

Without cycles singular values tell what an edge needs (`algebra/forest`). On a cycle they do not: in a sum of
equal networks every component of an edge weighs as much as its copies, though all but one could go. So the
edge is opened: with ``T = sum_a X[a, a]``, the best ``T ~ sum_ab X[a, b] (U V^T)[a, b]`` is a least-squares
problem for two small matrices, which are then multiplied into the two ends of the edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..contraction.cache import cached
from ..contraction.program import ResultPlan
from ..contraction.sweeps import EnvironmentBuilder
from ..data.devices import flops_in
from ..structure import Edge, Structure
from .linalg import wide_dtype
from .moves import Move
from .spectra import multiply_axis


@cached
def bond_plan(structure: Structure, edge: Edge, is_complex: bool) -> ResultPlan:
    """Inner products of a network with itself, an edge being open at both ends: ket ends, then bra ends.

    Takes the cores with the axis of the edge last at its two nodes.
    """
    i, j = edge
    one, two = structure.num_nodes, structure.num_nodes + 1
    ranks = {e: r for e, r in structure.ranks.items() if e != edge}
    ranks |= {(i, one): structure.rank(i, j), (j, two): structure.rank(i, j)}
    opened = Structure(structure.dims, ranks, num_nodes=two + 1)
    builder = EnvironmentBuilder(opened, is_complex=is_complex)
    nodes = tuple(range(structure.num_nodes))
    bonds = builder.legs.edge[i, one], builder.legs.edge[j, two]
    gram = builder.absorb_gram((), nodes)
    result = builder.program.arrange(gram, (*bonds, *builder.legs.bra(bonds)))
    return ResultPlan(builder.program.finish([result]), tuple(builder.cores[: len(nodes)]), result)


def thin(structure: Structure, cores: Sequence[torch.Tensor], allowed: float) -> Move:
    """Lower the ranks of edges, each by an error of about `allowed` of the norm.

    Inner products tell errors above about 1e-8, so that a fit of what comes back may have to follow.
    """
    wide = [c.to(wide_dtype(c.dtype)) for c in cores]
    size = math.inf
    while structure.num_parameters < size:  # what goes at one edge may free another one
        size = structure.num_parameters
        structure, wide = _thin_once(structure, wide, allowed)
    return structure, [c.to(cores[0].dtype) for c in wide]


def _thin_once(structure: Structure, cores: Sequence[torch.Tensor], allowed: float) -> Move:
    wide = list(cores)
    waiting = list(structure.edges)
    while waiting:
        plans = {e: bond_plan(structure, e, wide[0].is_complex()) for e in waiting}
        # The cheapest first: what goes there makes others cheaper.
        edge = min(waiting, key=lambda e: plans[e].program.flops * structure.rank(*e) ** 2)
        waiting.remove(edge)
        # Environments with more entries take a GB with all copies, and more arithmetic takes seconds.
        if structure.rank(*edge) ** 4 > 1 << 24 or plans[edge].program.flops > flops_in(1.0, wide[0].device):
            continue
        i, j = edge
        axes = structure.axis(i, j), structure.axis(j, i)
        opened = list(wide)
        for k, axis in zip(edge, axes):
            opened[k] = wide[k].movedim(axis, -1)
        found = _fewer(plans[edge].run(opened), allowed)
        if found is None:
            continue
        for k, axis, matrix in zip(edge, axes, found):
            core = multiply_axis(wide[k], matrix, axis)
            wide[k] = core if matrix.shape[1] > 1 else core.squeeze(axis)
        structure = structure.with_rank(i, j, found[0].shape[1])
    return structure, wide


def _fewer(environment: torch.Tensor, allowed: float) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Matrices ``U`` and ``V`` with the fewest columns; None where all are needed.

    `environment` has axes a, b of the ket and a', b' of the bra.
    """
    size = environment.shape[0]
    norm = float(torch.einsum("aabb->", environment).real)
    if not norm > 0.0:
        return None
    environment = environment / norm
    lowest, rank = 0, 1  # too few, and the next to try: doubled until it will do, then the interval is halved
    best: tuple[torch.Tensor, torch.Tensor] | None = None
    highest = size
    while highest - lowest > 1:
        found = _alternate(environment, min(rank, highest - 1), allowed)
        if found is None:
            lowest = min(rank, highest - 1)
        else:
            best, highest = found, found[0].shape[1]
        rank = 2 * lowest if best is None else (lowest + highest) // 2
    return best


def _alternate(
    environment: torch.Tensor, rank: int, allowed: float
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """``U`` and ``V`` of a rank by alternating least squares; None where they leave more than allowed."""
    size = environment.shape[0]
    whole = torch.einsum("aabc->bc", environment)  # of the network itself with the opened bra
    drawn = torch.Generator().manual_seed(rank)
    left = torch.randn(size, rank, generator=drawn, dtype=torch.float64).to(environment)
    flipped = environment.permute(1, 0, 3, 2)
    previous = math.inf
    for _ in range(20):
        right, _ = _solve(environment, whole, left)
        left, loss = _solve(flipped, whole.T, right)
        if loss <= allowed**2:
            return left, right
        if loss > 0.9 * previous:
            break
        previous = loss
    return None


def _solve(environment: torch.Tensor, whole: torch.Tensor, left: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The best matrix for the second end when the first one has `left`, and the squared loss."""
    size, rank = left.shape
    half = torch.einsum("abcd,as->sbcd", environment, left)
    gram = torch.einsum("sbcd,ct->sbtd", half, left.conj()).reshape(size * rank, size * rank)
    rhs = torch.einsum("cd,ct->td", whole, left.conj()).reshape(-1)
    values, vectors = torch.linalg.eigh((gram + gram.mH) / 2)
    kept = values > values[-1] * 1e-12  # less is rounding of the sums that it comes from
    basis = vectors[:, kept]
    # ``v^T gram = rhs^T``: the transpose of a Hermitian matrix is its conjugate.
    solution = (basis.conj() / values[kept].to(basis.dtype)) @ (basis.T @ rhs)
    explained = float(torch.dot(solution.conj(), rhs).real)
    return solution.reshape(rank, size).T, 1.0 - explained
