"""Training data: tensors that lie on the device, or a loader that is iterated anew for every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from ...data.arrays import as_tensor
from ...data.fingerprint import fingerprint_tensors
from ...errors import DataError

Pair = tuple[Any, torch.Tensor]


class Batches:
    """Pairs (inputs, targets) in batches.

    Parameters
    ----------
    inputs, targets
        All the data, on the device; None where it comes from a loader.
    loader
        Yields pairs, shuffled or not.
    """

    def __init__(
        self,
        inputs: torch.Tensor | None,
        targets: torch.Tensor | None,
        loader: DataLoader[Any] | None,
        *,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self.inputs, self.targets, self.loader = inputs, targets, loader
        self.batch_size, self.device = batch_size, device

    def in_order(self) -> Iterator[Pair]:
        """One pass without shuffling."""
        if self.inputs is None or self.targets is None:
            yield from self._load()
            return
        yield from zip(torch.split(self.inputs, self.batch_size), torch.split(self.targets, self.batch_size))

    def shuffle(self, generator: torch.Generator) -> Iterator[Pair]:
        """One pass in random order."""
        if self.inputs is None or self.targets is None:
            yield from self._load()
            return
        order = torch.randperm(len(self.inputs), generator=generator, device=generator.device)
        parts = list(torch.split(order.to(self.device), self.batch_size))
        if len(parts) > 1 and len(parts[-1]) == 1:  # one row has no deviation for a batch norm to divide by
            parts[-2:] = [torch.cat(parts[-2:])]
        for rows in parts:
            yield self.inputs[rows], self.targets[rows]

    def fingerprint(self) -> str:
        """Enough to tell other data apart; nothing is known of what a loader will yield."""
        return "loader" if self.inputs is None else fingerprint_tensors([self.inputs, self.targets])

    def _load(self) -> Iterator[Pair]:
        assert self.loader is not None
        for batch in self.loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise DataError(f"a batch must be a pair (inputs, targets), not {type(batch).__name__}")
            x, y = (
                part.to(self.device, non_blocking=True) if isinstance(part, torch.Tensor) else part
                for part in batch
            )
            yield x, y


def as_batches(data: Any, name: str, *, batch_size: int, device: torch.device, dtype: torch.dtype) -> Batches:
    """From a pair of tensors, a Dataset or a DataLoader; real inputs that lie in memory get `dtype`."""
    if isinstance(data, Batches):
        return data
    if isinstance(data, DataLoader):
        return Batches(None, None, data, batch_size=batch_size, device=device)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    elif isinstance(data, Dataset):
        if not hasattr(data, "__len__"):
            raise DataError(f"{name} is a dataset without a length; wrap it in a DataLoader")
        data = default_collate([data[k] for k in range(len(data))])
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise DataError(
            f"{name} must be a pair (inputs, targets), a Dataset or a DataLoader, not {type(data).__name__}"
        )
    x, y = (as_tensor(part).detach().to(device) for part in data)
    if len(x) != len(y) or not len(x):
        raise DataError(f"{name} has {len(x)} inputs and {len(y)} targets; as many of both are needed")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DataError(f"the inputs of {name} have entries that are not finite; remove or fill them")
    if not dtype.is_complex:
        x, y = (part.to(dtype) if part.is_floating_point() else part for part in (x, y))
    return Batches(x, y, None, batch_size=batch_size, device=device)


def join(first: Batches, second: Batches) -> Batches:
    """All the data of both: shuffled together where it lies in memory, else one after the other."""
    if first.inputs is None or second.inputs is None:
        return _Chain(first, second)
    inputs, targets = (
        torch.cat([getattr(b, name) for b in (first, second)]) for name in ("inputs", "targets")
    )
    return Batches(inputs, targets, None, batch_size=first.batch_size, device=first.device)


class _Chain(Batches):
    """The batches of one and then of another."""

    def __init__(self, first: Batches, second: Batches) -> None:
        super().__init__(None, None, None, batch_size=first.batch_size, device=first.device)
        self.parts = (first, second)

    def in_order(self) -> Iterator[Pair]:
        for part in self.parts:
            yield from part.in_order()

    def shuffle(self, generator: torch.Generator) -> Iterator[Pair]:
        for part in self.parts:
            yield from part.shuffle(generator)
