"""A frozen layer with a network beside it, whose outputs are added."""

from __future__ import annotations

import copy

import torch
from torch import nn

from ...network import RandomState
from ..layer.layout import Layout
from ..layer.linear import TNLinear
from ..modules import count_parameters


class Adapter(nn.Module):
    r"""``y = x (W + D)^T + b`` with a frozen layer ``(W, b)`` and a tensor network `D` that starts at zero.

    `D` is a `TNLinear` without a bias, so that `tensorgrow.nn.grow` grows it like any other.

    Parameters
    ----------
    base
        The layer to adapt. It is frozen, and used as it is: copy it first to keep your own.
    layout
        Digits of the network's legs; by default those of a new `TNLinear`.
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
        base: nn.Linear,
        *,
        layout: Layout | None = None,
        budget: int | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        layout = layout or Layout.choose(base.in_features, base.out_features)
        self.base = base.requires_grad_(False)
        self.budget = budget
        self.delta = TNLinear(
            base.in_features,
            base.out_features,
            in_dims=layout.in_dims,
            out_dims=layout.out_dims,
            paired=layout.paired,
            bias=False,
            device=base.weight.device,
            dtype=base.weight.dtype if dtype is None else dtype,
            random_state=random_state,
        )
        # One core of zeros makes the product zero, and is the only one that has a gradient then: the largest,
        # so that the first steps have the most to choose from.
        sizes = [core.numel() for core in self.delta.cores]
        with torch.no_grad():
            self.delta.cores[sizes.index(max(sizes))].zero_()
        self.train(base.training)

    @property
    def in_features(self) -> int:
        """Size of an input row."""
        return self.base.in_features

    @property
    def out_features(self) -> int:
        """Size of an output row."""
        return self.base.out_features

    @property
    def weight(self) -> torch.Tensor:
        """The adapted weight, differentiable with respect to the network."""
        return self.base.weight + self.delta.weight.to(self.base.weight.dtype)

    @property
    def bias(self) -> torch.Tensor | None:
        """Of the base."""
        return self.base.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to rows: ``(..., in_features)`` to ``(..., out_features)``."""
        out: torch.Tensor = self.base(x)
        # Under autocast operations choose their own precision.
        rows = x if torch.is_autocast_enabled(x.device.type) else x.to(self.delta.cores[0].dtype)
        return out + self.delta(rows).to(out.dtype)

    @torch.no_grad()
    def merge(self) -> nn.Linear:
        """A dense layer with the same function; its parameters can be trained."""
        layer = copy.deepcopy(self.base).requires_grad_(True)
        # The sum is rounded once.
        total = self.base.weight.double() + self.delta.weight.double()
        layer.weight.copy_(total)
        return layer.train(self.training)


def adapters(model: nn.Module) -> dict[str, Adapter]:
    """The adapters of a model by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, Adapter)}


def size_limit(model: nn.Module) -> int | None:
    """Parameters that a model with adapters may have, by the budget they were made with; None: any number."""
    found = list(adapters(model).values())
    budgets = [a.budget for a in found if a.budget is not None]
    if not budgets:
        return None
    return count_parameters(model) - sum(a.delta.num_parameters for a in found) + min(budgets)
