"""Tensors that the tests of baselines share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorgrow as tg

DIMS = (3, 4, 2, 5)
RING = tg.Structure((3,) * 4, {(0, 2): 2, (1, 2): 2, (1, 3): 2, (0, 3): 2})  # in the order 0-2-1-3


def planted(
    structure: tg.Structure = RING, seed: int = 0, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """The tensor of a random network, of norm 1."""
    x = tg.TensorNetwork.random(structure, random_state=seed, dtype=dtype).to_dense()
    return x / torch.linalg.vector_norm(x)


def noise(seed: int = 0, dims: tuple[int, ...] = DIMS) -> np.ndarray:
    """Independent normal entries."""
    return np.random.default_rng(seed).standard_normal(dims)


def true_error(result: tg.Result, x: Any) -> float:
    """Relative error of the network of a result, in double precision."""
    double = torch.complex128 if result.network.is_complex else torch.float64
    x = torch.as_tensor(x).to(double)
    rest = result.network.to(dtype=double).to_dense() - x
    return float(torch.linalg.vector_norm(rest) / torch.linalg.vector_norm(x))


def demo(name: str) -> tuple[np.ndarray, tg.Structure]:
    """A demo tensor of the authors of TNGA and TNLS, and the structure planted in it."""
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("TENSORGROW_DATA") or root.parent / "shared" / "data") / "tn_demo"
    if not (folder / name).exists():
        pytest.skip("the demo tensors are not here; set TENSORGROW_DATA")
    data = np.load(folder / name)
    x, ranks = data["goal"].astype(float), data["adj_matrix"]
    pairs = [(i, j) for i in range(x.ndim) for j in range(i + 1, x.ndim) if ranks[i, j] > 1]
    return x, tg.Structure(x.shape, {(i, j): int(ranks[i, j]) for i, j in pairs})
