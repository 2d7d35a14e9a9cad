"""A small model that grows, for the tests of this folder."""

from __future__ import annotations

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import GrowResult, TNLinear, grow
from tensorgrow.solvers import TrainingOptions

OPTIONS = TrainingOptions(optimizer="adam", learning_rate=5e-2, epochs=20, candidate_epochs=5)


HIDDEN = tg.Structure((4,) * 4, {(0, 2): 3})


def regression(n: int = 300) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n + 100, 16, generator=generator)
    weight = tg.TensorNetwork.random(HIDDEN, random_state=0, dtype=torch.float32).to_dense().reshape(16, 16)
    y = x @ weight.T
    return (x[:n], y[:n]), (x[n:], y[n:])


def model(*more: nn.Module) -> nn.Module:
    layer = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), paired=False, random_state=0)
    return nn.Sequential(layer, *more)


def run(net: nn.Module | None = None, **options) -> GrowResult:
    train, validation = regression()
    settings = {
        "loss": nn.functional.mse_loss,
        "training": OPTIONS,
        "batch_size": 50,
        "random_state": 1,
        "max_steps": 2,
    }
    return grow(net or model(), train, validation, **(settings | options))


def same(a: GrowResult, b: GrowResult) -> bool:
    strip = {"seconds": 0.0}
    return [s.to_dict() | strip for s in a.history] == [s.to_dict() | strip for s in b.history] and all(
        torch.equal(v, b.model.state_dict()[k]) for k, v in a.model.state_dict().items()
    )
