"""A linear layer whose weight is a tensor network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack

import torch
import torch.nn.functional as F
from torch import nn

from ...errors import DataError
from ...network import RandomState
from ...structure import Structure
from ..modules import unfilled
from .application import Application
from .costs import Work
from .keywords import LayerOptions
from .layout import Layout
from .plans import through_plans
from .products import Plan, run, run_rows
from .script import ScriptLinear
from .tn_layer import TNLayer


@dataclass(frozen=True)
class LinearApplication(Application):
    """``y = x W^T``."""

    def ways(self, layout: Layout, structure: Structure, device: str, itemsize: int) -> list[Plan]:
        return through_plans(layout, structure, device, itemsize)

    def dense_work(self, inputs: int, outputs: int) -> Work:
        return Work((0.0, 2.0 * inputs * outputs), (float(inputs * outputs), float(inputs + outputs)))

    def input_entries(self, inputs: int, rows: int) -> int:
        return rows * inputs


class TNLinear(TNLayer):
    r"""``y = x W^T + b`` with `W` a tensor network: a drop-in for ``torch.nn.Linear``.

    The digits of the output and input index are the legs of the network (see `Layout`). With paired legs

    .. math:: W_{(o_1 \dots o_p), (i_1 \dots i_p)} =
        \sum_{\text{edges}} \prod_k G^{(k)}_{o_k d_k + i_k, \dots}

    where ``d_k = in_dims[k]``. Cores are parameters ``cores.0``, ``cores.1``, ... of shape
    ``structure.core_shape(k)``: the leg first, then one axis per edge of rank above 1, neighbours ascending.

    For every number of rows the layer either contracts the input through the cores or rebuilds `W`, whichever
    costs less by counted flops and bytes; it goes through the cores only for a clear gain.

    Parameters
    ----------
    in_features, out_features
        Size of an input and of an output row.
    in_dims, out_dims
        Digits, products the features; by default near 4, the largest first.
    structure
        Graph and ranks over the legs ``Layout.dims``; by default rank one.
    paired
        One leg per pair of digits, as in the paper; False: one leg per digit, the output's first.
    bias
        Whether to add a vector.
    input_scale
        Whether inputs are first multiplied, entry by entry, with a vector of their own, which counts as
        parameters. `compress` uses it to weigh columns by what comes in.
    device, dtype
        Of the parameters.
    random_state
        Seed or generator of the first values; by default torch's global generator.

    Examples
    --------
    >>> layer = TNLinear(1024, 1024, in_dims=(4,) * 5, out_dims=(4,) * 5)
    >>> layer.num_parameters  # five vectors of 16 and the bias
    1104
    >>> tuple(layer(torch.zeros(7, 1024)).shape)
    (7, 1024)
    """

    in_features: int
    out_features: int

    to_name = "to_linear"
    dense_class = nn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        in_dims: Sequence[int] | None = None,
        out_dims: Sequence[int] | None = None,
        structure: Structure | None = None,
        paired: bool = True,
        bias: bool = True,
        input_scale: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
    ) -> None:
        layout = Layout.choose(in_features, out_features, in_dims, out_dims, paired=paired)
        vectors = (out_features if bias else None, in_features if input_scale else None)
        super().__init__(layout, structure, LinearApplication(), vectors, {"device": device, "dtype": dtype})
        self.in_features, self.out_features = in_features, out_features
        self.reset_parameters(random_state)

    @classmethod
    def from_linear(cls, linear: nn.Linear, **how: Unpack[LayerOptions]) -> Self:
        """A layer in place of a dense one, which is not modified.

        Parameters
        ----------
        linear
            The layer to replace.
        **how
            `max_error`, `structure` or `network`, `input_scale` and `random_state`, see `TNLayer.from_dense`;
            `in_dims`, `out_dims` and `paired` (by default true), the digits of the features.
        """
        return cls._from(linear, {"paired": True, **how})

    @classmethod
    def matrix_of(cls, dense: nn.Module) -> torch.Tensor:
        assert isinstance(dense, nn.Linear)
        return dense.weight.detach()

    @classmethod
    def layout_of(cls, dense: nn.Module, *dims: Sequence[int] | None, paired: bool) -> Layout:
        out_features, in_features = cls.matrix_of(dense).shape
        return Layout.choose(in_features, out_features, *dims, paired=paired)

    @classmethod
    def arguments_of(cls, dense: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert isinstance(dense, nn.Linear)
        out_features, in_features = dense.weight.shape
        return (in_features, out_features), {"bias": dense.bias is not None}

    @property
    def weight(self) -> torch.Tensor:
        """The dense weight ``(out_features, in_features)``, differentiable."""
        return self.matrix

    def to_linear(self) -> nn.Linear:
        """A dense layer with the same function, for inference where memory does not matter."""
        sizes = self.in_features, self.out_features
        linear = unfilled(nn.Linear, *sizes, bias=self.bias is not None, **self._placement)
        self._fill(linear)
        return linear

    def to_dense(self) -> nn.Linear:
        return self.to_linear()

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, {self._repr_network()}"

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Apply to rows: ``(..., in_features)`` to ``(..., out_features)``."""
        x = input  # named as in torch's layer, for those who pass it by name
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise DataError(
                f"the input has shape {tuple(x.shape)}; its last axis must have {self.in_features} features"
            )
        cores = self._current()
        flat = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        if self.input_scale is not None:
            flat = flat * self.input_scale
        plan = self.way_for(flat.shape[0], gradients=torch.is_grad_enabled())
        if plan is None:
            out = F.linear(flat, run(self._dense, cores), self.bias)
        else:
            assert isinstance(plan, Plan)
            out = run_rows(plan, flat, cores, self.bias)
        return out if x.dim() == 2 else out.reshape(*x.shape[:-1], self.out_features)

    def __prepare_scriptable__(self) -> ScriptLinear:
        """What ``torch.jit.script`` compiles: a layer that rebuilds its weight from the same parameters."""
        return ScriptLinear(self.cores, self.bias, self.input_scale, self._dense)
