"""Bases of the modes by randomised range finding: one pass for the bases, one for the core.

For mode ``k`` the columns of ``T_(k) W`` with a random ``W`` span its range. Columns of ``W`` are products of
random vectors, one per other mode, so a block needs only its part of small matrices, and a block seen as a
matrix is multiplied twice, whatever the number of modes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..algebra.linalg import wide_dtype
from ..algebra.spectra import tail_norms
from ..contraction import Array
from ..data.blocks import Box, Partial, Reducer
from ..structure import Structure
from .block_kernels import Model, SquaredResiduals, Survey
from .compressed import Basis, Compression, truncate

# Columns of the first sketch, and of the second one that is tried when the first leaves out too much.
SKETCH = 48
SECOND_SKETCH = 144
# Columns beyond the rank that make a random sketch reliable.
OVERSAMPLING = 6


@dataclass(frozen=True)
class Sketch:
    """Random combinations of the fibres of every mode, with the norm and the largest entry of the data."""

    factors: tuple[Array, ...]  # one Gaussian matrix per mode, ``(size, columns)``
    modes: tuple[int, ...]  # those whose range is looked for

    def __call__(self, block: Array, box: Box) -> Partial:
        """One matrix per mode, under the mode and its range."""
        partial = Survey()(block, box)
        factors = [_like(f[slice(*r)], block) for f, r in zip(self.factors, box)]
        sizes = [stop - start for start, stop in box]
        # The block as a matrix: first axes by last axes, about square, no copy.
        half = min(range(1, len(sizes)), key=lambda h: math.prod(sizes[:h]) + math.prod(sizes[h:]))
        matrix = block.reshape(math.prod(sizes[:half]), -1)
        first, last = [k for k in self.modes if k < half], [k for k in self.modes if k >= half]
        if first:
            left = (matrix @ _products(factors[half:])).T
            for k in first:
                partial.sums["range", k, box[k]] = _but_one(left, factors[:half], k)
        if last:
            right = _products(factors[:half]).T @ matrix
            for k in last:
                partial.sums["range", k, box[k]] = _but_one(right, factors[half:], k - half)
        return partial


def _products(factors: Sequence[Array]) -> Array:
    """Column-wise Kronecker products."""
    total = factors[0]
    for f in factors[1:]:
        total = (total[:, None, :] * f[None, :, :]).reshape(-1, f.shape[1])
    return total


def _but_one(matrix: Array, factors: Sequence[Array], index: int) -> Array:
    """Sum over all column indices but one, weighted by the factors, row by row; that index comes first."""
    rows = matrix.shape[0]
    for f in factors[:index]:
        matrix = (f.T[:, None, :] @ matrix.reshape(rows, f.shape[0], -1))[:, 0]
    for f in factors[:index:-1]:
        matrix = (matrix.reshape(rows, -1, f.shape[0]) @ f.T[:, :, None])[:, :, 0]
    return matrix.T


@dataclass(frozen=True)
class Project:
    """A block in the bases of the modes."""

    bases: tuple[Array | None, ...]

    def __call__(self, block: Array, box: Box) -> Partial:
        """Its part of the core, under the ranges of the modes without a basis."""
        where = tuple(r if u is None else None for u, r in zip(self.bases, box))
        bases = {k: u[slice(*box[k])] for k, u in enumerate(self.bases) if u is not None}

        def rank(k: int) -> tuple[bool, bool, float]:  # what shrinks much, ends before others, comes first
            size, columns = bases[k].shape
            return columns > 0.5 * size, k not in (0, len(box) - 1), columns / size

        for k in sorted(bases, key=rank):
            block = _times(block, _like(bases[k], block), k)
        return Partial({where: block})


def _times(block: Array, basis: Array, axis: int) -> Array:
    """Contract one axis with the conjugated rows of a basis; the axis keeps its place."""
    before, size = math.prod(block.shape[:axis]), block.shape[axis]
    conjugate = basis.conj()
    shape = (*block.shape[:axis], basis.shape[1], *block.shape[axis + 1 :])
    if axis == len(block.shape) - 1:
        return (block.reshape(-1, size) @ conjugate).reshape(shape)
    if before == 1:
        return (conjugate.T @ block.reshape(size, -1)).reshape(shape)
    return (conjugate.T @ block.reshape(before, size, -1)).reshape(shape)  # one product per leading index


def _like(array: Array, block: Array) -> Array:
    return torch.as_tensor(array, device=block.device) if isinstance(block, torch.Tensor) else array


@dataclass(frozen=True)
class Ranges:
    """Orthonormal directions of every mode, strongest first."""

    vectors: list[Basis]  # one matrix per mode; None where the mode is too short to gain from a basis
    tails: list[torch.Tensor | None]  # what is left of each sketch after k directions, relative to its norm
    survey: Partial  # norm and largest entry of the data
    sizes: tuple[int, ...]  # of the modes

    def bases(self, allowed: float, max_entries: float) -> list[Basis] | None:
        """Bases whose core has at most `max_entries` entries, leaving out as little as possible."""
        order = len(self.vectors)
        for share in (0.1, 0.2, 0.4, 0.8):  # of what may be left out
            bases: list[Basis] = []
            for vectors, tails in zip(self.vectors, self.tails):
                if vectors is None or tails is None:
                    bases.append(None)
                    continue
                level = allowed / math.sqrt(order)
                fine, coarse = (int((tails > x * level).sum()) for x in (share, max(share, 0.4)))
                # Half the directions for little more left out: the others are noise.
                needed = (coarse if 2 * (coarse + OVERSAMPLING) <= fine else fine) + OVERSAMPLING
                bases.append(vectors[:, :needed] if needed < vectors.shape[0] else None)
            sizes = (n if u is None else u.shape[1] for n, u in zip(self.sizes, bases))
            if math.prod(sizes) <= max_entries:
                return bases
        return None


def find_ranges(reducer: Reducer, columns: int = SKETCH) -> Ranges:
    """Leading directions of every mode, as many as the sketch has columns: one pass."""
    shape, form = reducer.source.shape, reducer.form
    generator = np.random.default_rng(20_240_701)
    factors = tuple(generator.standard_normal((n, columns)).astype(form.dtype) for n in shape)
    modes = tuple(k for k, n in enumerate(shape) if n > OVERSAMPLING + 1 and len(shape) > 1)
    sketches = reducer.reduce(Sketch(factors, modes))
    vectors: list[Basis] = [None] * len(shape)
    tails: list[torch.Tensor | None] = [None] * len(shape)
    if math.isfinite(sketches.largest) and sketches.largest > 0.0:
        for k in modes:
            pieces = {key[2]: v for key, v in sketches.sums.items() if key[:2] == ("range", k)}
            sketch = torch.cat([torch.as_tensor(pieces[r]).cpu() for r in sorted(pieces)])
            u, s, _ = torch.linalg.svd(sketch, full_matrices=False)
            vectors[k], tails[k] = u, tail_norms(s)[:-1] / torch.linalg.vector_norm(s)
    return Ranges(vectors, tails, sketches, shape)


def find_core(
    reducer: Reducer, ranges: Ranges, norm: float, allowed: float, max_entries: float
) -> Compression | None:
    """The tensor in bases of its modes: one pass.

    One more where the norm of what is left out would be lost in rounding.

    Parameters
    ----------
    allowed
        Share of the norm that may be left out.
    max_entries
        Entries of the core at most.

    Returns
    -------
    Compression or None
        None when the core would have more entries, or more is left out.
    """
    bases = ranges.bases(allowed, max_entries)
    if bases is None:
        return None
    dtype: torch.dtype = getattr(torch, reducer.form.dtype)
    sent = tuple(None if u is None else u.to(dtype).numpy() for u in bases)
    sizes = tuple(n if u is None else u.shape[1] for n, u in zip(reducer.source.shape, bases))
    core = torch.zeros(sizes, dtype=wide_dtype(dtype))
    for where, value in reducer.reduce(Project(sent)).sums.items():
        core[tuple(slice(None) if r is None else slice(*r) for r in where)] += torch.as_tensor(value).cpu()
    squared = max(norm**2 - float(torch.linalg.vector_norm(core)) ** 2, 0.0)
    if (0.1 * allowed) ** 2 < 8.0 * torch.finfo(dtype).eps:
        squared = _left_out(reducer, core, bases, dtype)
    # What is weaker than what is left out already is noise, or as good as noise.
    cut = max(0.05 * allowed * norm, 0.3 * math.sqrt(squared))
    core, inner, dropped = truncate(core, cut)
    bases = [v if u is None else (u if v is None else u.to(v.dtype) @ v) for u, v in zip(bases, inner)]
    rest = math.sqrt(squared + dropped)
    return Compression(core, bases, rest) if rest <= allowed * norm else None


def _left_out(reducer: Reducer, core: torch.Tensor, bases: Sequence[Basis], dtype: torch.dtype) -> float:
    """Squared norm of what the bases leave out, from the residual itself."""
    order = core.dim()
    ranks = {(k, order): n for k, n in enumerate(core.shape)}
    structure = Structure(reducer.source.shape, ranks, num_nodes=order + 1)
    cores = [
        torch.eye(n, dtype=dtype) if u is None else u.to(dtype) for u, n in zip(bases, reducer.source.shape)
    ]
    arrays = [c.numpy().reshape(s) for c, s in zip([*cores, core.to(dtype)], structure.core_shapes)]
    model = Model(structure, tuple(arrays))
    return float(reducer.reduce(SquaredResiduals(((model,),))).sums[0])
