"""Best cores where entries are missing: the normal equations of one core, and their solution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ..algebra.coupled import Coupling, solve_along_chain, solve_coupled
from ..algebra.linalg import LEAST_RIDGE, Number, at_least, is_single, solve_or_nan, solve_slices, wide_dtype
from ..algebra.nonnegative import SliceEquations, TiedEquations, solve_nonnegative
from ..structure import Edge, Structure
from .penalties import Penalty

# Bytes of environment rows held, or of Gram matrices solved, at a time; and of Gram matrices held.
CHUNK_BYTES = {"cpu": 1 << 24, "cuda": 1 << 30}
GRAM_BYTES = {"cpu": 1 << 29, "cuda": 1 << 32}


def gram_bytes(structure: Structure, item: int, device: str) -> int:
    """Bytes of the Gram matrices that are held together at most, with numbers of `item` bytes."""
    widths = [structure.bond_product(k) for k in range(structure.num_nodes)]
    largest = max(d * m * m for d, m in zip(structure.leg_dims, widths))
    return min(item * largest, GRAM_BYTES[device] + item * max(widths) ** 2)


def runs_within(sizes: Iterable[int], most: int) -> Iterator[list[int]]:
    """Numbers from 0 on in runs whose sizes add up to `most` at most, or which are one alone."""
    run: list[int] = []
    held = 0
    for k, size in enumerate(sizes):
        if run and held + size > most:
            yield run
            run, held = [], 0
        run.append(k)
        held += size
    if run:
        yield run


def ranges_of(size: int, width: int, device: str) -> list[tuple[int, int]]:
    """Runs of slices whose Gram matrices fit in memory together."""
    step = max(1, GRAM_BYTES[device] // (8 * width * width))
    return [(a, min(a + step, size)) for a in range(0, size, step)]


@dataclass(frozen=True)
class SliceSums:
    """Normal equations of one core, a Gram matrix per slice, some slices at a time."""

    width: int  # number of columns of the environment
    size: int  # number of slices
    filled: torch.Tensor  # slices with entries
    empty: torch.Tensor  # slices without
    # For a range of slices: bonds in the order of the columns, Gram matrices and right-hand sides.
    sums: Callable[[int, int], tuple[tuple[Edge, ...], torch.Tensor, torch.Tensor]]
    squared_norm: Callable[[], float]  # sum of the diagonals of all Gram matrices
    # From the bonds of a core, the core, the ridge, whether to be careful, and whether to explain: bonds in
    # the order of the columns, the best slices and by how much they lower the squared residual, found without
    # Gram matrices; None where these are better.
    iterate: Callable[
        [Sequence[Edge], torch.Tensor, Number, bool, bool],
        tuple[tuple[Edge, ...], torch.Tensor, Number] | None,
    ] = lambda edges, core, ridge, careful, explain: None
    squared_values: Callable[[], float] | None = None  # of the entries, where they are at hand


def solve_core(
    equations: SliceSums,
    edges: Sequence[Edge],
    core: torch.Tensor,
    ridge: Number,
    numerical: float,
    penalty: Penalty | None = None,
    *,
    careful: bool = True,
    explain: bool = True,
) -> tuple[torch.Tensor, Number]:
    """Best core for its normal equations, and by how much it lowers the squared residual.

    A core that must not be negative, and would be zero throughout, stays as it is: the network would be zero
    from then on, while another core may still change its sign.

    Parameters
    ----------
    edges
        Bonds in the order of the axes of the core.
    core
        The core that is replaced; iterations start from it.
    ridge
        Relative to the mean diagonal of the Gram matrices.
    numerical
        Against rounding, relative to each diagonal entry.
    penalty
        What the prior of the core's leg adds.
    careful
        See `solve_normal`; without it there must be no prior.
    explain
        Whether it matters by how much; otherwise that is 0.
    """
    coupling, nonnegative = (None, False) if penalty is None else (penalty.coupling, penalty.nonnegative)
    if penalty is None:
        found = equations.iterate(edges, core, ridge, careful, explain)
        if found is not None:
            columns, x, gain = found
            best = _as_core(equations, x, columns, edges, core, equations.empty)
            return best, float(gain) if careful else gain
    width, ranges = equations.width, ranges_of(equations.size, equations.width, core.device.type)
    if coupling is not None:  # slices that are tied are solved for together
        ranges = [(0, equations.size)]
    mean: Number | None = equations.squared_norm() / (equations.size * width) if len(ranges) > 1 else None
    solved: list[torch.Tensor] = []
    explained: Number = 0.0
    explained_now: Number = 0.0  # by the present core
    for first, last in ranges:
        columns, grams, sides = equations.sums(first, last)
        if mean is None:
            diagonals = grams.diagonal(dim1=1, dim2=2).real
            mean = float(diagonals.double().mean()) if careful else diagonals.mean(dtype=torch.float64)
        weight = at_least(ridge, LEAST_RIDGE) * mean + 1e-300
        start = core.permute(0, *(1 + edges.index(e) for e in columns)).reshape(len(core), -1)
        if coupling is not None:
            tied = Tied(coupling, float(mean), equations.empty, equations.squared_values)
            x = _solve_tied(grams, sides, float(weight), numerical, tied, start, nonnegative)
            solved.append(x)
            if explain:
                explained = explained + _explained(grams, sides, x)
            if nonnegative:
                explained_now = explained_now + _explained(grams, sides, start.to(x.dtype))
            continue
        # A few slices at a time: copies of all their matrices would cost more than the solves.
        step = max(1, CHUNK_BYTES[grams.device.type] // (8 * width * width))
        for a in range(0, last - first, step):
            gram, rhs = (t[a : a + step].to(wide_dtype(t.dtype)) for t in (grams, sides))
            # A copy anyway where the numbers were single, and nobody asks for the matrix itself.
            is_own = gram.dtype != grams.dtype and not (explain or nonnegative)
            penalised = gram if is_own else gram.clone()
            diagonal = penalised.diagonal(dim1=1, dim2=2)
            if not careful:  # in one kernel
                add = torch.as_tensor(weight, dtype=torch.float64, device=diagonal.device)
                torch.add(add, diagonal, alpha=1.0 + numerical, out=diagonal)
                x = solve_or_nan(penalised, rhs[:, :, None])[:, :, 0]
            elif nonnegative:
                diagonal.add_(weight).mul_(1.0 + numerical)
                present = start[first + a : first + a + len(gram)].to(gram.dtype)
                x = solve_nonnegative(SliceEquations(penalised, rhs), present)
                explained_now = explained_now + _explained(gram, rhs, present)
            else:
                diagonal.add_(weight)
                x = solve_slices(penalised, rhs, numerical)
            if explain:
                explained = explained + _explained(gram, rhs, x)
            solved.append(x)
    x = torch.cat(solved) if careful or len(solved) > 1 else solved[0]
    if nonnegative and not bool(x.any()):
        return core, float(explained_now)
    empty = equations.empty
    if len(empty) and coupling is not None:
        empty = empty[~coupling.reached(equations.filled)[empty]]
    return _as_core(equations, x, columns, edges, core, empty), float(explained) if careful else explained


def _as_core(
    equations: SliceSums,
    x: torch.Tensor,
    columns: Sequence[Edge],
    edges: Sequence[Edge],
    core: torch.Tensor,
    empty: torch.Tensor,
) -> torch.Tensor:
    """Slices in the order of the axes of the core; `empty` ones become the mean of the others."""
    if len(empty):
        x[empty] = x[equations.filled].mean(0)
    sizes = (core.shape[1 + edges.index(e)] for e in columns)
    x = x.to(core.dtype).reshape(len(x), *sizes).permute(0, *(1 + columns.index(e) for e in edges))
    return x.contiguous()


def _explained(gram: torch.Tensor, rhs: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """By how much slices lower the squared residual, whatever penalty they were found with."""
    fit = (x.conj() * (gram @ x.to(gram.dtype)[:, :, None])[:, :, 0]).sum().real
    return 2.0 * (x.conj() * rhs).sum().real - fit


@dataclass(frozen=True)
class Tied:
    """How slices are tied to each other.

    Attributes
    ----------
    unit
        Weight of the coupling: the mean diagonal of the Gram matrices.
    empty
        Slices without entries.
    squared_values
        See `SliceSums`.
    """

    coupling: Coupling
    unit: float
    empty: torch.Tensor
    squared_values: Callable[[], float] | None


def _solve_tied(
    grams: torch.Tensor,
    sides: torch.Tensor,
    weight: float,
    numerical: float,
    tied: Tied,
    start: torch.Tensor,
    nonnegative: bool,
) -> torch.Tensor:
    """Best slices where a prior ties them to each other."""
    # Slices without entries come from the prior alone: a ridge would pull them to zero.
    least = LEAST_RIDGE * tied.unit + 1e-300
    if tied.squared_values is not None and is_single(grams.dtype) and not nonnegative:
        own = torch.full((len(grams),), weight, dtype=torch.float64)
        own[tied.empty] = least
        size = tied.squared_values()
        found = solve_along_chain(grams, sides, tied.coupling, tied.unit, own, start, size)
        if found is not None:
            return found
    penalised = grams.to(wide_dtype(grams.dtype), copy=True)
    rhs, start = (t.to(penalised.dtype) for t in (sides, start))
    diagonal = penalised.diagonal(dim1=1, dim2=2)
    diagonal.mul_(1.0 + numerical).add_(weight)
    diagonal[tied.empty] = least
    if nonnegative:
        equations = TiedEquations(penalised, rhs, tied.coupling, tied.unit)
        return solve_nonnegative(equations, start.reshape(1, -1)).reshape(start.shape)
    return solve_coupled(penalised, rhs, tied.coupling, tied.unit, start)
