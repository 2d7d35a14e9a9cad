"""Convolutions: a row of the matrix meets a patch of the input."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from ..layer.conv import Conv, ConvApplication, TNConv, conv_layout, form_of
from ..layer.layout import Layout
from .kind import Kind, like_data, useful
from .linear import default_layouts
from .statistics import Inputs, Moments

# Patches of a batch that moments are taken over, at most: neighbours overlap and say little new, and their
# second moment takes (channels * kernel)^2 multiplications for each.
PATCHES = 1 << 14


class ConvKind(Kind[Conv]):
    """Convolutions in the number of dimensions that `layer` has."""

    output_axis = 1

    def __init__(self, layer: type[TNConv]) -> None:
        self.layer = layer

    def application(self, module: Conv) -> ConvApplication:
        return ConvApplication(form_of(module))

    def refusal(self, module: Conv) -> str:
        reason = super().refusal(module)
        if not reason and module.groups > 1 and min(module.in_channels, module.out_channels) <= module.groups:
            return f"each of its {module.groups} groups has one channel, and there is nothing to factorise"
        return reason

    def layouts(self, module: Conv) -> list[Layout]:
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

    def statistics(self, module: Conv) -> Moments:
        return Moments(lambda x: patches(module, x), centred=module.bias is not None)

    def example(self, module: Conv, inputs: Inputs | None) -> torch.Tensor:
        return like_data(self._shape(module, inputs), module.weight)

    def rows(self, module: Conv, inputs: Inputs | None) -> int:
        shape = self._shape(module, inputs)
        return max(1, math.prod(shape) // (module.in_channels * form_of(module).stride))

    def _shape(self, module: Conv, inputs: Inputs | None) -> tuple[int, ...]:
        """Of the calibration data, or a small feature map that the kernel fits in twice."""
        kernel: tuple[int, ...] = module.kernel_size
        if inputs is not None and len(inputs.shape) > len(kernel):
            return inputs.shape
        reach = max(d * k for d, k in zip(module.dilation, kernel))
        return (1, module.in_channels, *[max(14, 2 * reach)] * len(kernel))


def patches(conv: Conv, x: torch.Tensor) -> torch.Tensor:
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
