"""Linear layers: the matrix is the weight, a row of it meets a row of the input."""

from __future__ import annotations

import torch
from torch import nn

from ..layer.layout import Layout, digit_count, digits
from ..layer.linear import LinearApplication, TNLinear
from .kind import ROWS, Kind, like_data, useful
from .statistics import Inputs, Moments


class LinearKind(Kind[nn.Linear]):
    """``nn.Linear``."""

    layer = TNLinear

    def application(self, module: nn.Linear) -> LinearApplication:
        return LinearApplication()

    def layouts(self, module: nn.Linear) -> list[Layout]:
        return default_layouts(module.in_features, module.out_features)

    def statistics(self, module: nn.Linear) -> Moments:
        return Moments(lambda x: x.reshape(1, -1, x.shape[-1]), centred=module.bias is not None)

    def example(self, module: nn.Linear, inputs: Inputs | None) -> torch.Tensor:
        return like_data((ROWS, module.in_features), module.weight)


def default_layouts(in_features: int, out_features: int) -> list[Layout]:
    """Digits near 4 and near 16, paired; digits near 16, separate."""
    layouts = []
    for base, paired in ((4, True), (16, True), (16, False)):
        count = digit_count(max(in_features, out_features), base)
        layouts.append(Layout(digits(in_features, count), digits(out_features, count), paired))
    return useful(layouts)
