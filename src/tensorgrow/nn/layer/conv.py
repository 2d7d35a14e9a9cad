"""Convolutions whose kernel is a tensor network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import nn

from ...errors import DataError, OptionError
from ...network import RandomState
from ...structure import Structure
from ..modules import unfilled
from .application import Application
from .chains import Chain, Convolution, Form, chains, dense_conv_work, run_chain
from .costs import Work
from .keywords import LayerOptions
from .layout import Layout, digit_count, digits, given_digits
from .products import run
from .tn_layer import TNLayer

Size = int | tuple[int, ...]
Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d


class ConvOptions(TypedDict, total=False):
    """What torch's convolutions take too, with the same defaults."""

    stride: Size
    padding: Size | Literal["same", "valid"]
    dilation: Size
    groups: int
    bias: bool
    padding_mode: Literal["zeros", "reflect", "replicate", "circular"]


OPTION_NAMES = ("stride", "padding", "dilation", "groups", "padding_mode")


@dataclass(frozen=True)
class ConvApplication(Application):
    """A convolution; a row is a position of the output, columns of the weight are those of a patch."""

    form: Form

    def ways(self, layout: Layout, structure: Structure, device: str, itemsize: int) -> list[Chain]:
        return chains(layout, structure, self.form)

    def dense_work(self, inputs: int, outputs: int) -> Work:
        return dense_conv_work(inputs, outputs, self.form)

    def input_entries(self, inputs: int, rows: int) -> int:
        return rows * self.form.stride * self.form.groups * inputs // self.form.volume


class TNConv(TNLayer):
    """What convolutions in any number of dimensions have in common.

    The weight, a matrix ``(out_channels, in_channels / groups * kernel)``, has digits of the output channels,
    digits of the input channels, and the kernel as a whole as its last input digit. With ``paired=False``
    that is one leg each. With ``paired=True`` digits of output and input channels share legs, and the
    kernel has its own.

    For every size of input, the layer either goes through a chain of small convolutions (channels mixed,
    the kernel, channels mixed), where the graph allows one, or rebuilds the weight, whichever costs less by
    counted flops and bytes. Networks with paired legs are rebuilt.

    Parameters
    ----------
    in_channels, out_channels, kernel_size
        As for torch's layers.
    in_dims, out_dims
        Digits of the channels (of one group, for the input); by default near 16. Digits of the input may
        include the kernel, their product is then that of channels and kernel.
    structure
        Graph and ranks over the legs ``layout.dims``; by default rank one.
    paired
        Whether digits of output and input share legs.
    input_scale
        Whether input channels (of one group) are first multiplied with a vector of their own.
    device, dtype
        Of the parameters.
    random_state
        Seed or generator of the first values; by default torch's global generator.
    **options
        `stride`, `padding`, `dilation`, `groups`, `bias`, `padding_mode`, as for torch's layers.
    """

    dense_class: ClassVar[type[Conv]]
    _convolve: ClassVar[Convolution]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        *,
        in_dims: Sequence[int] | None = None,
        out_dims: Sequence[int] | None = None,
        structure: Structure | None = None,
        paired: bool = False,
        input_scale: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
        **options: Unpack[ConvOptions],
    ) -> None:
        given: dict[str, Any] = {"kernel_size": kernel_size, "device": "meta", **options}
        try:  # torch checks sizes and options, and says what padding they stand for
            like = self.dense_class(in_channels, out_channels, **given)
        except (TypeError, ValueError, RuntimeError) as error:
            raise OptionError(f"{type(self).__name__} has the options of torch's layer: {error}") from error
        layout = conv_layout(like, in_dims, out_dims, paired=paired)
        vectors = (
            out_channels if like.bias is not None else None,
            in_channels // like.groups if input_scale else None,
        )
        application = ConvApplication(form_of(like))
        super().__init__(layout, structure, application, vectors, {"device": device, "dtype": dtype})
        self.form = application.form
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, like.groups
        self.kernel_size: tuple[int, ...] = like.kernel_size
        self.stride: tuple[int, ...] = like.stride
        self.padding: tuple[int, ...] | str = like.padding
        self.dilation: tuple[int, ...] = like.dilation
        self.padding_mode = like.padding_mode
        self._pad: list[int] = list(like._reversed_padding_repeated_twice)
        self.reset_parameters(random_state)

    @classmethod
    def matrix_of(cls, dense: nn.Module) -> torch.Tensor:
        assert isinstance(dense, Conv)
        return dense.weight.detach().flatten(1)

    @classmethod
    def layout_of(cls, dense: nn.Module, *dims: Sequence[int] | None, paired: bool) -> Layout:
        assert isinstance(dense, Conv)
        return conv_layout(dense, *dims, paired=paired)

    @classmethod
    def arguments_of(cls, dense: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert isinstance(dense, Conv)
        options = {name: getattr(dense, name) for name in OPTION_NAMES}
        sizes = dense.in_channels, dense.out_channels, dense.kernel_size
        return sizes, {"bias": dense.bias is not None, **options}

    @property
    def weight(self) -> torch.Tensor:
        """The dense weight ``(out_channels, in_channels / groups, *kernel_size)``, differentiable."""
        return self.matrix.reshape(self.out_channels, -1, *self.kernel_size)

    def to_dense(self) -> Conv:
        options: dict[str, Any] = {name: getattr(self, name) for name in OPTION_NAMES}
        options |= {"kernel_size": self.kernel_size, "bias": self.bias is not None, **self._placement}
        make: Callable[..., Conv] = self.dense_class
        dense = unfilled(make, self.in_channels, self.out_channels, **options)
        self._fill(dense)
        return dense

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding!r}, dilation={self.dilation}, groups={self.groups}, "
            f"padding_mode={self.padding_mode!r}, {self._repr_network()}"
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply to a batch ``(batch, in_channels, ...)``, or to one of its parts ``(in_channels, ...)``."""
        x = input  # named as in torch's layer, for those who pass it by name
        dims = len(self.kernel_size)
        if x.dim() not in (dims + 1, dims + 2) or x.shape[-dims - 1] != self.in_channels:
            raise DataError(
                f"the input has shape {tuple(x.shape)}; it must be (batch, {self.in_channels}, ...) with "
                f"{dims} axes of positions, or the same without the batch"
            )
        batch = x if x.dim() == dims + 2 else x[None]
        if self.input_scale is not None:
            batch = batch * self.input_scale.repeat(self.groups).reshape(-1, *[1] * dims)
        padding: tuple[int, ...] | str = self.padding
        if self.padding_mode != "zeros":
            batch, padding = F.pad(batch, self._pad, mode=self.padding_mode), (0,) * dims
        cores = self._current()
        # Positions of the output, but for what padding adds: the way depends on orders of magnitude.
        rows = batch.numel() // (self.in_channels * self.form.stride)
        way = self.way_for(rows, gradients=torch.is_grad_enabled())
        options: dict[str, Any] = {"stride": self.stride, "padding": padding, "dilation": self.dilation}
        convolve = type(self)._convolve
        if way is None:
            weight = run(self._dense, cores).reshape(self.out_channels, -1, *self.kernel_size)
            out = convolve(batch, weight, self.bias, groups=self.groups, **options)
        else:
            assert isinstance(way, Chain)
            out = run_chain(
                way,
                batch,
                cores,
                self.form,
                convolve,
                {**options, "kernel_size": self.kernel_size},
                self.bias,
            )
        return out if x.dim() == dims + 2 else out[0]


class TNConv1d(TNConv):
    """A drop-in for ``torch.nn.Conv1d`` with a tensor network as weight; see `TNConv2d`."""

    dense_class = nn.Conv1d
    _convolve = staticmethod(F.conv1d)
    to_name = "to_conv1d"

    @classmethod
    def from_conv1d(cls, conv: nn.Conv1d, **how: Unpack[LayerOptions]) -> Self:
        """A layer in place of a dense one; see `TNConv2d.from_conv2d`."""
        return cls._from(conv, how)

    def to_conv1d(self) -> nn.Conv1d:
        """A dense layer with the same function."""
        dense = self.to_dense()
        assert isinstance(dense, nn.Conv1d)
        return dense


class TNConv2d(TNConv):
    """A drop-in for ``torch.nn.Conv2d`` with a tensor network as weight.

    Examples
    --------
    >>> conv = TNConv2d(64, 128, 3, padding=1, in_dims=(8, 8), out_dims=(16, 8))
    >>> conv.layout.dims  # digits of the output, of the input, and the kernel
    (16, 8, 8, 8, 9)
    >>> tuple(conv(torch.zeros(2, 64, 14, 14)).shape)
    (2, 128, 14, 14)
    """

    __doc__ = f"{__doc__}\n{TNConv.__doc__}"

    dense_class = nn.Conv2d
    _convolve = staticmethod(F.conv2d)
    to_name = "to_conv2d"

    @classmethod
    def from_conv2d(cls, conv: nn.Conv2d, **how: Unpack[LayerOptions]) -> Self:
        """A layer in place of a dense one, which is not modified.

        Parameters
        ----------
        conv
            The layer to replace.
        **how
            `max_error`, `structure` or `network`, `input_scale` and `random_state`, see `TNLayer.from_dense`;
            `in_dims`, `out_dims` and `paired`, the digits of the channels.
        """
        return cls._from(conv, how)

    def to_conv2d(self) -> nn.Conv2d:
        """A dense layer with the same function, for inference where memory does not matter."""
        dense = self.to_dense()
        assert isinstance(dense, nn.Conv2d)
        return dense


class TNConv3d(TNConv):
    """A drop-in for ``torch.nn.Conv3d`` with a tensor network as weight; see `TNConv2d`."""

    dense_class = nn.Conv3d
    _convolve = staticmethod(F.conv3d)
    to_name = "to_conv3d"

    @classmethod
    def from_conv3d(cls, conv: nn.Conv3d, **how: Unpack[LayerOptions]) -> Self:
        """A layer in place of a dense one; see `TNConv2d.from_conv2d`."""
        return cls._from(conv, how)

    def to_conv3d(self) -> nn.Conv3d:
        """A dense layer with the same function."""
        dense = self.to_dense()
        assert isinstance(dense, nn.Conv3d)
        return dense


def form_of(conv: Conv) -> Form:
    """A convolution in numbers."""
    return Form(math.prod(conv.kernel_size), math.prod(conv.stride), conv.groups)


def conv_layout(
    conv: Conv,
    in_dims: Sequence[int] | None = None,
    out_dims: Sequence[int] | None = None,
    *,
    paired: bool,
    base: int = 16,
) -> Layout:
    """Digits of a convolution's channels, by default near `base`, and its kernel as the last input digit."""
    channels, outputs = conv.in_channels // conv.groups, conv.out_channels
    volume = math.prod(conv.kernel_size)
    in_dims, out_dims = given_digits(in_dims, out_dims)
    known = in_dims if in_dims is not None else out_dims
    count = digit_count(max(channels, outputs), base) if known is None or not paired else len(known)
    ins, outs = digits(channels, count), digits(outputs, count)
    if not paired:  # a leg for every digit: none for those of size one, but where they are asked for
        ins, outs = (tuple(d for d in x if d > 1) or (1,) for x in (ins, outs))
    ins, outs = ins if in_dims is None else in_dims, outs if out_dims is None else out_dims
    if volume > 1 and math.prod(ins) == channels:
        ins = (*ins, volume)
        if paired and len(outs) < len(ins):
            outs = (*outs, 1)
    return Layout.choose(channels * volume, outputs, ins, outs, paired=paired)
