"""What comes into a layer: mean and second moment of what each row of its weight meets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Inputs:
    """What comes into a layer; columns are those of its weight as a matrix."""

    # Of the columns, group after group; its effect on the outputs goes into the bias; None for a layer
    # without one.
    mean: torch.Tensor | None
    # The second moment, about the mean where there is one, else about zero; a vector where it is diagonal.
    # That of several groups is their mean. See `shrink`.
    moment: torch.Tensor
    shape: tuple[int, ...] = ()  # of the last input that was seen
    # Second moment of the gradients of a loss with respect to the outputs, summed over rows; see
    # `output_moments`. None: all outputs count the same.
    outputs: torch.Tensor | None = None


class Statistics(ABC):
    """What is kept of the inputs of one layer."""

    shape: tuple[int, ...] = ()

    def listen(self, x: torch.Tensor) -> None:
        """Take in an input of the layer."""
        self.shape = tuple(x.shape)
        self._add(x.detach())

    @abstractmethod
    def _add(self, x: torch.Tensor) -> None: ...

    @abstractmethod
    def finish(self) -> Inputs:
        """What was learned from all inputs, of which there is at least one."""


class Moments(Statistics):
    """Of rows of numbers.

    Parameters
    ----------
    rows_of
        The rows in an input, of shape ``(groups, rows, columns)``.
    centred
        Whether moments are about the mean.
    """

    def __init__(self, rows_of: Callable[[torch.Tensor], torch.Tensor], *, centred: bool) -> None:
        self.rows_of, self.centred = rows_of, centred
        self.count = 0
        self.total: torch.Tensor | float = 0.0
        self.square: torch.Tensor | float = 0.0

    def _add(self, x: torch.Tensor) -> None:
        rows = self.rows_of(x).to(torch.float64)
        self.total = rows.sum(1) + self.total
        self.square = rows.mT @ rows + self.square
        self.count += rows.shape[1]

    def finish(self) -> Inputs:
        assert isinstance(self.total, torch.Tensor) and isinstance(self.square, torch.Tensor)
        moment, mean = self.square / self.count, None
        if self.centred:
            mean = self.total / self.count
            moment = moment - mean[:, :, None] * mean[:, None, :]
            mean = mean.reshape(-1)
        return Inputs(mean, shrink(moment.mean(0), self.count), self.shape)


class Counts(Statistics):
    """Of tokens: how often each of `size` comes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.counts: torch.Tensor | float = 0.0

    def _add(self, x: torch.Tensor) -> None:
        self.counts = torch.bincount(x.reshape(-1), minlength=self.size).double() + self.counts

    def finish(self) -> Inputs:
        """Tokens that were not seen get together what Good and Turing's estimate gives them.

        That is the share of the tokens that were seen once. Otherwise the rows of the others would cost
        nothing.
        """
        assert isinstance(self.counts, torch.Tensor)
        rows = float(self.counts.sum())
        share = max(float((self.counts == 1).sum()), 1.0) / max(rows, 1.0)
        return Inputs(None, (1 - share) * self.counts / max(rows, 1.0) + share / self.size, self.shape)


def shrink(moment: torch.Tensor, rows: int) -> torch.Tensor:
    """Move a sample's second moment towards a multiple of the identity, more so the fewer rows there are.

    Directions that a small sample happens not to have would otherwise cost nothing, and what a layer does
    there would be thrown away. The weight is that of oracle approximating shrinkage (Chen, Wiesel, Eldar and
    Hero, 2010) for many inputs: about the effective number of directions over the number of rows.
    """
    size = len(moment)
    trace, square = float(moment.trace()), float(moment.square().sum())
    spread = (rows + 1) * (square - trace**2 / size)
    share = 1.0 if spread <= 0 else min(1.0, (square + trace**2) / spread)
    identity = torch.eye(size, dtype=moment.dtype, device=moment.device)
    return (1 - share) * moment + share * trace / size * identity
