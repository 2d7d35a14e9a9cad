"""Tensors that are known, and how networks for them are judged without the library."""

from __future__ import annotations

import numpy as np
import torch

from tensorgrow import Structure, TensorNetwork
from tests.oracles import dense, random_network

RING = Structure((4, 5, 4, 3), {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2})


def planted(structure: Structure = RING, seed: int = 1, dtype: torch.dtype = torch.float64) -> np.ndarray:
    x = dense(structure, random_network(structure, seed, dtype).cores)
    return x / np.linalg.norm(x)


def noisy(shape: tuple[int, ...] = (5, 4, 5, 4), seed: int = 0, level: float = 0.3) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    return planted(Structure.tensor_train(shape, 2), seed) + level * noise / np.linalg.norm(noise)


def smooth(shape: tuple[int, ...]) -> np.ndarray:
    grids = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    return 1.0 / (0.3 + sum(grids)) + np.cos(3 * grids[0] * grids[-1])


def error_of(x: np.ndarray, network: TensorNetwork, scale: float = 1.0) -> float:
    """Relative error by plain NumPy in double precision; `scale` is divided out first."""
    wide = np.complex128 if np.asarray(x).dtype.kind == "c" else np.float64
    x = np.asarray(x).astype(wide) / scale
    share = scale ** (1.0 / network.structure.num_nodes)
    cores = [np.asarray(c.resolve_conj().numpy()).astype(wide) / share for c in network.cores]
    return float(np.linalg.norm(x - dense(network.structure, cores)) / np.linalg.norm(x))


def tt_svd(x: np.ndarray, rank: int) -> tuple[int, float]:
    """Parameters and error of the uniform-rank TT-SVD."""
    rest, left, cores = x.reshape(1, -1), 1, []
    for n in x.shape[:-1]:
        u, s, vh = np.linalg.svd(rest.reshape(left * n, -1), full_matrices=False)
        r = min(rank, len(s))
        cores.append(u[:, :r].reshape(left, n, r))
        rest, left = s[:r, None] * vh[:r], r
    cores.append(rest.reshape(left, x.shape[-1], 1))
    out = cores[0]
    for core in cores[1:]:
        out = np.tensordot(out, core, 1)
    return sum(c.size for c in cores), float(np.linalg.norm(out.reshape(x.shape) - x) / np.linalg.norm(x))


def is_same_run(a, b):
    return (
        a.structure == b.structure
        and a.relative_error == b.relative_error
        and [s.structure for s in a.history] == [s.structure for s in b.history]
        and all(torch.equal(u, v) for u, v in zip(a.network.cores, b.network.cores))
    )
