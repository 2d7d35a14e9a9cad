"""The differentiable seam: any loss of a network, with or without batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Protocol, runtime_checkable

import torch

from ..errors import DataError
from ..network import TensorNetwork
from ..structure import Edge

__all__ = ["Differentiable", "LossFunction", "Screening", "Sharing", "Slices", "as_score", "scalar"]

# The one batch of a loss that is not given any.
WHOLE = (None,)

Slices = tuple[torch.Tensor, torch.Tensor]


class Differentiable(Protocol):
    """A loss that gradients can be taken of."""

    @property
    def dims(self) -> tuple[int, ...]:
        """Dangling legs of the network."""

    @property
    def is_whole(self) -> bool:
        """Whether one evaluation sees all the data, so that line searches make sense."""

    @property
    def holds_out(self) -> bool:
        """Whether `validate` gives numbers."""

    @property
    def num_batches(self) -> int | None:
        """Batches of one epoch, where that is known."""

    def batches(self) -> Iterable[Any]:
        """The batches of one epoch."""

    def loss(self, network: TensorNetwork, batch: Any) -> torch.Tensor:
        """Scalar loss on a batch, differentiable with respect to the cores."""

    def total(self, network: TensorNetwork) -> float:
        """Mean loss over all batches."""

    def validate(self, network: TensorNetwork) -> float | None:
        """Score on held-out data, lower is better; None when there is none."""


@runtime_checkable
class Sharing(Protocol):
    """An objective that contracts what candidate edges leave frozen only once."""

    def around(
        self, network: TensorNetwork, edges: Sequence[Edge]
    ) -> Callable[[Edge], Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor] | None]:
        """For each edge its loss as a function of the new slices and a batch; None: no such shortcut."""


@runtime_checkable
class Screening(Protocol):
    """An objective that knows which edges are worth growing without training each of them."""

    def screen(
        self,
        network: TensorNetwork,
        edges: Sequence[Edge],
        max_parameters: int | None,
        generator: torch.Generator,
    ) -> tuple[list[Edge], TensorNetwork]:
        """The most promising of the edges, best first, and the network with these grown by one rank each.

        No edges, and the network as it is, where none of them can grow.
        """


class LossFunction:
    """A user's function as an objective.

    Parameters
    ----------
    loss
        ``loss(network)``, or ``loss(network, batch)`` where there are batches.
    dims
        Dangling legs of the network.
    batches
        Iterated anew for every epoch: a DataLoader, a list.
    validation
        ``validation(network)``, lower is better.
    """

    def __init__(
        self,
        loss: Callable[..., torch.Tensor],
        dims: Sequence[int],
        batches: Iterable[Any] | None = None,
        validation: Callable[[TensorNetwork], Any] | None = None,
    ) -> None:
        self.dims = tuple(dims)
        self._loss = loss
        self._batches = batches
        self._validation = validation

    @property
    def is_whole(self) -> bool:
        """Whether there are no batches."""
        return self._batches is None

    @property
    def holds_out(self) -> bool:
        """Whether there is a validation score."""
        return self._validation is not None

    @property
    def num_batches(self) -> int | None:
        """Their number, where they can be counted."""
        batches = self.batches()
        return len(batches) if isinstance(batches, Sized) else None

    def batches(self) -> Iterable[Any]:
        """One epoch."""
        return WHOLE if self._batches is None else self._batches

    def loss(self, network: TensorNetwork, batch: Any) -> torch.Tensor:
        """Loss on a batch."""
        return scalar(self._loss(network) if self._batches is None else self._loss(network, batch))

    @torch.no_grad()
    def total(self, network: TensorNetwork) -> float:
        """Mean over the batches of one epoch."""
        values = [float(self.loss(network, batch)) for batch in self.batches()]
        if not values:
            raise DataError("`batches` is empty, or can be iterated over only once; give a list or a loader")
        return sum(values) / len(values)

    @torch.no_grad()
    def validate(self, network: TensorNetwork) -> float | None:
        """The user's score."""
        return None if self._validation is None else as_score(self._validation(network))


def scalar(value: Any) -> torch.Tensor:
    """What a user's loss returned, checked."""
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or value.is_complex():
        got = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise DataError(f"the loss must be one real number, as a torch tensor; it returned {got}")
    return value.reshape(())


def as_score(value: Any) -> float:
    """What a user's score returned, as a number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"a score must be one real number; it returned {value!r:.80}") from error
