"""A small part of a grid, and from it to the whole: some points of every axis, and fibres through them.

On a grid of two or three points per axis a function can be evaluated everywhere, and a search on full data finds
its graph. What that network says of other points of an axis is a linear problem with a few unknowns per point,
which a few fibres determine. One fibre more than needed shows whether the part was large enough: a function of
cut ranks that the part already has is then known everywhere, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..algebra.pivots import pick_columns
from ..data.evaluations import Evaluations
from ..network import TensorNetwork
from ..structure import Structure

Pivots = tuple[tuple[int, ...], ...]
"""Points of every axis that belong to the part."""


@dataclass(frozen=True)
class Doubt:
    """An axis of which the part has too few points.

    Attributes
    ----------
    axis, point
        The axis, and the point of it that the part explains least.
    error
        Norm of what is not explained on the fibres of the axis, relative to their norm.
    """

    axis: int
    point: int
    error: float


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

    @property
    def size(self) -> int:
        """Number of points."""
        return self.values.numel()

    def extend(self, network: TensorNetwork) -> tuple[TensorNetwork, list[Doubt]]:
        """The network of the part on the whole grid, and the axes where that leaves something unexplained."""
        shape, structure = self.evaluations.shape, network.structure
        cores, doubts = list(network.cores), []
        for axis in range(len(shape)):
            cores[axis], doubt = self._extend_axis(network, axis)
            if doubt is not None:
                doubts.append(doubt)
        wider = Structure(shape, dict(structure.ranks), num_nodes=structure.num_nodes)
        return TensorNetwork(wider, cores), doubts

    def _extend_axis(self, network: TensorNetwork, axis: int) -> tuple[torch.Tensor, Doubt | None]:
        """A core with all slices of its leg."""
        core = network.cores[axis]
        size, count = len(self.pivots[axis]), self.evaluations.shape[axis]
        flat = core.reshape(size, -1)
        if size == count:
            return core, None
        # Slices may be combinations of those that are known: then one fibre more than these tells.
        known = self.values.movedim(axis, 0).reshape(size, -1)
        columns = pick_columns(known, size + 1)
        fibres = self._fibres(axis, columns)
        weights = torch.linalg.lstsq(fibres[list(self.pivots[axis])].T, fibres.T).solution.T
        if self._error(fibres, weights @ fibres[list(self.pivots[axis])]) <= self.tolerance:
            return (weights @ flat).reshape(count, *core.shape[1:]), None
        # Otherwise they are any numbers, and as many fibres tell as a slice has.
        around = _environment(network, axis)
        columns = pick_columns(around, flat.shape[1] + 1, columns)
        fibres, around = self._fibres(axis, columns), around[:, columns]
        slices = (torch.linalg.pinv(around.T, rtol=1e-10) @ fibres.T).T
        rest = fibres - slices @ around
        error = self._error(fibres, fibres - rest)
        extended = slices.reshape(count, *core.shape[1:])
        if error <= self.tolerance:
            return extended, None
        far = torch.linalg.vector_norm(rest, dim=1)
        far[list(self.pivots[axis])] = -1.0
        return extended, Doubt(axis, int(far.argmax()), error)

    def _fibres(self, axis: int, columns: Sequence[int]) -> torch.Tensor:
        """Values along an axis, one fibre per column, through points of the part."""
        count = self.evaluations.shape[axis]
        bases = self.points.movedim(axis, 0)[0].reshape(-1, self.points.shape[-1])[list(columns)]
        points = torch.stack([fibre(base, axis, count) for base in bases], 1)
        return self.evaluations.at(points)

    def _error(self, fibres: torch.Tensor, explained: torch.Tensor) -> float:
        norm = float(torch.linalg.vector_norm(fibres)) or 1.0
        return float(torch.linalg.vector_norm(fibres - explained)) / norm


def _environment(network: TensorNetwork, axis: int) -> torch.Tensor:
    """All of a network but one core: what the entries of a slice of it are multiplied with, as rows."""
    structure, core = network.structure, network.cores[axis]
    width = math.prod(core.shape[1:])
    dims = tuple(width if k == axis else d for k, d in enumerate(structure.dims))
    eye = torch.eye(width, dtype=core.dtype).reshape(width, *core.shape[1:])
    cores = [eye if k == axis else c for k, c in enumerate(network.cores)]
    wide = Structure(dims, dict(structure.ranks), num_nodes=structure.num_nodes)
    return TensorNetwork(wide, cores).to_dense().movedim(axis, 0).reshape(width, -1)
