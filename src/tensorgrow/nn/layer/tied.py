"""A linear layer whose weight is that of another layer: an output head tied to its embedding."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

from ..modules import replace_module
from .tn_layer import TNLayer


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to rows."""
        return F.linear(x, self.weight, self.bias)


def sharers(model: nn.Module, layer: nn.Module) -> dict[str, nn.Linear]:
    """Other linear layers of a model that have the weight of a layer, by name."""
    weight = getattr(layer, "weight", None)
    return {
        name: m
        for name, m in model.named_modules()
        if isinstance(m, nn.Linear) and m is not layer and m.weight is weight
    }


def tie(model: nn.Module, others: Iterable[nn.Linear], source: nn.Module) -> nn.Module:
    """Give linear layers that shared a weight the network in its place; the model is changed."""
    if isinstance(source, TNLayer):
        for layer in others:
            model = replace_module(model, layer, TiedLinear(source, layer.bias).train(layer.training))
    return model
