"""Training data: tensors on the device, or a loader that is iterated again for every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from ...data.arrays import as_tensor
from ...data.fingerprint import fingerprint_tensors
from ...errors import DataError

Pair = tuple[Any, torch.Tensor]


Source = tuple[torch.Tensor, torch.Tensor] | DataLoader[Any]
"""All the inputs and targets, on the device; or a loader, which yields pairs, shuffled or not."""


@dataclass(frozen=True)
class Batches:
    """Pairs (inputs, targets) in batches, from one source after the other."""

    sources: tuple[Source, ...]
    batch_size: int
    device: torch.device

    def in_order(self) -> Iterator[Pair]:
        """One pass without shuffling."""
        for source in self.sources:
            if isinstance(source, DataLoader):
                yield from self._load(source)
            else:
                yield from zip(*(torch.split(part, self.batch_size) for part in source))

    def shuffle(self, generator: torch.Generator) -> Iterator[Pair]:
        """One pass in random order."""
        for source in self.sources:
            if isinstance(source, DataLoader):
                yield from self._load(source)
                continue
            order = torch.randperm(len(source[0]), generator=generator, device=generator.device)
            parts = list(torch.split(order.to(self.device), self.batch_size))
            if len(parts) > 1 and len(parts[-1]) == 1:  # a batch norm divides by the deviation of a batch
                parts[-2:] = [torch.cat(parts[-2:])]
            for rows in parts:
                yield source[0][rows], source[1][rows]

    def fingerprint(self) -> str:
        """Numbers that tell this data from other data; nothing is known of what a loader will yield."""
        source = self.sources[0]
        return "loader" if isinstance(source, DataLoader) else fingerprint_tensors(source)

    def _load(self, loader: DataLoader[Any]) -> Iterator[Pair]:
        for batch in loader:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise DataError(f"a batch must be a pair (inputs, targets), not {type(batch).__name__}")
            x, y = (
                part.to(self.device, non_blocking=True) if isinstance(part, torch.Tensor) else part
                for part in batch
            )
            yield x, y


def as_batches(data: Any, name: str, *, batch_size: int, device: torch.device, dtype: torch.dtype) -> Batches:
    """From a pair of tensors, a Dataset or a DataLoader; real inputs that lie in memory get `dtype`."""
    if isinstance(data, DataLoader):
        return Batches((data,), batch_size, device)
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
        raise DataError(
            f"{name} has {len(x)} inputs and {len(y)} targets; give as many targets as inputs, at least one"
        )
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DataError(f"the inputs of {name} have entries that are not finite; remove or fill them")
    if not dtype.is_complex:
        x, y = (part.to(dtype) if part.is_floating_point() else part for part in (x, y))
    return Batches(((x, y),), batch_size, device)


def join(first: Batches, second: Batches) -> Batches:
    """All the data of both: shuffled together where it lies in memory, else one after the other."""
    sources = (*first.sources, *second.sources)
    tensors = [source for source in sources if not isinstance(source, DataLoader)]
    if len(tensors) == len(sources):
        inputs, targets = (torch.cat(parts) for parts in zip(*tensors))
        sources = ((inputs, targets),)
    return replace(first, sources=sources)
