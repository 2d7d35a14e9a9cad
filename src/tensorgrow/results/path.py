"""The error-size path: networks that no other visited one beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..network import TensorNetwork


@dataclass(frozen=True)
class PathPoint:
    """A network on the error-size path.

    Attributes
    ----------
    error
        On held-out data where there is some; of the kind that `Errors.kind` of the result names.
    counted
        Parameters, where the network also holds fixed numbers.
    """

    network: TensorNetwork
    error: float
    counted: int | None = None

    @property
    def num_parameters(self) -> int:
        return self.network.num_parameters if self.counted is None else self.counted


def add_to_path(path: list[PathPoint], point: PathPoint) -> None:
    """Insert a point unless another beats it, and drop those it beats: larger and no better."""
    for other in path:
        if other.num_parameters <= point.num_parameters and other.error <= point.error:
            return
    path[:] = [p for p in path if p.num_parameters < point.num_parameters or p.error < point.error]
    path.append(point)
    path.sort(key=lambda p: p.num_parameters)


def pack_path(
    path: Sequence[PathPoint], prefix: str = ""
) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Header and named tensors of a path for a file; `unpack_path` is its inverse."""
    points: list[dict[str, Any]] = []
    tensors: dict[str, torch.Tensor] = {}
    for n, point in enumerate(path):
        structure, cores = point.network.pack(f"{prefix}path.{n}")
        counted = {} if point.counted is None else {"num_parameters": point.counted}
        points.append({"structure": structure, "relative_error": point.error, **counted})
        tensors |= cores
    return points, tensors


def unpack_path(
    points: Sequence[Mapping[str, Any]], tensors: Mapping[str, torch.Tensor], prefix: str = ""
) -> list[PathPoint]:
    """Rebuild a path from what `pack_path` returned."""
    return [
        PathPoint(
            TensorNetwork.unpack(p["structure"], tensors, f"{prefix}path.{n}"),
            p["relative_error"],
            p.get("num_parameters"),
        )
        for n, p in enumerate(points)
    ]


def best_on_path(
    path: Sequence[PathPoint], max_error: float | None, max_parameters: int | None
) -> PathPoint | None:
    """Return the smallest point within both limits; without `max_error`, the best one. None without any."""
    fitting = [
        p
        for p in path
        if (max_error is None or p.error <= max_error)
        and (max_parameters is None or p.num_parameters <= max_parameters)
    ]
    if not fitting:
        return None
    return fitting[-1] if max_error is None else fitting[0]
