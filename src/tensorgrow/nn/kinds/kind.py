"""What a kind of layers is: how a dense layer becomes a matrix, and what its inputs are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

import torch
from torch import nn

from ..layer.application import Application
from ..layer.layout import Layout
from ..layer.tn_layer import TNLayer, weight_refusal
from .statistics import Inputs, Statistics

M = TypeVar("M", bound=nn.Module)

# Rows of the input that latencies and memory are for.
ROWS = 32


class Kind(ABC, Generic[M]):
    """What `compress` must know of a kind of dense layers; `M` is their class.

    The weight of a layer is seen as a matrix with `sizes` ``(columns, rows)``; `layer` are the layers that
    have a network in its place.
    """

    layer: type[TNLayer]
    # Where the rows of the weight are in an output.
    output_axis: ClassVar[int] = -1

    @property
    def dense(self) -> type[nn.Module]:
        """The class of the dense layers."""
        return self.layer.dense_class

    def sizes(self, module: M) -> tuple[int, int]:
        """Columns and rows of the weight as a matrix."""
        rows, columns = self.layer.matrix_of(module).shape
        return columns, rows

    def refusal(self, module: M) -> str:
        """Why a layer cannot have a network as its weight; empty where it can."""
        return weight_refusal(module)

    @abstractmethod
    def application(self, module: M) -> Application:
        """How its weight meets its input."""

    @abstractmethod
    def layouts(self, module: M) -> list[Layout]:
        """Tensorised shapes to try unless the user names one."""

    @abstractmethod
    def statistics(self, module: M) -> Statistics:
        """What is kept of its inputs."""

    @abstractmethod
    def example(self, module: M, inputs: Inputs | None) -> torch.Tensor:
        """An input to measure with: like those that were seen, if any."""

    def rows(self, module: M, inputs: Inputs | None) -> int:
        """Rows of that example, as `Application` counts them."""
        return ROWS


def like_data(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Random numbers to measure with; drawn from a seed, they leave torch's own numbers alone."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float64).to(like)


def useful(layouts: Iterable[Layout]) -> list[Layout]:
    """Each layout once, without those that are a truncated SVD or the dense weight: sizes that are prime."""
    return [
        x
        for x in dict.fromkeys(layouts)
        if sum(d > 1 for d in x.dims) > 1 and sum(d > 1 for d in (*x.in_dims, *x.out_dims)) > 2
    ]
