"""Edges past a node: what a core only hands through goes straight from one neighbour to the other.

Seen as matrices from the edge to one neighbour to the edge to another, the slices of a core that hands
something through are, in some bases of both edges, ``I x M_s``: the factor I passes by whatever the slice is.
Nobody knows these bases. But of slices ``C_s = P (I x M_s) Q^-1`` the pairs ``X = P (Z x I) P^-1`` and
``Y = Q (Z x I) Q^-1`` solve the linear equations ``X C_s = C_s Y``. Solutions have q^2 dimensions where q
ranks pass by, and one dimension otherwise. An eigenspace of one, taken along by others, spans the bases.
So cycles of a graph are found in a tree, or in another graph of the same tensor, exactly and without a fit.
"""

from __future__ import annotations

import math

import torch

from ..structure import Edge, Structure
from .linalg import on_host
from .moves import Cores, Move

# Share of the largest up to which a singular value of the equations counts as zero, and what else must
# vanish. Of networks with an error of 1e-6 those of solutions are 1e-6, the next ones 1e-2.
ZERO = 1e-4
# Unknowns of the equations: solving takes a second from about here on.
MOST_UNKNOWNS = 2_000
# Draws of a solution until one has a real eigenvalue; seven of ten have one where two ranks pass by.
DRAWS = 12


def bypass(structure: Structure, cores: Cores, node: int, i: int, j: int) -> Move | None:
    """Let an edge between the neighbours `i` and `j` carry what `node` only hands through.

    Exact to rounding where the network is; None where nothing is handed through.
    """
    a, b = structure.rank(node, i), structure.rank(node, j)
    if math.gcd(a, b) == 1 or a * a + b * b > MOST_UNKNOWNS:
        return None
    core, left, right = on_host([cores[node], cores[i], cores[j]])
    axes = structure.axis(node, i), structure.axis(node, j)
    slices = core.movedim(axes, (-2, -1))
    bases = _bases(slices.reshape(-1, a, b))
    if bases is None:
        return None
    rows, columns, inner, count = bases
    after = _structure_after(structure, node, (i, j), (a // count, b // count), count)
    out = list(cores)
    inner = inner.reshape(*slices.shape[:-2], a // count, b // count).movedim((-2, -1), axes)
    out[node] = inner.reshape(after.core_shape(node)).to(cores[node]).contiguous()
    for near, other, end, basis in ((i, j, left, rows), (j, i, right, columns)):
        # The edge is the last axis now.
        turned = torch.tensordot(end.to(basis), basis, ([structure.axis(near, node)], [0]))
        moved = _hand_over(structure, turned, near, node, other, count)
        out[near] = moved.reshape(after.core_shape(near)).to(cores[near]).contiguous()
    return after, out


def _structure_after(
    structure: Structure, node: int, ends: Edge, ranks: tuple[int, int], count: int
) -> Structure:
    for end, rank in zip(ends, ranks):
        structure = structure.with_rank(node, end, rank)
    return structure.with_rank(*ends, structure.rank(*ends) * count)


def _hand_over(
    structure: Structure, core: torch.Tensor, near: int, node: int, other: int, count: int
) -> torch.Tensor:
    """The core of a neighbour, whose edge to `node` is the last axis and has the factor that passes by first.

    That factor joins the edge to `other`.
    """
    around = [k for k in structure.neighbours[near] if k != node]
    core = core.reshape(*core.shape[:-1], count, -1)
    keys = [*((k, 0) for k in around), (other, 1), (node, 0)]  # axes stand in the order of neighbours
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return core.permute(0, *(1 + n for n in order))


def _bases(slices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int] | None:
    """Matrices to multiply the neighbours with, the inner slices, and how many ranks pass by."""
    slices = slices.to(torch.complex128 if slices.is_complex() else torch.float64)
    first = _root(torch.einsum("skb,slb->kl", slices, slices.conj()))
    if first is None:
        return None
    slices = torch.linalg.solve(first, slices)
    second = _root(torch.einsum("ska,skb->ab", slices, slices.conj()))
    if second is None:
        return None
    slices = torch.linalg.solve(second, slices.mT).mT
    solutions = _solve(slices)
    count = math.isqrt(len(solutions))
    a, b = slices.shape[1:]
    if count < 2 or count * count != len(solutions) or a % count or b % count:
        return None
    generator = torch.Generator().manual_seed(0)  # any solution would do, but for its eigenvalues
    for _ in range(DRAWS):
        bases = _draw_bases(solutions, (a, b), count, generator)
        if bases is None:
            continue
        rows, columns = bases
        inner, failed = torch.linalg.solve_ex(rows, slices @ columns)
        back, also_failed = torch.linalg.inv_ex(columns)
        if bool(failed.any()) or bool(
            also_failed
        ):  # what commutes with itself, as for a sum of outer products
            continue
        inner = inner.reshape(-1, count, a // count, count, b // count)
        mean = torch.einsum("skpkq->spq", inner) / count
        missed = inner - torch.einsum("kl,spq->skplq", torch.eye(count, dtype=inner.dtype), mean)
        if torch.linalg.vector_norm(missed) <= ZERO * torch.linalg.vector_norm(inner):
            return first @ rows, second @ back.mT, mean, count
    return None


def _root(gram: torch.Tensor) -> torch.Tensor | None:
    """The Cholesky factor of a Gram matrix, which scales an edge; None where directions carry nothing."""
    root, failed = torch.linalg.cholesky_ex(gram)
    diagonal = root.diagonal().abs()
    is_singular = bool(failed) or float(diagonal.min()) <= ZERO * float(diagonal.max())
    return None if is_singular else root


def _solve(slices: torch.Tensor) -> torch.Tensor:
    """An orthonormal basis of all ``(X, Y)`` with ``X C = C Y`` for every slice C, one per row."""
    a, b = slices.shape[1:]
    eye_a, eye_b = torch.eye(a, dtype=slices.dtype), torch.eye(b, dtype=slices.dtype)
    over_rows = torch.einsum("skb,slb->kl", slices.conj(), slices)
    over_columns = torch.einsum("skl,skm->lm", slices.conj(), slices)
    # The equations for X[i, k] and Y[l, m], multiplied with their adjoint.
    top = torch.einsum("ij,kl->ikjl", eye_a, over_rows).reshape(a * a, a * a)
    bottom = torch.einsum("lm,np->lnmp", over_columns, eye_b).reshape(b * b, b * b)
    side = -torch.einsum("skm,sil->iklm", slices.conj(), slices).reshape(a * a, b * b)
    equations = torch.cat([torch.cat([top, side], 1), torch.cat([side.mH, bottom], 1)])
    squares, vectors = torch.linalg.eigh(equations)
    solutions: torch.Tensor = vectors[:, squares <= ZERO**2 * squares[-1]].mT
    return solutions


def _draw_bases(
    solutions: torch.Tensor, sizes: tuple[int, int], count: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Bases in which solutions are ``Z x I``, from one of them; None where that has no real eigenvalue."""
    (a, b), dtype = sizes, solutions.dtype
    drawn = torch.randn(1 + count, len(solutions), generator=generator, dtype=dtype) @ solutions
    left, right = drawn[:, : a * a].reshape(-1, a, a), drawn[:, a * a :].reshape(-1, b, b)
    values = torch.linalg.eigvals(left[0])
    if not dtype.is_complex:
        values = values.real[values.imag.abs() <= ZERO * values.abs().max()]
    if not len(values):
        return None
    bases = []
    for matrices, size in ((left, a), (right, b)):
        _, _, vh = torch.linalg.svd(matrices[0] - values[0] * torch.eye(size, dtype=dtype))
        space = vh[size - size // count :].mH  # the eigenspace: one vector of Z, times any
        bases.append(torch.cat([m @ space for m in matrices[1:]], 1))
    return bases[0], bases[1]
