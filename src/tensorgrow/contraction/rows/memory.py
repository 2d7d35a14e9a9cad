"""Memory for large results."""

from __future__ import annotations

import numpy as np
import torch


def allocate(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Fresh memory; on the CPU from NumPy, which asks the system for huge pages.

    Mapping fresh memory in small pages takes several times longer than filling it.
    """
    if like.device.type != "cpu":
        return like.new_empty(shape)
    return torch.from_numpy(np.empty(shape, like.new_empty(0).numpy().dtype))


def reshape(array: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Like ``array.reshape(shape)``; a strided array is copied to memory from `allocate`."""
    if array.is_contiguous():
        return array.view(shape)
    return allocate(tuple(array.shape), array).copy_(array).view(shape)
