"""Completion from observations in partitions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data.axes import Axes
from ..data.devices import choose_device, one_thread
from ..data.holdout import AUTO, HELD_OUT, Split, positions_in
from ..data.observations import Observations
from ..data.partitions.parts import find_labels
from ..data.partitions.tables import PartitionedObservations
from ..errors import OptionError
from ..objectives import EntryPart, PartitionedLeastSquares
from ..structure import Structure
from .observation_task import ObservationTask, Observed
from .partition_data import prepare_parts
from .request import Request


class PartitionTask(ObservationTask):
    """A run on observations that stay in threads or with the workers of a cluster."""

    def __init__(
        self,
        data: PartitionedObservations,
        observed: Observed,
        request: Request,
        structure: Structure | None = None,
    ) -> None:
        super().__init__(observed, request, structure)
        if observed.mask is not None:
            raise OptionError(
                "a mask goes with a dense tensor; entries listed in partitions are all observed"
            )
        if self.is_reweighted:
            raise OptionError(
                f"loss={self.loss.name!r} is not available for observations in partitions; use 'squared', or "
                "load them into memory"
            )
        # No process sees the pattern of gaps.
        is_auto = isinstance(observed.validation, str) and observed.validation == AUTO
        validation = HELD_OUT if is_auto else observed.validation
        columns = data.roles(observed.given_weights, validation if isinstance(validation, str) else None)
        columns = find_labels(data, columns)
        self.home = choose_device("cpu" if request.device is None else request.device, torch.empty(0))
        # Choosing what is held out takes nothing from the generator: partitions do not know of each other.
        for_split, self.generator = request.generators()
        self.data = prepare_parts(data, columns, validation, request, self.home, for_split.initial_seed())
        self.use_units(self.data.plan.exponent)
        labels = columns.labels or (None,) * len(columns.index)
        self.shape, self.weight_exponent = self.data.plan.shape, self.data.plan.weight_exponent
        self.request = request.holding_out(
            self.num_held_out, wanted=isinstance(validation, str) or Split.parse(validation).holds_out
        )
        self.note_axes(observed.x, Axes.of_columns(dict(zip(columns.index, labels)), columns.value))
        self.note_truth(observed.truth)

    @property
    def probe(self) -> torch.Tensor:
        return torch.zeros(1, dtype=self.data.plan.dtype)  # this process computes the cores, on the CPU

    @property
    def smallest(self) -> float:
        return self.data.smallest

    @property
    def num_observations(self) -> int:
        return self.data.census_of_all.fitted

    @property
    def num_held_out(self) -> int:
        return self.data.census.held_out

    @property
    def is_zero(self) -> bool:
        return self.data.is_zero

    def objective(self, ridge: float, *, everything: bool = False) -> PartitionedLeastSquares:
        data = self.data
        census = data.census_of_all if everything else data.census
        return PartitionedLeastSquares(
            data.parts, self.shape, data.plan.dtype, census, ridge=ridge, everything=everything
        )

    def threads(self) -> AbstractContextManager[None]:
        return one_thread()

    def lists(self, known: Observations) -> torch.Tensor:
        masks = self.data.parts.map(_Among(known.indices.cpu().numpy(), self.shape))
        return torch.from_numpy(np.logical_or.reduce(list(masks)))

    def fingerprint(self) -> Mapping[str, object]:
        code, held_out = self.data.codes
        return {"observations": [self.num_observations, code], "held_out": held_out}

    def about(self) -> Mapping[str, object]:
        parts = self.data.parts
        return {**super().about(), "partitions": len(parts), "rounds": parts.rounds}


@dataclass(frozen=True)
class _Among:
    """Tells which positions a part has, as a mask."""

    indices: Any
    shape: tuple[int, ...]

    def __call__(self, part: EntryPart) -> Any:
        mine = np.concatenate(part.positions())
        ones = torch.ones(1)
        known = Observations(
            torch.from_numpy(np.array(self.indices)), ones.expand(len(self.indices)), self.shape
        )
        listed = Observations(torch.from_numpy(mine), ones.expand(len(mine)), self.shape)
        return positions_in(known, listed).numpy()
