"""What blockwise least squares computes from one block, given the cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..contraction import Array, dense_plan, pair_gradient_plan, partial_target_plan
from ..data.arrays import as_tensor
from ..data.blocks import Box, Partial
from ..data.fingerprint import sum_codes
from ..structure import Edge, Structure

# Squares are added up in runs of this length; the sums of runs are added in double precision.
RUN = 1024


@dataclass(frozen=True)
class Model:
    """A network that travels to the blocks."""

    structure: Structure
    arrays: tuple[Array, ...]

    def at(self, box: Box, like: Array) -> tuple[Structure, list[Array]]:
        """The part of the network that a block meets, where the block is."""
        s = self.structure
        dims = tuple(stop - start for start, stop in box)
        arrays = [a[slice(*box[k])] if k < s.order else a for k, a in enumerate(self.arrays)]
        if isinstance(like, torch.Tensor):
            arrays = [torch.as_tensor(a, device=like.device) for a in arrays]
        return Structure(dims, s.ranks, num_nodes=s.num_nodes), arrays

    def block(self, box: Box, like: Array) -> Array:
        structure, arrays = self.at(box, like)
        return dense_plan(structure, _is_complex(like), _on_gpu(like)).run(arrays)


@dataclass(frozen=True)
class Survey:
    """Squared norm, largest entry, and whether all entries are finite, block by block."""

    def __call__(self, block: Array, box: Box) -> Partial:
        """The three numbers; a sum of squares that is not finite tells of entries that are not."""
        return Partial({("squares", box): sum_of_squares(block)}, largest_of(block))


@dataclass(frozen=True)
class Codes:
    """What tells the numbers of a tensor of this shape from others, block by block."""

    shape: tuple[int, ...]

    def __call__(self, block: Array, box: Box) -> Partial:
        codes = sum_codes(as_tensor(block), box, self.shape)
        return Partial({("codes", box): codes})


@dataclass(frozen=True)
class SquaredResiduals:
    """Squared norms of the data less the models of each group, by the number of the group."""

    groups: tuple[tuple[Model, ...], ...]

    def __call__(self, block: Array, box: Box) -> Partial:
        squares: dict[Any, float] = dict.fromkeys(range(len(self.groups)), 0.0)
        for piece, where in _pieces(block, box):
            for k, models in enumerate(self.groups):
                squares[k] += sum_of_squares(_without(piece, where, models))
        return Partial(squares)


@dataclass(frozen=True)
class PartialTarget:
    """Data, less some models, contracted with the conjugated cores outside a set of nodes."""

    network: Model
    nodes: tuple[int, ...]
    minus: tuple[Model, ...] = ()

    def __call__(self, block: Array, box: Box) -> Partial:
        """One array, under the ranges of its open legs."""
        structure, arrays, target = _prepare(self.network, self.minus, block, box)
        plan = partial_target_plan(structure, self.nodes, _is_complex(block))
        where = tuple(box[k] for k in self.nodes if k < structure.order)
        return Partial({where: plan.run([*arrays, target])})


@dataclass(frozen=True)
class PairGradients:
    """Data, less some models, contracted with all cores but two, for several pairs."""

    network: Model
    edges: tuple[Edge, ...]
    minus: tuple[Model, ...] = ()

    def __call__(self, block: Array, box: Box) -> Partial:
        """One array per edge, under the edge and the ranges of its legs."""
        structure, arrays, target = _prepare(self.network, self.minus, block, box)
        plan = pair_gradient_plan(structure, self.edges, _is_complex(block))
        full = (*box, *((0, 1),) * (structure.num_nodes - structure.order))
        return Partial(
            {(e.edge, full[e.edge[0]], full[e.edge[1]]): e.gradient for e in plan.run([target], arrays)}
        )


def _pieces(block: Array, box: Box) -> Iterator[tuple[Array, Box]]:
    """A block on the CPU in pieces that stay in the cache while they are looked at more than once."""
    (start, stop), *others = box
    # 2^18 entries: a piece and the network there stay in the cache.
    step = stop - start if _on_gpu(block) else max(1, (1 << 18) // math.prod(b - a for a, b in others))
    for first in range(start, stop, step):
        last = min(first + step, stop)
        yield block[first - start : last - start], ((first, last), *others)


def _without(block: Array, box: Box, models: Sequence[Model]) -> Array:
    for model in models:
        values = model.block(box, block)
        if isinstance(block, np.ndarray):  # stored in row-major order whatever the operands are
            block = np.subtract(block, values, out=np.empty(block.shape, dtype=block.dtype))
        else:
            block = block - values
    return block


def _prepare(
    network: Model, minus: Sequence[Model], block: Array, box: Box
) -> tuple[Structure, list[Array], Array]:
    """The part of a network that a block meets, and the block less some models with one axis per node."""
    structure, arrays = network.at(box, block)
    return structure, arrays, _without(block, box, minus).reshape(structure.leg_dims)


def _is_complex(array: Array) -> bool:
    return array.is_complex() if isinstance(array, torch.Tensor) else array.dtype.kind == "c"


def _on_gpu(array: Array) -> bool:
    return isinstance(array, torch.Tensor) and array.device.type != "cpu"


def sum_of_squares(array: Array) -> float:
    """Sum of the squared absolute values, in short runs and then in double precision."""
    if isinstance(array, torch.Tensor):
        flat = torch.view_as_real(array.resolve_conj()) if array.is_complex() else array
        return float(_by_runs(flat.reshape(-1), norms_squared if _on_gpu(array) else dots))
    plain = np.ascontiguousarray(array).reshape(-1)
    if plain.dtype.kind == "c":
        plain = plain.view(plain.real.dtype)
    return float(_by_runs(plain, lambda x: np.einsum("ij,ij->i", x, x).sum(dtype=np.float64)))


def dots(rows: torch.Tensor) -> torch.Tensor:
    """Sum of all squares; torch writes the squares before it adds them."""
    squares: torch.Tensor = torch.linalg.vecdot(rows, rows)
    return squares.double().sum()


def norms_squared(rows: torch.Tensor) -> torch.Tensor:
    """As `dots`, for large arrays that do not fit in a cache: they are read once, nothing is written."""
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.double().square().sum()


def _by_runs(flat: Array, squares: Callable[[Array], Any]) -> float:
    whole = flat.shape[0] - flat.shape[0] % RUN
    total = 0.0
    if whole:
        total += float(squares(flat[:whole].reshape(-1, RUN)))
    if whole < flat.shape[0]:
        total += float(squares(flat[whole:].reshape(1, -1)))
    return total


def largest_of(array: Array) -> float:
    """Largest absolute part, real or imaginary; not finite where an entry is not."""
    if isinstance(array, torch.Tensor):
        numbers = torch.view_as_real(array.resolve_conj()) if array.is_complex() else array
        low, high = (float(x) for x in torch.aminmax(numbers))
    else:
        parts = np.ascontiguousarray(array).view(array.real.dtype) if array.dtype.kind == "c" else array
        low, high = float(parts.min()), float(parts.max())
    return math.nan if math.isnan(low + high) else max(-low, high)
