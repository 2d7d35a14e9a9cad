"""The calls by name, and the data that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg

from .reading import read_result

Call = Callable[[Path], dict[str, Any]]
CALLS: dict[str, Call] = {}

TRAIN = tg.Structure.tensor_train((5, 6, 5, 4), 2)
RING = tg.Structure.tensor_ring((5, 5, 5, 4), 2)
TUCKER = tg.Structure.tucker((7, 7, 7, 7), 2)
SMALL = tg.Structure.tensor_ring((5, 6, 5), 2)
LAZY = tg.Structure.tensor_train((12, 10, 11, 9), (2, 3, 2))


def golden(name: str) -> Callable[[Call], Call]:
    """Add a call under this name."""

    def add(call: Call) -> Call:
        if name in CALLS:
            raise ValueError(f"the name {name} is taken")
        CALLS[name] = call
        return call

    return add


def simple(name: str, run: Callable[[], Any]) -> None:
    """Add a call that gives a `Result` and needs no folder."""
    golden(name)(lambda folder: read_result(run()))


# -- data ----------------------------------------------------------------------------------------------


def planted(structure: tg.Structure, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """The dense tensor of a random network of this structure, of norm one per entry."""
    rng = np.random.default_rng(seed)
    cores = [rng.standard_normal(s) for s in structure.core_shapes]
    if np.dtype(dtype).kind == "c":
        cores = [c + 1j * rng.standard_normal(c.shape) for c in cores]
    x = tg.TensorNetwork(structure, [torch.from_numpy(c) for c in cores]).to_dense().numpy()
    return (x * (np.sqrt(x.size) / np.linalg.norm(x))).astype(dtype)


def noisy(structure: tg.Structure, size: float = 0.05, seed: int = 0) -> np.ndarray:
    """A planted tensor with noise."""
    x = planted(structure, seed)
    return x + size * np.random.default_rng(seed + 1).standard_normal(x.shape)


def seen(dims: Sequence[int], share: float = 0.7, seed: int = 0) -> np.ndarray:
    """A mask that is True for about this share of the entries."""
    return np.random.default_rng(seed + 7).random(tuple(dims)) < share


def start(structure: tg.Structure, seed: int = 3) -> tg.TensorNetwork:
    """A network to start from."""
    rng = np.random.default_rng(seed)
    return tg.TensorNetwork(
        structure, [torch.from_numpy(rng.standard_normal(s)) for s in structure.core_shapes]
    )
