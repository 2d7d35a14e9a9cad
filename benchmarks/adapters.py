"""A transformer of characters adapted to another text: grown networks beside low-rank updates (LoRA).

The base is the model of `transformer`, trained on the text in lower case (2,000 steps). It is then adapted to
the text as it is printed, where names of speakers and beginnings of lines are in capitals, with all its own
parameters frozen but for the adapters:

* grown: `nn.adapt` and `nn.grow` by gradients to a budget, then `nn.fine_tune`;
* lora: ``W + B A`` beside every linear layer, `B` zero at the start, one rank for all layers.

Both train by AdamW for the same number of steps and batches; the held-out twentieth of the text chooses the
epoch, and another one is only measured. Budgets are those of LoRA at ranks 1, 2, 4 and 8. "none" is the base on
the new text, "full" all of its parameters trained as long.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, mean, stopwatch
from tensorgrow.nn.modules import replace_module
from tensorgrow.solvers import TrainingOptions

from .benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from .characters import BATCH, WINDOWS, Text, character_loss, make_text, quality, read_text, train_base, tune

__all__ = ["BENCHMARK"]

WAYS = ("none", "full", "lora", "grown")
RATE = 3e-3


class LowRank(nn.Module):
    """A frozen linear layer and an update of low rank (Hu et al., 2021), scaled by one."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        kind = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.down = nn.Parameter(torch.empty(rank, base.in_features, **kind))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, **kind))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + x @ self.down.T @ self.up.T
        return out


def lora(model: nn.Module, rank: int) -> nn.Module:
    """A frozen copy with an update beside every linear layer but the head."""
    own = copy.deepcopy(model).requires_grad_(False)
    for name in linear_names(own):
        layer = own.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        own = replace_module(own, layer, LowRank(layer, rank))
    return own


def linear_names(model: nn.Module) -> list[str]:
    """Layers that are adapted: all linear ones but the head."""
    return [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "head"]


def trained(model: nn.Module) -> int:
    """Parameters that are not frozen."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def grow(model: nn.Module, text: Text, budget: int, params: Row) -> nn.Module:
    """Growth in short rounds over half of the steps that others are trained for, and training for the rest."""
    adapted = tg.nn.adapt(
        model,
        layers=linear_names(model),
        max_parameters=budget,
        paired=params["paired"],
        dims=params["dims"],
        random_state=params["seed"],
    )
    rounds, windows = params["rounds"], params["epochs"] * len(text.training[0]) // 2
    deltas = tg.nn.tn_layers(adapted)
    costs = [statistics.fmean(m.structure.growth_cost(i, j) for i in range(4) for j in range(i)) for m in deltas.values()]
    count = max(1, math.ceil((budget - trained(adapted)) / (rounds - 1) / statistics.fmean(costs)))
    ranks = -(-count // len(deltas))
    result = tg.nn.grow(
        adapted,
        tuple(part[: windows // rounds] for part in text.training),
        text.validation,
        loss=character_loss,
        max_steps=rounds - 1,
        candidates="gradient",
        edges_per_step=-(-count // ranks),
        training=TrainingOptions(
            optimizer="adamw", learning_rate=RATE, epochs=1, clip=1.0, weight_decay=0.01, patience=1
        ),
        options=tg.GreedyOptions(edge_score="per_parameter", rank_increment=ranks, patience=rounds),
        batch_size=BATCH,
        random_state=params["seed"],
        progress=False,
    )
    return tune(result.model, text, epochs=params["epochs"] // 2, rate=RATE, seed=params["seed"])
