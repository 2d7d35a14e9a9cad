"""Networks in the formats that other methods give: chains in any order of the legs, Tucker, CP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..network import TensorNetwork
from ..structure import Structure


def train_network(cores: Sequence[Any], order: Sequence[int]) -> TensorNetwork:
    """A tensor train over the legs in this order, from cores ``(rank, dim, rank)``."""
    tensors = [torch.as_tensor(c) for c in cores]
    dims = [0] * len(order)
    for leg, c in zip(order, tensors):
        dims[leg] = c.shape[1]
    ranks = {(order[k], order[k + 1]): tensors[k].shape[2] for k in range(len(order) - 1)}
    structure = Structure(dims, {(min(e), max(e)): r for e, r in ranks.items()})
    ordered: list[torch.Tensor] = [tensors[0]] * len(order)
    for k, leg in enumerate(order):
        left, right = order[k - 1] if k else -1, order[k + 1] if k + 1 < len(order) else len(order)
        # The leg first, then the edges by ascending neighbour; the ends of the chain have rank 1.
        axes = (1, 0, 2) if left < right else (1, 2, 0)
        ordered[leg] = tensors[k].permute(axes).reshape(structure.core_shape(leg)).contiguous()
    return TensorNetwork(structure, ordered)


def tucker_network(core: Any, factors: Sequence[Any]) -> TensorNetwork:
    """A star around one internal node, from a core and factors ``(dim, rank)``."""
    matrices = [torch.as_tensor(f) for f in factors]
    structure = Structure.tucker([f.shape[0] for f in matrices], [f.shape[1] for f in matrices])
    cores = [*matrices, torch.as_tensor(core)]
    return TensorNetwork(structure, [c.reshape(s).contiguous() for c, s in zip(cores, structure.core_shapes)])


def cp_network(factors: Sequence[Any]) -> TensorNetwork:
    """A CP decomposition, its hyperedge spelled out by a chain of copy tensors.

    An edge joins two nodes here, so the sum over one common index becomes ``order - 2`` internal nodes of
    ``rank^3`` fixed zeros and ones. They are no parameters: `cp_size` counts the factors alone.
    """
    matrices = [torch.as_tensor(f) for f in factors]
    dims = tuple(f.shape[0] for f in matrices)
    p, rank = len(dims), matrices[0].shape[1]
    if p == 1 or rank == 1:
        scalar = Structure.rank_one(dims)
        return TensorNetwork(scalar, [f.sum(1) if p == 1 else f[:, 0] for f in matrices])
    if p == 2:
        return TensorNetwork(Structure(dims, {(0, 1): rank}), matrices)
    # Copy node p + k joins leg k + 1, what came before, and what follows.
    ranks = {(0, p): rank, (p - 1, 2 * p - 3): rank}
    ranks |= {(k + 1, p + k): rank for k in range(p - 2)}
    ranks |= {(p + k, p + k + 1): rank for k in range(p - 3)}
    structure = Structure(dims, ranks)
    copy = matrices[0].new_zeros((rank,) * 3)
    copy[(torch.arange(rank),) * 3] = 1.0
    return TensorNetwork(structure, [*matrices, *([copy[None]] * (p - 2))])


def cp_size(dims: Sequence[int], rank: int) -> int:
    """Parameters of a CP decomposition, weights absorbed into a factor."""
    return rank * sum(dims)


def tucker_ranks(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    """One rank for all modes, no larger than the mode."""
    return tuple(min(rank, d) for d in dims)


def capped_train(dims: Sequence[int], rank: int) -> Structure:
    """A tensor train of uniform rank, no larger anywhere than a cut allows."""
    cuts = [min(math.prod(dims[:k]), math.prod(dims[k:])) for k in range(1, len(dims))]
    return Structure.tensor_train(tuple(dims), [min(rank, c) for c in cuts])
