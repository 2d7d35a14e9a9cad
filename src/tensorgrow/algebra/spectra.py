"""Singular values: what they leave out, the gauge in which they weigh errors, the splits they suggest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from ..contraction import Array, GramParts, gram_plan
from ..structure import Structure
from .linalg import is_single, on_host


def leading_pair(matrix: Array, iterations: int, start: Array) -> tuple[Array, Array]:
    """Approximate leading factors of ``matrix ~ u v^T`` by power iteration; `u` has norm 1."""
    v = start
    u = matrix @ v.conj()
    for _ in range(iterations):
        v = _normalise(u).conj() @ matrix
        u = matrix @ v.conj()
    return _normalise(u), v


def leading_columns(matrix: torch.Tensor, count: int, rounds: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Approximate factors of ``matrix ~ u v^T`` with `count` columns, those of `u` orthonormal."""
    # As for one pair: the largest rows have weight on what is wanted.
    largest = torch.linalg.vector_norm(matrix, dim=1).topk(count).indices
    v = matrix[largest].mT
    for _ in range(rounds):
        u = torch.linalg.qr(matrix @ torch.linalg.qr(v)[0].conj())[0]
        v = matrix.mT @ u.conj()
    return u, v


def _normalise(u: Array) -> Array:
    """A vector of norm 1; zero stays zero."""
    squared = (u.conj() @ u).real
    if isinstance(u, torch.Tensor) and u.is_cuda:  # nobody waits for the number
        return u / torch.where(squared == 0, 1.0, squared.abs().sqrt())
    return u / (abs(float(squared)) ** 0.5 or 1.0)


def sqrt_and_inverse(gram: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Hermitian square root of a Gram matrix and its inverse, tiny eigenvalues raised to a floor."""
    values, vectors = torch.linalg.eigh((gram + gram.mH) / 2)
    share, least = (1e-7, 1e-30) if is_single(gram.dtype) else (1e-14, 1e-300)
    floor = float(values[-1].clamp_min(0)) * share + least
    roots = values.clamp_min(floor).sqrt().to(vectors.dtype)
    return (vectors * roots) @ vectors.mH, (vectors / roots) @ vectors.mH


def tail_norms(singular_values: torch.Tensor) -> torch.Tensor:
    """``t[r]`` is the norm of all singular values from number ``r`` on; one longer than the input."""
    squares = singular_values.double() ** 2
    tails = squares.flip(0).cumsum(0).flip(0)
    return torch.cat([tails, tails.new_zeros(1)]).sqrt()


def multiply_axis(tensor: torch.Tensor, matrix: torch.Tensor, axis: int) -> torch.Tensor:
    """Multiply one axis of a tensor by a matrix from the right; the axis keeps its place."""
    out: torch.Tensor = torch.tensordot(tensor, matrix, ([axis], [0])).movedim(-1, axis)
    return out


def whiten_core(
    structure: Structure, cores: Sequence[torch.Tensor], node: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Core in the gauge where its singular values weigh the error of the whole tensor, and the way back.

    Every bond is multiplied by the square root of its marginal environment Gram (normalised to trace one).
    The environment of a tree factorises over bonds, so there the singular values are exact. Small cores come
    back on the CPU, where they are decomposed.
    """
    bonds = cores[node].dim() - 1
    gram = gram_plan(structure, node, cores[node].is_complex()).run(cores)
    parts = gram if isinstance(gram, GramParts) else GramParts((tuple(range(bonds)),), (gram,))
    core, *grams = on_host([cores[node], *parts.parts])
    inverses = []
    for b in range(bonds):
        here, part = next((ket, part) for ket, part in zip(parts.bonds, grams) if b in ket)
        bra = [bonds if x == b else x for x in here]
        marginal = torch.einsum(part, [*here, *bra], [b, bonds])
        marginal = marginal / (float(marginal.diagonal().real.sum()) or 1.0)
        root, inverse = sqrt_and_inverse(marginal)
        core = multiply_axis(core, root, b + 1)
        inverses.append(inverse)
    return core, inverses


@dataclass(frozen=True)
class Split:
    """A split that saves parameters: where, to which rank, and what it drops (relative norm)."""

    node: int
    axes: tuple[int, ...]
    rank: int
    saved: int
    dropped: float


def split_weak(cores: Sequence[torch.Tensor], node: int, below: float) -> Iterator[Split]:
    """Splits of `node` that save parameters by dropping singular values of its core below a number."""
    (core,) = on_host([cores[node]])
    for stay, matrix in _matricizations(core):
        s = torch.linalg.svdvals(matrix)
        rank, tails = max(1, int((s >= below).sum())), tail_norms(s)
        saved = core.numel() - rank * sum(matrix.shape)
        if saved > 0:
            yield Split(node, stay, rank, saved, float(tails[rank]) / (float(tails[0]) or 1.0))


def _matricizations(core: torch.Tensor) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Axes that stay with the leg, and the core as a matrix: these by the others."""
    for stay in split_axes(core.dim()):
        leave = tuple(a for a in range(1, core.dim()) if a not in stay)
        rows = math.prod(core.shape[a] for a in stay)
        if rows > 1:
            yield stay, core.permute(*stay, *leave).reshape(rows, -1)


def split_axes(ndim: int) -> Iterator[tuple[int, ...]]:
    """Axes of a core that may stay with its leg, 0 among them, in a split."""
    for count in range(ndim - 2):  # at least two bonds leave: cutting off one is only a truncation
        for bonds in combinations(range(1, ndim), count):
            yield (0, *bonds)


def propose_splits(
    structure: Structure,
    cores: Sequence[torch.Tensor],
    node: int,
    *,
    options_per_cut: int = 1,
    threshold: float,
) -> Iterator[Split]:
    """Splits of `node` that save parameters, from every matricization of its core.

    For each matricization the smallest rank that drops at most `threshold` is proposed, and then, for
    approximate splits, up to ``options_per_cut - 1`` smaller ones.
    """
    if len(structure.neighbours[node]) < 2:
        return
    core, _ = whiten_core(structure, cores, node)
    size = core.numel()
    for stay, matrix in _matricizations(core):
        rows, columns = matrix.shape
        largest = min((size - 1) // (rows + columns), rows, columns)
        if largest < 1:
            continue
        s = torch.linalg.svdvals(matrix)
        tails = tail_norms(s)
        relative = (tails / (float(tails[0]) or 1.0)).tolist()
        fitting = next((r for r in range(1, largest + 1) if relative[r] <= threshold), None)
        if fitting is None:
            if options_per_cut == 1:
                continue
            fitting = largest
        for rank in range(fitting, max(0, fitting - options_per_cut), -1):
            yield Split(node, stay, rank, size - rank * (rows + columns), relative[rank])
