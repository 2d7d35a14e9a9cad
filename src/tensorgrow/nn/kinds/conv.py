"""Convolutions: a row of the matrix meets a patch of the input."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import nn

from ..layer.conv import ConvApplication, TNConv1d, TNConv2d, TNConv3d, conv_layout, form_of
from ..layer.layout import Layout
from .kind import Kind, like_data, useful
from .linear import default_layouts
from .statistics import Inputs, Moments

C = TypeVar("C", bound=nn.Conv1d | nn.Conv2d | nn.Conv3d)

# Patches of a batch that moments are taken over, at most: neighbours overlap and say little new, and their
# second moment takes (channels * kernel)^2 multiplications for each.
PATCHES = 1 << 14


class ConvKind(Kind[C]):
    """Convolutions in some number of dimensions."""

    output_axis = 1

    def application(self, module: C) -> ConvApplication:
        return ConvApplication(form_of(module))

    def refusal(self, module: C) -> str:
        reason = super().refusal(module)
        if not reason and module.groups > 1 and min(module.in_channels, module.out_channels) <= module.groups:
            return f"each of its {module.groups} groups has one channel, and there is nothing to factorise"
        return reason

    def layouts(self, module: C) -> list[Layout]:
        """Channels and the kernel whole; channels in digits near 16, separate, and near 4, paired."""
        channels, volume = module.in_channels // module.groups, form_of(module).volume
        if volume == 1:
            return default_layouts(channels, module.out_channels)
        return useful(
            [
                Layout((channels, volume), (module.out_channels,), paired=False),
                conv_layout(module, paired=False),
                conv_layout(module, paired=True, base=4),
            ]
        )

    def statistics(self, module: C) -> Moments:
        return Moments(lambda x: patches(module, x), centred=module.bias is not None)

    def example(self, module: C, inputs: Inputs | None) -> torch.Tensor:
        return like_data(self._shape(module, inputs), module.weight)

    def rows(self, module: C, inputs: Inputs | None) -> int:
        shape = self._shape(module, inputs)
        return max(1, math.prod(shape) // (module.in_channels * form_of(module).stride))

    def _shape(self, module: C, inputs: Inputs | None) -> tuple[int, ...]:
        """Of the calibration data, or a small feature map that the kernel fits in twice."""
        kernel: tuple[int, ...] = module.kernel_size
        if inputs is not None and len(inputs.shape) > len(kernel):
            return inputs.shape
        reach = max(d * k for d, k in zip(module.dilation, kernel))
        return (1, module.in_channels, *[max(14, 2 * reach)] * len(kernel))


class Conv1dKind(ConvKind[nn.Conv1d]):
    """``nn.Conv1d``."""

    dense = nn.Conv1d
    layer = TNConv1d


class Conv2dKind(ConvKind[nn.Conv2d]):
    """``nn.Conv2d``."""

    dense = nn.Conv2d
    layer = TNConv2d


class Conv3dKind(ConvKind[nn.Conv3d]):
    """``nn.Conv3d``."""

    dense = nn.Conv3d
    layer = TNConv3d


def patches(conv: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: torch.Tensor) -> torch.Tensor:
    """What the kernel sees, of shape ``(groups, patches, channels / groups * kernel)``; some where many."""
    dims = len(conv.kernel_size)
    batch = x if x.dim() == dims + 2 else x[None]
    # Torch has the padding of every convolution, "same" included, ready for `pad`.
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    batch = F.pad(batch, list(conv._reversed_padding_repeated_twice), mode=mode)
    for axis in range(dims):
        reach = conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1
        batch = batch.unfold(2 + axis, reach, conv.stride[axis])[..., :: conv.dilation[axis]]
    # batch, channels, positions, kernel; still without a copy
    positions = batch.shape[2 : 2 + dims]
    count = batch.shape[0] * math.prod(positions)
    places = torch.arange(count, device=x.device)
    if count > PATCHES:
        places = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:PATCHES].to(x.device)
    index = torch.unravel_index(places, (batch.shape[0], *positions))
    moved = batch.movedim(1, 1 + dims)  # batch, positions, channels, kernel
    rows = moved[index].reshape(len(places), conv.groups, -1)
    return rows.transpose(0, 1)
