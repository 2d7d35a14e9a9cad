"""One completion, whatever form the observations have: what a run needs to know of them, and its ends."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from ..data.arrays import power_of_two_scale
from ..data.devices import check_memory, memory_for
from ..data.observations import Observations
from ..errors import DataError
from ..losses import EntryLoss, Squared, squared
from ..network import TensorNetwork
from ..objectives import HeldOut
from ..results import Result, StopReason
from ..search import CompletionSearch, EdgePolicy, GreedyOptions, Limits, Problem
from ..structure import Structure
from .task import all_zero, bring_home, describe, identity, path_of, refit_to_all, scaled

__all__ = ["CompletionTask", "Test", "relative_error"]

Test = tuple[torch.Tensor, torch.Tensor]
"""Positions and true values of entries that were not observed."""


class CompletionTask(ABC):
    """Observations where they are computed with, and what is needed to report on them.

    Attributes
    ----------
    home
        Where the result goes.
    scale
        What was divided out of the values.
    weight_scale
        What was divided out of the weights.
    loss
        Of predictions and values.
    """

    shape: tuple[int, ...]
    generator: torch.Generator
    home: torch.device
    scale: float
    weight_scale: float = 1.0
    loss: EntryLoss = squared
    seed: int | None = None

    @property
    def by_weights(self) -> bool:
        """Whether the loss is another than the squared one."""
        return not isinstance(self.loss, Squared)

    @property
    def loss_scale(self) -> float:
        """What to multiply losses with."""
        return self.scale * math.sqrt(self.weight_scale)

    @property
    @abstractmethod
    def probe(self) -> torch.Tensor:
        """A tensor of the dtype and on the device that cores are computed in."""

    @property
    @abstractmethod
    def num_observations(self) -> int:
        """Observations, fitted or not."""

    @property
    @abstractmethod
    def num_held_out(self) -> int:
        """Observations that are not fitted."""

    @property
    @abstractmethod
    def is_zero(self) -> bool:
        """Whether all values are zero."""

    @abstractmethod
    def objective(self, ridge: float, *, everything: bool = False) -> HeldOut:
        """The loss on the fitted entries, or on all."""

    @abstractmethod
    def train_and_validation(self, ridge: float, network: TensorNetwork) -> tuple[float, float | None]:
        """Relative loss of a network on the fitted entries, and its loss on the held-out ones."""

    @abstractmethod
    def threads(self) -> AbstractContextManager[None]:
        """Threads that help."""

    @abstractmethod
    def start(self) -> TensorNetwork | None:
        """A network to start from; None for a random one."""

    @abstractmethod
    def listed_in(self, known: Observations) -> torch.Tensor:
        """Which of some entries are among the observations."""

    @abstractmethod
    def mean_losses(self, chosen: TensorNetwork, final: TensorNetwork, test: Test | None) -> dict[str, Any]:
        """Name of the loss and its means, where it is not the squared one."""

    @abstractmethod
    def test_error(self, network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
        """Relative error, or root of the relative deviance, on entries that were not observed."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Numbers that tell these observations from others."""

    # -- the run ---------------------------------------------------------------------------------------

    def test_entries(self, truth: Any) -> Test | None:
        """Positions and true values of entries that were not observed; None where nothing is known."""
        if truth is None:
            return None
        known = truth if isinstance(truth, Observations) else Observations.from_dense(truth)
        if known.shape != self.shape:
            raise DataError(f"truth has shape {known.shape}, the tensor {self.shape}")
        unseen = ~self.listed_in(known)
        if not bool(unseen.any()):
            raise DataError("truth lists no entry that is not observed: there is nothing to test on")
        return known.indices[unseen], known.values[unseen]

    def search(
        self,
        options: GreedyOptions,
        limits: Limits,
        policy: EdgePolicy,
        split_nodes: bool,
        init: TensorNetwork | None,
        memory_limit: float | None,
    ) -> CompletionSearch:
        """A search that is ready to run; refused when not even its first network fits in memory."""
        objective = self.objective(self.loss.ridge if options.ridge is None else options.ridge)
        device = self.probe.device
        limit = memory_for(device, memory_limit)
        first = Structure.rank_one(self.shape) if init is None else init.structure
        what = f"completing a tensor of shape {self.shape} from {self.num_observations:,} entries"
        check_memory(objective.memory_needed(first), limit, what)
        problem = Problem(
            objective,
            options,
            policy,
            self.generator,
            target=(limits.max_error or 0.0) * (objective.validation_norm or objective.norm),
            max_parameters=self._most_parameters(limits, first, objective.num_fitted),
            memory_limit=limit,
            split_nodes=split_nodes,
        )
        start = scaled(init, 1.0 / self.scale)
        return CompletionSearch(problem, limits, init=start, dtype=self.probe.dtype, device=device)

    def _most_parameters(self, limits: Limits, first: Structure, fitted: int) -> int | None:
        """Where held-out entries decide: no more parameters than entries that could determine them."""
        if not self.num_held_out:
            return limits.max_parameters
        most = max(fitted, first.num_parameters)
        return most if limits.max_parameters is None else min(limits.max_parameters, most)

    def identity(self, search: CompletionSearch) -> dict[str, Any]:
        """What a resumed run must share with the one that wrote the checkpoint."""
        problem = search.problem
        return identity(
            self.probe,
            self.shape,
            problem.objective.norm,
            search.limits,
            problem.options,
            problem.policy,
            problem,
            loss=repr(self.loss),
            **self.fingerprint(),
        )

    def zero(self, structure: Structure, test: Test | None) -> Result:
        """The result for observations that are zero throughout."""
        result = all_zero(structure, self.probe, self.home)
        return replace(
            result,
            train_error=0.0,
            validation_error=0.0 if self.num_held_out else None,
            test_error=None if test is None else relative_error(result.network, *test),
        )

    def finish(self, search: CompletionSearch, test: Test | None, effort: str) -> Result:
        """Fit the chosen network to all observations, and report."""
        answer, stop = search.answer, search.state.stop
        assert answer is not None and stop is not None
        last = refit_to_all(search, self.objective(search.ridge, everything=True), self.loss_scale)
        train, validation = self.train_and_validation(search.ridge, answer.network)
        final = bring_home(last.network, self.scale, self.home)
        return Result(
            final,
            last.error,
            last.history,
            StopReason.INTERRUPTED if last.interrupted else stop,
            path_of(search, self.scale, self.home),
            describe(
                self.probe,
                effort=effort,
                options=search.problem.options.to_dict(),
                seconds=last.seconds,
                seed=self.seed,
                ridge=search.ridge,
                num_observations=self.num_observations,
                num_held_out=self.num_held_out,
                **(self.mean_losses(answer.network, final, test) if self.by_weights else {}),
                **self.about(),
            ),
            train_error=train,
            validation_error=None if validation is None else validation / search.problem.scale,
            test_error=None if test is None else self.test_error(final, *test),
        )

    def about(self) -> dict[str, Any]:
        """What else to note of the run."""
        return {}


def relative_error(network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
    """Relative error at some entries, in double precision."""
    wide = torch.complex128 if values.is_complex() or network.is_complex else torch.float64
    found = network.entries(indices.to(network.device)).to(wide)
    true = values.to(found.device, wide)
    scale = power_of_two_scale(true)  # squares of extreme values overflow or vanish
    found, true = found / scale, true / scale
    norm = float(torch.linalg.vector_norm(true))
    return float(torch.linalg.vector_norm(found - true)) / (norm or 1.0)
