"""Completion from observations in partitions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data.arrays import as_dtype
from ..data.devices import choose_device, one_thread
from ..data.holdout import positions_in
from ..data.observations import Observations
from ..data.partitions.tables import PartitionedObservations
from ..errors import OptionError
from ..losses import EntryLoss, Squared, squared
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import EntryPart, PartitionedLeastSquares
from .completion_task import CompletionTask, Test, relative_error
from .partition_data import Prepared, prepare_parts
from .task import seed_of

__all__ = ["PartitionedTask"]


@dataclass
class PartitionedTask(CompletionTask):
    """Observations that stay in threads or with the workers of a cluster."""

    data: Prepared
    generator: torch.Generator
    home: torch.device
    loss: EntryLoss = squared
    seed: int | None = None

    def __post_init__(self) -> None:
        self.shape = self.data.shape
        self.scale, self.weight_scale = self.data.scale, self.data.weight_scale

    @classmethod
    def prepare(
        cls,
        data: PartitionedObservations,
        weights: Any,
        validation: Any,
        dtype: Any,
        device: torch.device | str | None,
        random_state: RandomState,
        memory_limit: float | None,
        loss: EntryLoss,
    ) -> PartitionedTask:
        """Check what the user gave, and read the partitions."""
        if not isinstance(loss, Squared):
            raise OptionError(
                f"loss={loss.name!r} is not available for observations in partitions; use 'squared', or load "
                "them into memory"
            )
        by_column = validation if isinstance(validation, str) else None
        columns = data.roles(weights, by_column)
        where = choose_device("cpu" if device is None else device, torch.empty(0))
        # Without a seed the split is the same each time; choosing it takes nothing from the generator.
        generator = as_generator(0 if random_state is None else random_state)
        seed = generator.initial_seed()
        prepared = prepare_parts(data, columns, validation, as_dtype(dtype), where, seed, memory_limit)
        if random_state is None:
            generator = as_generator(None)
        return cls(prepared, generator, where, loss, seed_of(random_state))

    @property
    def probe(self) -> torch.Tensor:
        """A number of the dtype computed in; cores are computed by this process."""
        return torch.zeros(1, dtype=self.data.dtype)

    @property
    def num_observations(self) -> int:
        """Observations, fitted or not."""
        return self.data.census_of_all.fitted

    @property
    def num_held_out(self) -> int:
        """Observations that are not fitted."""
        return self.data.census.held_out

    @property
    def is_zero(self) -> bool:
        """Whether all values are zero."""
        return self.data.is_zero

    def objective(self, ridge: float, *, everything: bool = False) -> PartitionedLeastSquares:
        """The loss on the fitted entries, or on all."""
        data = self.data
        census = data.census_of_all if everything else data.census
        return PartitionedLeastSquares(
            data.parts, data.shape, data.dtype, census, ridge=ridge, everything=everything
        )

    def train_and_validation(self, ridge: float, network: TensorNetwork) -> tuple[float, float | None]:
        """Relative loss of a network on the fitted entries, and its loss on the held-out ones."""
        fitted = self.objective(ridge)
        train, validation = fitted.losses(network.structure, fitted.to_arrays(network))
        return train / (fitted.norm or 1.0), validation

    def threads(self) -> AbstractContextManager[None]:
        """One of torch's for each part that is worked on."""
        return one_thread()

    def start(self) -> None:
        """A random network."""

    def listed_in(self, known: Observations) -> torch.Tensor:
        """Which of some entries are among the observations."""
        found = np.zeros(len(known), dtype=bool)
        for mine in self.data.parts.map(_Among(known.indices.cpu().numpy(), self.shape)):
            found |= mine
        return torch.from_numpy(found)

    def mean_losses(self, chosen: TensorNetwork, final: TensorNetwork, test: Test | None) -> dict[str, Any]:
        """Nothing: the loss is the squared one."""
        return {}

    def test_error(self, network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
        """Relative error on entries that were not observed."""
        return relative_error(network, indices, values)

    def fingerprint(self) -> dict[str, Any]:
        """Numbers that tell these observations from others, in whatever partitions they come."""
        everyone, held_out = self.data.codes
        return {"observations": [self.num_observations, everyone], "held_out": held_out}

    def about(self) -> dict[str, Any]:
        """Partitions, and how often they were all asked for something."""
        return {"partitions": len(self.data.parts), "rounds": self.data.parts.rounds}


@dataclass(frozen=True)
class _Among:
    """Which positions a part has."""

    indices: Any
    shape: tuple[int, ...]

    def __call__(self, part: EntryPart) -> Any:
        """A mask of the positions."""
        mine = np.concatenate(part.positions())
        ones = torch.ones(1)
        known = Observations(
            torch.from_numpy(np.array(self.indices)), ones.expand(len(self.indices)), self.shape
        )
        listed = Observations(torch.from_numpy(mine), ones.expand(len(mine)), self.shape)
        return positions_in(known, listed).numpy()
