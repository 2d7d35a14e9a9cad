"""Layers that share a weight: an output head tied to its embedding, tables of two languages."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

from ..modules import move_hooks, replace_module
from .tn_layer import TNLayer
from .tokens import embedding_refusal


class TiedLinear(nn.Module):
    """``y = x W^T + b`` with the weight of `source`, which is rebuilt from its cores for every input.

    Parameters
    ----------
    source
        A layer with a network as weight, such as a `TNEmbedding`; it is shared, not copied.
    bias
        Of this layer alone; None: there is none.
    """

    bias: nn.Parameter | None

    def __init__(self, source: TNLayer, bias: nn.Parameter | None) -> None:
        super().__init__()
        self.source = source
        self.register_parameter("bias", bias)

    @property
    def weight(self) -> torch.Tensor:
        """The dense weight of the source, differentiable."""
        weight = self.source.weight
        assert isinstance(weight, torch.Tensor)
        return weight

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply to rows."""
        return F.linear(input, self.weight, self.bias)


def linear_like(dense: nn.Module) -> nn.Linear:
    """A dense linear layer with the very weight of another dense layer."""
    weight = dense.weight
    assert isinstance(weight, nn.Parameter)
    rows, columns = weight.shape
    linear = nn.Linear(columns, rows, bias=False, device="meta")
    linear.weight = weight
    return linear


def weight_key(layer: nn.Module) -> int:
    """The same for layers that share a weight, and no others; one that is computed belongs to its layer."""
    weight = layer._parameters.get("weight")
    return id(layer if weight is None else weight)


def holders(model: nn.Module, layer: nn.Module) -> dict[str, nn.Module]:
    """Other modules of a model that have the weight of a layer as a parameter, by name."""
    weight = layer._parameters.get("weight")
    if weight is None:
        return {}
    return {
        name: m
        for name, m in model.named_modules()
        if m is not layer and any(p is weight for p in m._parameters.values())
    }


def sharers(model: nn.Module, layer: nn.Module) -> dict[str, nn.Module]:
    """Those of them that can have its network in place of the weight: linear layers, and tables like it."""
    return {name: m for name, m in holders(model, layer).items() if _can_share(m, layer)}


def _can_share(other: nn.Module, layer: nn.Module) -> bool:
    if isinstance(other, nn.Linear):
        return True
    if not isinstance(other, nn.Embedding) or not isinstance(layer, nn.Embedding):
        return False
    return other.padding_idx == layer.padding_idx and not embedding_refusal(other)


def tie(model: nn.Module, others: Iterable[nn.Module], source: nn.Module) -> nn.Module:
    """Give layers that shared a weight the network in its place; the model is changed."""
    if isinstance(source, TNLayer):
        for layer in others:
            tied: nn.Module = source  # a table has nothing of its own but its weight
            if isinstance(layer, nn.Linear):
                tied = TiedLinear(source, layer.bias).train(layer.training)
                move_hooks(layer, tied)
            model = replace_module(model, layer, tied)
    return model
