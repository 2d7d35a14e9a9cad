"""One fit of a given structure, whatever form the data has: what was asked for, and the run itself."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from ..data.devices import one_thread
from ..errors import DataError, OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..results import PathPoint, Result, Step, StopReason
from ..solvers import ALSFit, ALSSettings, als
from ..structure import Structure
from .request import Target
from .task import bring_home, describe, scaled, seed_of

__all__ = ["FitRequest"]

# What an approximation leaves out, as a share of the loss, from which the fit goes on without it.
REST_SHARE = 0.1


@dataclass(frozen=True)
class FitRequest:
    """What the user asked for, checked."""

    structure: Structure
    max_error: float | None
    max_sweeps: int
    tolerance: float
    max_seconds: float | None
    init: TensorNetwork | None
    random_state: RandomState

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse data and starts of another form."""
        if shape != self.structure.dims:
            raise DataError(f"the tensor has shape {shape}, the structure is for {self.structure.dims}")
        if self.init is not None and not isinstance(self.init, TensorNetwork):
            raise OptionError(f"init must be a TensorNetwork, not {type(self.init).__name__}")
        if self.init is not None and self.init.structure != self.structure:
            raise OptionError(
                f"init has the structure {self.init.structure}, not the one to fit: {self.structure}"
            )

    def solve(self, objectives: Any, target: Target, **info: Any) -> Result:
        """Fit the network, on one objective after the other.

        Parameters
        ----------
        objectives
            Least squares; each but the last is an approximation of the next, and what it leaves out is its
            `rest`. The next is turned to only where that matters.
        """
        begin, probe = time.perf_counter(), target.probe
        generator = as_generator(self.random_state)
        network = scaled(self.init, 1.0 / target.scale) or TensorNetwork.random(
            self.structure, random_state=generator, dtype=probe.dtype
        )
        network = network.to(probe.device, probe.dtype)
        deadline = math.inf if self.max_seconds is None else begin + self.max_seconds
        sweeps = 0
        for objective in objectives:
            settings = ALSSettings(max_sweeps=self.max_sweeps - sweeps, tolerance=self.tolerance)
            goal = None if self.max_error is None else self.max_error * objective.norm
            with one_thread() if objective.use_numpy else nullcontext():
                fitted = als(
                    objective, network, settings, target=goal, deadline=deadline, keep_on_interrupt=True
                )
            network, sweeps = fitted.network, sweeps + fitted.num_sweeps
            stop = self._stop(fitted, goal, sweeps, time.perf_counter() - begin)
            if getattr(objective, "rest", 0.0) <= REST_SHARE * fitted.loss or stop != StopReason.CONVERGED:
                break
        seconds = time.perf_counter() - begin
        error = target.error(network)
        step = Step(
            index=0,
            kind="fit",
            edge=None,
            num_parameters=self.structure.num_parameters,
            loss=fitted.loss * target.scale,
            relative_error=fitted.loss / objective.norm,
            validation_error=None,
            seconds=seconds,
            structure=self.structure,
        )
        final = bring_home(network, target.scale, target.home)
        details = describe(
            probe, sweeps=sweeps, seconds=seconds, seed=seed_of(self.random_state, generator), **info
        )
        return Result(final, error, (step,), stop, (PathPoint(final, error),), details)

    def _stop(self, fitted: ALSFit, goal: float | None, sweeps: int, seconds: float) -> StopReason:
        if fitted.interrupted:
            return StopReason.INTERRUPTED
        if goal is not None and fitted.loss <= goal:
            return StopReason.TARGET_REACHED
        if sweeps >= self.max_sweeps:
            return StopReason.MAX_STEPS
        if seconds >= (math.inf if self.max_seconds is None else self.max_seconds):
            return StopReason.MAX_SECONDS
        return StopReason.CONVERGED
