"""Listed entries under any loss: counts, yes or no, outliers."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import torch

from ..losses import EntryLoss
from ..network import TensorNetwork

__all__ = ["EntriesLoss"]

# Up to this many entries are taken at once; more in batches.
WHOLE_ENTRIES = 100_000
BATCH_ENTRIES = 16_384


class EntriesLoss:
    """Mean loss over the fitted entries, with a normal prior on the entries of the cores.

    Parameters
    ----------
    indices, values, weights
        Positions ``(n, order)``, values and weights of the entries, where they are computed with.
    dims
        Shape of the tensor.
    loss
        Of predictions and values.
    held_out
        True for entries that are not fitted.
    ridge
        Weight of the squares of the cores' entries against the sum of the losses.
    generator
        Shuffles batches.
    """

    def __init__(
        self,
        indices: torch.Tensor,
        values: torch.Tensor,
        dims: tuple[int, ...],
        loss: EntryLoss,
        generator: torch.Generator,
        *,
        weights: torch.Tensor | None = None,
        held_out: torch.Tensor | None = None,
        ridge: float = 1.0,
    ) -> None:
        self.dims = dims
        self._entry_loss = loss
        self._ridge = ridge
        self._generator = generator
        held = (
            torch.zeros(len(values), dtype=torch.bool, device=values.device) if held_out is None else held_out
        )
        self._fitted = (indices[~held], values[~held], None if weights is None else weights[~held])
        self._held = (indices[held], values[held], None if weights is None else weights[held])

    def with_ridge(self, ridge: float) -> EntriesLoss:
        """The same entries with another prior."""
        other = copy(self)
        other._ridge = ridge
        return other

    @property
    def is_whole(self) -> bool:
        """Whether all fitted entries are taken at once."""
        return len(self._fitted[1]) <= WHOLE_ENTRIES

    @property
    def holds_out(self) -> bool:
        """Whether some entries are held out."""
        return len(self._held[1]) > 0

    @property
    def num_batches(self) -> int | None:
        """Batches of one epoch."""
        return 1 if self.is_whole else -(-len(self._fitted[1]) // BATCH_ENTRIES)

    def batches(self) -> Iterable[Any]:
        """All entries, or positions in them, shuffled."""
        if self.is_whole:
            return (None,)
        order = torch.randperm(len(self._fitted[1]), generator=self._generator)
        return order.to(self._fitted[1].device).split(BATCH_ENTRIES)  # type: ignore[no-untyped-call, no-any-return]

    def loss(self, network: TensorNetwork, batch: Any) -> torch.Tensor:
        """Mean loss of a batch and the prior's share."""
        where, values, weights = self._fitted
        count = len(values)
        if batch is not None:
            where, values = where[batch], values[batch]
            weights = None if weights is None else weights[batch]
        penalty = sum((c.abs() ** 2).sum() for c in network.cores)
        return self._entry_loss(network.at_checked(where), values, weights) + self._ridge / count * penalty

    @torch.no_grad()
    def total(self, network: TensorNetwork) -> float:
        """Mean loss over the fitted entries, without the prior."""
        where, values, weights = self._fitted
        return float(self._entry_loss(network.at_checked(where), values, weights))

    @torch.no_grad()
    def validate(self, network: TensorNetwork) -> float | None:
        """Mean loss over the held-out entries."""
        where, values, weights = self._held
        return float(self._entry_loss(network.at_checked(where), values, weights)) if len(values) else None
