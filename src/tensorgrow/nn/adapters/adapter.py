"""A frozen layer with a network beside it, whose outputs are added."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ...network import RandomState
from ...structure import Structure
from ..kinds.catalogue import known_kind
from ..layer.layout import Layout
from ..modules import count_parameters


class Adapter(nn.Module):
    """A frozen layer of weight `W` that acts as one of weight ``W + D``; the network `D` starts at zero.

    `D` is a layer of its own, `delta` (a `TNLinear`, `TNConv2d`, `TNEmbedding` ... without a bias), so that
    `tensorgrow.nn.grow` grows it like any other.

    Parameters
    ----------
    base
        The layer to adapt. It is frozen, and used as it is: copy it first to keep your own.
    layout
        Digits of the network's legs.
    budget
        Numbers that the adapters of a model may have together; `tensorgrow.nn.grow` stops there unless it is
        told otherwise. None: any.
    dtype
        Of the network; by default that of the layer.
    random_state
        Seed or generator of the first values.
    """

    def __init__(
        self,
        base: nn.Module,
        layout: Layout,
        *,
        budget: int | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.budget = budget
        structure, kind = Structure.rank_one(layout.dims), known_kind(base)
        delta = kind.layer.untrained(base, layout, structure, input_scale=False, random_state=random_state)
        delta.bias = None
        self.delta = delta.to(dtype=dtype or delta.cores[0].dtype).requires_grad_(True)
        # One core of zeros makes the product zero, and is the only one that has a gradient then: the largest,
        # so that the first steps have the most to choose from.
        sizes = [core.numel() for core in delta.cores]
        with torch.no_grad():
            delta.cores[sizes.index(max(sizes))].zero_()
        self.train(base.training)

    @property
    def weight(self) -> torch.Tensor:
        """The sum of both weights, differentiable with respect to the network."""
        own, added = self.base.weight, self.delta.weight
        assert isinstance(own, torch.Tensor) and isinstance(added, torch.Tensor)
        return own + added.to(own.dtype)

    @property
    def bias(self) -> torch.Tensor | None:
        """That of the layer; None where it has none."""
        bias = getattr(self.base, "bias", None)
        return bias if isinstance(bias, torch.Tensor) else None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """What the layer makes of its input, and what the network adds to it."""
        x = input  # named as in torch's layers, for those who pass it by name
        out: torch.Tensor = self.base(x)
        if x.is_floating_point() and not torch.is_autocast_enabled(x.device.type):
            x = x.to(self.delta.cores[0].dtype)
        added: torch.Tensor = self.delta(x)
        return out + added.to(out.dtype)

    @torch.no_grad()
    def merge(self) -> nn.Module:
        """The layer with the sum of both as its weight; that can be trained again."""
        base, added = self.base, self.delta.weight
        layer = base.merge() if isinstance(base, Adapter) else copy.deepcopy(base)
        own = layer.weight
        assert isinstance(own, torch.Tensor) and isinstance(added, torch.Tensor)
        total = (own.double() + added.double()).to(own.dtype)  # rounded once
        if "weight" not in layer._parameters:  # it is computed from others, which would undo the sum
            layer = self.delta.to_dense()
            if self.bias is not None:
                layer.bias = nn.Parameter(self.bias.detach().clone())
        layer.weight = nn.Parameter(total)
        return layer.requires_grad_(True).train(self.training)


def adapter_layers(model: nn.Module) -> dict[str, Adapter]:
    """The adapters of a model by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, Adapter)}


def size_limit(model: nn.Module) -> int | None:
    """Parameters that a model with adapters may have, by the budget they were made with; None: any number."""
    found = list(adapter_layers(model).values())
    budgets = [a.budget for a in found if a.budget is not None]
    if not budgets:
        return None
    return count_parameters(model) - sum(a.delta.num_parameters for a in found) + min(budgets)
