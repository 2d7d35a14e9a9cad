"""Samples with responses, and networks of coefficients."""

from __future__ import annotations

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.structure import Structure
from tests import oracles

PLANTED = {
    "tt": Structure.tensor_train((4, 5, 4, 5), 2),
    "tr": Structure.tensor_ring((5, 5, 5, 5), 2),
    "triangle": Structure((5,) * 4, {(0, 1): 2, (1, 2): 2, (0, 2): 2, (2, 3): 3}),
}


def data(structure: Structure, count: int, dtype=torch.float64, seed: int = 0):
    rng = np.random.default_rng(seed)
    several = len(structure.dims) > 4
    shape = structure.dims[:-1] if several else structure.dims
    x = oracles.random_array(rng, (count, *shape), dtype)
    y = oracles.random_array(rng, (count, *structure.dims[len(shape) :]), dtype)
    return x, y


def responses(x, dense: np.ndarray) -> np.ndarray:
    x = oracles.to_numpy(x)
    return np.tensordot(x, dense, x.ndim - 1)


def planted(structure: Structure, count: int, noise: float, seed: int):
    rng = np.random.default_rng(seed)
    w = tg.TensorNetwork.random(structure, random_state=seed).to_dense().numpy()
    w /= np.linalg.norm(w)
    x = rng.standard_normal((count, *structure.dims))
    y = responses(x, w)
    return x, y + noise * rng.standard_normal(count), w
