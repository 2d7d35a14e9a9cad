"""Keywords that all layers with a network as weight have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch

from ...network import RandomState, TensorNetwork
from ...structure import Structure


class Placement(TypedDict, total=False):
    """Where and in which precision parameters are."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class NetworkOptions(TypedDict, total=False):
    """How a network for a dense layer is found; see `TNLayer.from_dense`."""

    network: TensorNetwork | None
    structure: Structure | None
    max_error: float | None
    input_scale: torch.Tensor | None
    random_state: RandomState


class LayerOptions(NetworkOptions, total=False):
    """The same, and the digits of the weight."""

    in_dims: Sequence[int] | None
    out_dims: Sequence[int] | None
    paired: bool
