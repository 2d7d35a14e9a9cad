"""A user's loss of a network, with or without batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from ..data.fingerprint import fingerprint_function
from ..errors import DataError
from ..network import TensorNetwork
from .base import Differentiable


class LossFunction(Differentiable):
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

    def identity(self) -> dict[str, str]:
        """What tells this loss, its data and its score from others, as far as functions show it."""
        batches = self._batches
        if isinstance(batches, DataLoader) and isinstance(batches.dataset, TensorDataset):
            batches = (*batches.dataset.tensors, batches.batch_size)
        elif isinstance(batches, list):
            batches = tuple(tuple(b) if isinstance(b, list) else b for b in batches)
        parts = {"loss": self._loss, "batches": batches, "validation": self._validation}
        return {name: fingerprint_function(part) for name, part in parts.items()}

    @property
    def is_whole(self) -> bool:
        return self._batches is None

    @property
    def holds_out(self) -> bool:
        return self._validation is not None

    @property
    def num_batches(self) -> int | None:
        batches = self.batches()
        return len(batches) if isinstance(batches, Sized) else None

    def batches(self) -> Iterable[Any]:
        return (None,) if self._batches is None else self._batches

    def loss(self, network: TensorNetwork, batch: Any) -> torch.Tensor:
        return scalar(self._loss(network) if self._batches is None else self._loss(network, batch))

    @torch.no_grad()
    def total(self, network: TensorNetwork) -> float:
        values = [float(self.loss(network, batch)) for batch in self.batches()]
        if not values:
            raise DataError("`batches` is empty, or can be iterated over only once; give a list or a loader")
        return sum(values) / len(values)

    @torch.no_grad()
    def validate(self, network: TensorNetwork) -> float | None:
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
