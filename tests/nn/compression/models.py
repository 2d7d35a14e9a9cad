"""Small models to compress, for the tests of this folder."""

from __future__ import annotations

import torch
from torch import nn

from tensorgrow.nn import TNLinear


def planted(noise: float = 0.5) -> TNLinear:
    layer = TNLinear(64, 64, in_dims=(4,) * 3, out_dims=(4,) * 3, random_state=0)
    for edge in [(0, 1), (1, 2), (0, 1)]:
        layer.grow_edge(*edge, noise=noise, random_state=1)
    return layer


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(planted().to_linear(), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5))


# Short without a limit of time, so that a busy machine changes nothing.
# Layers so small are faster as they are.
FAST = {"min_size": 1000, "measure": False, "effort": "fast", "allow_slower": True}


# Shorter still: one tensorised shape for each layer of `small`.
QUICK = {
    **FAST,
    "dims": {"0": ((64,), (8, 8)), "2": ((64,), (8, 6))},
    "paired": False,
}
