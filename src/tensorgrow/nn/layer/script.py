"""A layer in a form that TorchScript compiles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .products import Plan


class ScriptLinear(nn.Module):
    """What ``torch.jit.script`` compiles in place of a `TNLinear`: the weight is rebuilt for every input.

    TorchScript knows neither structures nor plans that depend on the number of rows, so that the products
    which build the weight are lists of numbers here. The parameters are those of the layer, by the same
    names.
    """

    def __init__(
        self, cores: nn.ParameterList, bias: nn.Parameter | None, input_scale: nn.Parameter | None, plan: Plan
    ) -> None:
        super().__init__()
        self.cores, self.bias, self.input_scale = cores, bias, input_scale
        products = plan.products
        self.inputs = _lists(plan.inputs)
        self.operands = _lists((p.left, p.right) for p in products)
        self.left_orders = _lists(p.left_order or () for p in products)
        self.right_orders = _lists(p.right_order or () for p in products)
        self.left_shapes = _lists(p.left_shape for p in products)
        self.right_shapes = _lists(p.right_shape for p in products)
        self.shapes = _lists(p.shape for p in products)
        self.order = torch.jit.Attribute(list(plan.order or ()), list[int])
        self.shape = torch.jit.Attribute(list(plan.shape), list[int])

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply to rows: ``(..., in_features)`` to ``(..., out_features)``."""
        x = input
        pool: list[torch.Tensor] = []
        for k, core in enumerate(self.cores):
            pool.append(core.reshape(self.inputs[k]))
        for k, pair in enumerate(self.operands):
            a, b = pool[pair[0]], pool[pair[1]]
            if len(self.left_orders[k]) > 0:
                a = a.permute(self.left_orders[k])
            if len(self.right_orders[k]) > 0:
                b = b.permute(self.right_orders[k])
            # A stack of matrices on the right has three axes, which the product takes care of.
            product = torch.matmul(a.reshape(self.left_shapes[k]), b.reshape(self.right_shapes[k]))
            pool.append(product.reshape(self.shapes[k]))
        weight = pool[-1]
        if len(self.order) > 0:
            weight = weight.permute(self.order)
        weight = weight.reshape(self.shape)
        if self.input_scale is not None:
            weight = weight * self.input_scale
        return F.linear(x, weight, self.bias)


def _lists(rows: Iterable[Iterable[int]]) -> Any:
    return torch.jit.Attribute([list(row) for row in rows], list[list[int]])
