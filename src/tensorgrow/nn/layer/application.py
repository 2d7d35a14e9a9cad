"""How a layer's weight meets its input: what that costs, and the ways through the cores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from ...structure import Structure
from .costs import Machine, Work
from .layout import Layout


class Way(Protocol):
    """One way to apply a layer through its cores: numbers only, so that a compiler sees constants."""

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        """Estimated for so many rows."""
        ...

    def entries(self, rows: int) -> int:
        """Most numbers in memory beside cores and input; counted."""
        ...


class Application(ABC):
    """What a kind of layer does with its weight, a matrix of shape ``(out_features, in_features)``.

    It is hashable: schedules are made once for equal ones. A row is what one output vector is computed from:
    a row of the input of a linear layer, a position of the output of a convolution, a token.
    """

    @abstractmethod
    def ways(self, layout: Layout, structure: Structure, device: str, itemsize: int) -> Sequence[Way]:
        """Ways through the cores to choose from."""

    @abstractmethod
    def dense_work(self, inputs: int, outputs: int) -> Work:
        """Applying a dense weight with so many columns and rows."""

    @abstractmethod
    def input_entries(self, inputs: int, rows: int) -> int:
        """Numbers of the input."""
