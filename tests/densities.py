"""Small densities whose every probability is known."""

import itertools

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.structure import Structure
from tests.oracles import random_network, to_numpy

KINDS = ("born", "nonnegative")
RING = Structure.tensor_ring((2, 3, 2, 2), 2)


def make(structure, seed, kind, dtype=torch.float64):
    network = random_network(structure, seed, dtype)
    if kind == "nonnegative":
        network = tg.TensorNetwork(structure, [c.abs() for c in network.cores])
    return tg.DensityModel(network, kind)


def table(model) -> np.ndarray:
    """Every probability, without the library's contractions."""
    cores = [to_numpy(c) for c in model.network.cores]
    equation, _ = model.network.einsum()
    dense = np.einsum(equation, *cores, optimize=True)
    weights = np.abs(dense) ** 2 if model.kind == "born" else dense.real
    return weights / weights.sum()


def everything(dims):
    return np.array(list(itertools.product(*(range(d) for d in dims))))


def bars_and_stripes(side):
    lines = np.array(list(itertools.product((0, 1), repeat=side)))
    bars = np.repeat(lines[:, :, None], side, 2).reshape(len(lines), -1)
    stripes = np.repeat(lines[:, None, :], side, 1).reshape(len(lines), -1)
    return np.unique(np.concatenate([bars, stripes]), axis=0)


def entropy(p):
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())
