"""Completion from observations in memory."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ..data.arrays import as_dtype, power_of_two_scale
from ..data.devices import choose_device, one_blas_thread, one_thread
from ..data.holdout import Split, positions_in, warn_of_gaps
from ..data.observations import Observations, as_observations
from ..losses import EntryLoss, Squared, squared
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import ObservedLeastSquares, ReweightedLeastSquares
from ..structure import Structure
from .completion_task import CompletionTask, Test, relative_error
from .task import seed_of

__all__ = ["ListedTask"]

# Observations up to which torch computes on one thread. Products of wide rows have threads of their own; for
# the rest, two that wait for each other gain little, and lose a lot where other programs keep the cores busy.
FEW_ENTRIES = 100_000
# Starts of losses with a scale of their own: this far from constant, and no smaller than that.
START_NOISE = 0.1
SMALLEST_START = 0.1
# Observations from which `device="auto"` takes a GPU: every one costs a row of each environment.
GPU_OBSERVATIONS = 30_000


@dataclass
class ListedTask(CompletionTask):
    """Observations in memory.

    Attributes
    ----------
    held_out
        True for entries that are not fitted; None when all are.
    """

    shape: tuple[int, ...]
    indices: torch.Tensor
    values: torch.Tensor
    weights: torch.Tensor | None
    held_out: torch.Tensor | None
    generator: torch.Generator
    home: torch.device
    scale: float
    weight_scale: float = 1.0
    loss: EntryLoss = squared
    seed: int | None = None

    @classmethod
    def prepare(
        cls,
        x: Any,
        mask: Any,
        weights: Any,
        validation: Any,
        dtype: Any,
        device: torch.device | str | None,
        random_state: RandomState,
        loss: EntryLoss = squared,
    ) -> ListedTask:
        """Check and convert what the user gave."""
        seen = as_observations(x, mask, weights, as_dtype(dtype))
        loss.check(seen.values)
        where = choose_device(device, seen.values, GPU_OBSERVATIONS)
        home = seen.values.device if device == "auto" else where
        # Without a seed the split is the same each time, so that a checkpoint can be gone on with.
        generator = as_generator(0 if random_state is None else random_state)
        held_out = Split.parse(validation).entries(seen, x, generator)
        if random_state is None:
            generator = as_generator(None)
        warn_of_gaps(seen)
        scale = power_of_two_scale(seen.values) if isinstance(loss, Squared) else 1.0
        weights, weight_scale = seen.weights, 1.0
        if weights is not None:
            weight_scale = power_of_two_scale(weights)
            weights = (weights / weight_scale).to(where)
        values = (seen.values if scale == 1.0 else seen.values / scale).to(where)
        return cls(
            seen.shape,
            seen.indices.to(where),
            values,
            weights,
            None if held_out is None else held_out.to(where),
            generator,
            home,
            scale,
            weight_scale,
            loss,
            seed_of(random_state),
        )

    @property
    def probe(self) -> torch.Tensor:
        """The values: of the dtype and on the device computed with."""
        return self.values

    @property
    def num_observations(self) -> int:
        """Observations, fitted or not."""
        return len(self.values)

    @property
    def num_held_out(self) -> int:
        """Observations that are not fitted."""
        return 0 if self.held_out is None else int(self.held_out.sum())

    @property
    def is_zero(self) -> bool:
        """Whether all values are zero."""
        return not bool(self.values.any())

    def threads(self) -> AbstractContextManager[None]:
        """Threads that help: on few entries those of torch wait for each other longer than they compute."""
        return one_thread() if len(self.values) < FEW_ENTRIES else one_blas_thread()

    def objective(self, ridge: float, *, everything: bool = False) -> ObservedLeastSquares:
        """The loss on the fitted entries, or on all."""
        weights = None if self.weights is None else self.weights.to(self.values.real.dtype)
        held_out = None if everything else self.held_out
        squares = ObservedLeastSquares(
            self.indices, self.values, self.shape, weights=weights, held_out=held_out, ridge=ridge
        )
        return ReweightedLeastSquares(squares, self.loss) if self.by_weights else squares

    def train_and_validation(self, ridge: float, network: TensorNetwork) -> tuple[float, float | None]:
        """Relative loss of a network on the fitted entries, and its loss on the held-out ones."""
        fitted = self.objective(ridge)
        train, validation = fitted.losses(network.structure, fitted.to_arrays(network))
        return train / (fitted.norm or 1.0), validation

    def start(self) -> TensorNetwork | None:
        """For losses with a scale of their own: a nearly constant network; None for a random one."""
        if not self.by_weights:
            return None
        level = self.loss.level(self.values)
        size = max(abs(level), SMALLEST_START) ** (1.0 / len(self.shape))
        noise = TensorNetwork.random(
            Structure.rank_one(self.shape), random_state=self.generator, dtype=self.values.dtype
        )
        cores = [size * (1.0 + START_NOISE * c) for c in noise.cores]
        cores[0] = math.copysign(1.0, level) * cores[0]
        return TensorNetwork(noise.structure, cores)

    def listed_in(self, known: Observations) -> torch.Tensor:
        """Which of some entries are among the observations."""
        return positions_in(known, Observations(self.indices, self.values.real, self.shape))

    def mean_losses(self, chosen: TensorNetwork, final: TensorNetwork, test: Test | None) -> dict[str, Any]:
        """Name of the loss and its means: of the chosen network, and of the final one on test entries."""
        found = chosen.entries(self.indices)
        fitted = torch.ones_like(self.values, dtype=torch.bool) if self.held_out is None else ~self.held_out
        means = {"loss": self.loss.name, "train_loss": float(self.loss(found[fitted], self.values[fitted]))}
        if self.held_out is not None:
            means["validation_loss"] = float(self.loss(found[~fitted], self.values[~fitted]))
        if test is not None:
            found = final.entries(test[0].to(final.device))
            means["test_loss"] = float(self.loss(found, test[1].to(found)))
        return means

    def test_error(self, network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
        """Relative error, or root of the relative deviance, on entries that were not observed."""
        if not self.by_weights:
            return relative_error(network, indices, values)
        squares = ObservedLeastSquares(indices.to(network.device), values.to(network.cores[0]), self.shape)
        test = ReweightedLeastSquares(squares, self.loss)
        return test.loss(network.structure, test.to_arrays(network)) / (test.norm or 1.0)

    def fingerprint(self) -> dict[str, Any]:
        """Numbers that tell these observations from others."""
        codes = torch.arange(1, len(self.values) + 1, device=self.values.device)
        for column in self.indices.T:  # whole numbers that wrap around: the same whatever the order of sums
            codes = (codes + column) * 6364136223846793005
            codes = codes ^ (codes >> 29)
        held_out = 0 if self.held_out is None else int(codes[self.held_out].sum())
        return {"observations": [len(self.values), int(codes.sum())], "held_out": held_out}
