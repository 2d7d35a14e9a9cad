from __future__ import annotations

import numpy as np
import torch

import tensorgrow as tg

HARD = [
    tg.Structure((5,)),
    tg.Structure((3, 4)),  # nothing joined: cores without bonds
    tg.Structure((1, 3, 1), {(0, 1): 2}),  # modes of size one keep their leg
    tg.Structure((2, 3), num_nodes=4),  # internal nodes that are only a number
    tg.Structure((2, 3, 4), {(0, 3): 2, (1, 3): 3, (3, 4): 2, (2, 4): 2}),
    tg.Structure((2, 2, 2, 2), {(0, 1): 2, (2, 3): 2}),  # two parts
    tg.Structure.hierarchical_tucker((2, 3, 2, 3), 2),
    tg.Structure.complete((2, 3, 2, 3), 2),
]


def same(a: tg.TensorNetwork, b: tg.TensorNetwork) -> None:
    """Same structure, dtype and numbers, to the last bit."""
    assert a.structure == b.structure
    assert a.dtype == b.dtype
    for x, y in zip(a.cores, b.cores):
        assert torch.equal(x, y)


def close(dense: object, network: tg.TensorNetwork, tolerance: float = 1e-12) -> None:
    expected = network.to_dense().numpy()
    assert np.shape(dense) == expected.shape
    scale = np.linalg.norm(expected) or 1.0
    assert np.linalg.norm(np.asarray(dense) - expected) <= tolerance * scale
