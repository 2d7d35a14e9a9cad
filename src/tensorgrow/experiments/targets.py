"""Synthetic targets with a planted structure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..network import TensorNetwork
from ..structure import Edge, Structure

DIMS = (7,) * 5
# Relative error at which a planted tensor counts as recovered, as in the paper.
PLANTED_ERROR = 1e-6
# The four targets of the paper.
TARGETS = {
    "tt": Structure.tensor_train(DIMS, (2, 3, 6, 5)),
    "tr": Structure.tensor_ring(DIMS, (2, 3, 4, 5, 5)),
    "tucker": Structure.tucker(DIMS, (2, 3, 4, 3, 2)),
    "triangle": Structure(DIMS, {(0, 1): 5, (1, 2): 2, (2, 3): 5, (1, 4): 2, (2, 4): 2}),
}


def planted_tensor(structure: Structure, seed: int, is_complex: bool = False) -> torch.Tensor:
    """The tensor of a network with standard normal cores, scaled to norm 1."""
    dtype = torch.complex128 if is_complex else torch.float64
    x = TensorNetwork.random(structure, random_state=seed, dtype=dtype).to_dense()
    return x.div_(torch.linalg.vector_norm(x))


def positive_tensor(structure: Structure, seed: int) -> torch.Tensor:
    """The tensor of a network with cores uniform between 0 and 1, scaled to norm 1."""
    generator = torch.Generator().manual_seed(seed)
    cores = [torch.rand(s, dtype=torch.float64, generator=generator) for s in structure.core_shapes]
    x = TensorNetwork(structure, cores).to_dense()
    return x.div_(torch.linalg.vector_norm(x))


def random_graph(dims: Sequence[int], num_edges: int, rng: np.random.Generator) -> Structure:
    """A random spanning tree plus random further edges, ranks 2 or 3."""
    order = len(dims)
    nodes = rng.permutation(order)
    edges: set[Edge] = set()
    for k in range(1, order):
        a, b = int(nodes[k]), int(nodes[rng.integers(k)])
        edges.add((min(a, b), max(a, b)))
    free = [(i, j) for i in range(order) for j in range(i + 1, order) if (i, j) not in edges]
    edges |= {free[k] for k in rng.permutation(len(free))[: num_edges - len(edges)]}
    return Structure(dims, {e: int(rng.integers(2, 4)) for e in sorted(edges)})
