from __future__ import annotations

import math

import numpy as np
import torch

from tensorgrow.contraction import RowTree
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import ObservedLeastSquares
from tensorgrow.structure import Structure
from tests.oracles import (
    environment,
    matricize,
    random_array,
    to_numpy,
)

RING = Structure.tensor_ring((4, 5, 3, 4), (2, 3, 2, 2))


TRAIN = Structure.tensor_train((4, 5, 3, 4), 2)


TUCKER = Structure.tucker((4, 5, 3), (2, 3, 2))


class Data:
    """Some entries of a random tensor, and a copy of everything as dense NumPy arrays.

    `weight` is 0 where nothing is fitted.
    """

    def __init__(
        self,
        dims,
        seed: int,
        dtype: torch.dtype = torch.float64,
        *,
        share: float = 0.6,
        weighted: bool = True,
        hold_out: float = 0.2,
        target: torch.Tensor | None = None,
        device: str = "cpu",
        ridge: float = 0.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.dense = random_array(rng, dims, dtype) if target is None else target
        seen = rng.random(dims) < share
        seen[(0,) * len(dims)] = True  # at least one entry
        where = np.argwhere(seen)
        rng.shuffle(where)
        self.indices = torch.tensor(where)
        self.values = self.dense[tuple(self.indices.T)]
        held = rng.random(len(where)) < hold_out
        held[0] = False
        self.held = torch.tensor(held)
        real = self.values.real.dtype
        weights = torch.tensor(rng.uniform(0.2, 3.0, len(where)), dtype=real) if weighted else None
        self.weight = np.zeros(dims)
        fitted = tuple(self.indices[~self.held].T.numpy())
        self.weight[fitted] = 1.0 if weights is None else weights[~self.held].double().numpy()
        self.weights, self.ridge, self.device = weights, ridge, device
        self.objective = self.make()

    def make(self) -> ObservedLeastSquares:
        """A new objective of these entries."""
        return ObservedLeastSquares(
            self.indices.to(self.device),
            self.values.to(self.device),
            self.dense.shape,
            weights=None if self.weights is None else self.weights.to(self.device),
            held_out=self.held.to(self.device) if self.held.any() else None,
            ridge=self.ridge,
        )

    def design(self, network: TensorNetwork, node: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For every slice of a node: rows of the environment and values, by the root of the weights."""
        structure = network.structure
        env = environment(structure, network.cores, node)
        target = matricize(structure, self.dense, node)
        root = np.sqrt(matricize(structure, self.weight, node))
        return [
            ((env[:, w > 0] * w[w > 0]).T, t[w > 0] * w[w > 0])
            for t, w in zip(target, root)
        ]  # fmt: skip

    def loss(self, tensor: np.ndarray) -> float:
        rest = to_numpy(self.dense) - tensor
        return float(np.linalg.norm(np.sqrt(self.weight) * rest))


def best_core(data: Data, network: TensorNetwork, node: int, ridge: float) -> np.ndarray:
    """The core by NumPy's SVD-based solver, with a ridge relative to the mean diagonal of all Grams."""
    structure = network.structure
    shape = structure.core_shape(node)
    design = data.design(network, node)
    width = math.prod(shape[1:])
    mean = sum(np.linalg.norm(a) ** 2 for a, _ in design) / (len(design) * width)
    extra = math.sqrt(ridge * mean) * np.eye(width)
    found = [np.linalg.lstsq(np.r_[a, extra], np.r_[y, np.zeros(width)], rcond=None)[0] for a, y in design]
    filled = [x for x, (a, _) in zip(found, design) if len(a)]
    return np.stack([x if len(a) else np.mean(filled, 0) for x, (a, _) in zip(found, design)]).reshape(shape)


def arrays_of(data: Data, network: TensorNetwork) -> list[torch.Tensor]:
    return [a.clone() for a in data.objective.to_arrays(network)]


def slice_equations(objective: ObservedLeastSquares, network: TensorNetwork, node: int, add: str = "sums"):
    """Gram matrices of all slices of a node and right-hand sides, bonds in the order of the core."""
    structure = network.structure
    tree = RowTree(objective.index.entries, structure, objective.to_arrays(network))
    source, table = tree.environment(node), objective.index.table(node)
    gram, rhs = getattr(table, add)(source, objective.values, 0, table.size)
    sizes = [structure.ranks[e] for e in source.edges]
    back = [source.edges.index(e) for e in structure.edges_of(node)]
    gram = gram.reshape(table.size, *sizes, *sizes)
    gram = gram.permute(0, *(1 + b for b in back), *(1 + len(back) + b for b in back))
    rhs = rhs.reshape(table.size, *sizes).permute(0, *(1 + b for b in back))
    return gram.contiguous(), rhs.contiguous()
