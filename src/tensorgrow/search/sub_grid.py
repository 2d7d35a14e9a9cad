"""A small part of a grid, and from it to the whole: some points of every axis, and fibres through them.

On a grid of two or three points per axis a function can be evaluated everywhere, and a search on full data
finds its graph. What that network says of other points of an axis is a linear problem with a few unknowns per
point, which a few fibres determine. One fibre more than needed shows whether the part was large enough: a
function of cut ranks that the part already has is then known everywhere, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..algebra.pivots import pick_columns
from ..data.evaluations import Evaluations
from ..network import TensorNetwork
from ..structure import Structure

# Singular values below this share of the largest are rounding.
SMALLEST = 1e-11

Pivots = tuple[tuple[int, ...], ...]
"""Points of every axis that belong to the part."""


def all_points(pivots: Sequence[Sequence[int]]) -> torch.Tensor:
    """The points of a grid, of shape ``(*sizes, order)``."""
    axes = [torch.tensor(tuple(p), dtype=torch.int64) for p in pivots]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


def fibre(point: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """The points that differ from one only along an axis."""
    points = point.expand(size, len(point)).clone()
    points[:, axis] = torch.arange(size)
    return points


def spread(values: torch.Tensor, first: int, count: int) -> tuple[int, ...]:
    """Positions of values far from each other, beginning with one of them.

    Where a function is symmetric, positions that are alike would make the part of it degenerate.
    """
    picked = [first]
    while len(picked) < min(count, len(values)):
        distance = (values[:, None] - values[picked][None]).abs().amin(1)
        distance[picked] = -1.0
        picked.append(int(distance.argmax()))
    return tuple(picked)


class SubGrid:
    """A function on a part of its grid.

    Parameters
    ----------
    pivots
        Points of every axis that belong to the part.
    tolerance
        Norm of what a fibre may leave unexplained, relative to that of the values.
    """

    def __init__(self, evaluations: Evaluations, pivots: Pivots, tolerance: float) -> None:
        self.evaluations = evaluations
        self.pivots = pivots
        self.tolerance = tolerance
        self.points = all_points(pivots)
        self.values = evaluations.at(self.points)

    def extend(self, network: TensorNetwork) -> TensorNetwork | None:
        """The network of the part on the whole grid; None where fibres show that the part is too small."""
        shape, structure = self.evaluations.shape, network.structure
        cores = list(network.cores)
        for axis in range(len(shape)):
            core = self._extend_axis(network, axis)
            if core is None:
                return None
            cores[axis] = core
        wider = Structure(shape, dict(structure.ranks), num_nodes=structure.num_nodes)
        return TensorNetwork(wider, cores)

    def _extend_axis(self, network: TensorNetwork, axis: int) -> torch.Tensor | None:
        """A core with all slices of its leg; None where fibres contradict the network."""
        core, pivots = network.cores[axis], list(self.pivots[axis])
        size, count = len(pivots), self.evaluations.shape[axis]
        if size == count:
            return core[torch.tensor(pivots).argsort()]
        flat = core.reshape(size, -1)
        # Slices may be combinations of those that are known: then one fibre more than these tells.
        columns = pick_columns(self.values.movedim(axis, 0).reshape(size, -1), size + 1)
        fibres = self._fibres(axis, columns)
        weights = fibres @ torch.linalg.pinv(fibres[pivots], rtol=SMALLEST)
        if self._agree(fibres, weights @ fibres[pivots]):
            return (weights @ flat).reshape(count, *core.shape[1:])
        # Otherwise they are any numbers, and one fibre more than a slice has entries tells.
        around = _environment(network, axis)
        columns = pick_columns(around, flat.shape[1] + 1, columns)
        fibres, around = self._fibres(axis, columns), around[:, columns]
        slices = fibres @ torch.linalg.pinv(around, rtol=SMALLEST)
        return slices.reshape(count, *core.shape[1:]) if self._agree(fibres, slices @ around) else None

    def _fibres(self, axis: int, columns: Sequence[int]) -> torch.Tensor:
        """Values along an axis, one fibre per column, through points of the part."""
        count = self.evaluations.shape[axis]
        bases = self.points.movedim(axis, 0)[0].reshape(-1, self.points.shape[-1])[list(columns)]
        points = torch.stack([fibre(base, axis, count) for base in bases], 1)
        return self.evaluations.at(points)

    def _agree(self, fibres: torch.Tensor, explained: torch.Tensor) -> bool:
        rest, norm = (float(torch.linalg.vector_norm(x)) for x in (fibres - explained, fibres))
        return rest <= self.tolerance * norm


def _environment(network: TensorNetwork, axis: int) -> torch.Tensor:
    """All of a network but one core: what the entries of a slice of it are multiplied with, as rows."""
    structure, core = network.structure, network.cores[axis]
    width = math.prod(core.shape[1:])
    dims = tuple(width if k == axis else d for k, d in enumerate(structure.dims))
    eye = torch.eye(width, dtype=core.dtype).reshape(width, *core.shape[1:])
    cores = [eye if k == axis else c for k, c in enumerate(network.cores)]
    wide = Structure(dims, dict(structure.ranks), num_nodes=structure.num_nodes)
    return TensorNetwork(wide, cores).to_dense().movedim(axis, 0).reshape(width, -1)
