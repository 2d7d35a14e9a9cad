"""One decomposition, whatever form the data has: what was asked for, and the run itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ..callbacks.base import Checkpoint, as_callbacks, progress_callback
from ..data.devices import one_thread
from ..errors import OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import LeastSquares
from ..results import Result
from ..search import CutBounds, EdgePolicy, Effort, GreedyOptions, GreedySearch, Limits, Problem
from ..structure import Edge
from .task import bring_home, describe, history_of, identity, path_of, run, scaled, seed_of

__all__ = ["Request", "Target"]

# Seconds that `effort="thorough"` takes when no limit is given.
THOROUGH_SECONDS = 60.0


@dataclass(frozen=True)
class Target:
    """What a run needs to know of the data besides the objective.

    Attributes
    ----------
    probe
        Some numbers that identify the data, of the dtype and on the device computed with.
    home
        Device the result goes to.
    scale
        What the data was divided by.
    error
        Relative error of a network, recomputed with care.
    """

    probe: torch.Tensor
    home: torch.device
    scale: float
    error: Callable[[TensorNetwork], float]


@dataclass(frozen=True)
class Request:
    """What the user asked for, checked."""

    limits: Limits
    options: GreedyOptions
    effort: str
    edges: Literal["all", "chain", "ring"] | Iterable[Edge]
    split_nodes: bool | None
    init: TensorNetwork | None
    random_state: RandomState
    progress: bool | None
    callbacks: Any
    checkpoint: str | Path | None

    @classmethod
    def parse(
        cls,
        *,
        max_error: float | None,
        max_parameters: int | None,
        max_steps: int | None,
        max_seconds: float | None,
        effort: Effort,
        options: GreedyOptions | None,
        edges: Any,
        **rest: Any,
    ) -> Request:
        """From the arguments of `decompose`."""
        if options is not None and not isinstance(options, GreedyOptions):
            raise OptionError(f"options must be GreedyOptions, not {type(options).__name__}")
        by_effort = GreedyOptions.for_effort(effort)
        endless = (by_effort if options is None else options).regrow_cycles is None
        if endless and max_seconds is None:  # steps alone may never run out: cycles without gain make none
            max_seconds = THOROUGH_SECONDS
        limits = Limits(max_error, max_parameters, max_steps, max_seconds)
        name = effort if options is None else "custom"
        if isinstance(edges, Iterable) and not isinstance(edges, str):
            edges = tuple(edges)  # looked at more than once
        return cls(limits, by_effort if options is None else options, name, edges, **rest)

    def policy(self, order: int) -> EdgePolicy:
        """Edges that may be used."""
        return EdgePolicy.parse(self.edges, order, self.options.max_degree)

    @property
    def wants_bounds(self) -> bool:
        """Whether lower bounds from the spectra of the target are of use."""
        return bool(self.limits.max_error) and self.options.certify

    def solve(
        self,
        objective: LeastSquares,
        target: Target,
        memory_limit: float,
        bounds: CutBounds | None,
        **info: Any,
    ) -> Result:
        """Search for a network."""
        policy, limits, probe = self.policy(len(objective.dims)), self.limits, target.probe
        problem = Problem(
            objective,
            self.options,
            policy,
            as_generator(self.random_state),
            target=0.0 if limits.max_error is None else limits.max_error * objective.norm,
            max_parameters=limits.max_parameters,
            memory_limit=memory_limit,
            split_nodes=policy.pairs is None if self.split_nodes is None else self.split_nodes,
            bounds=bounds,
        )
        init = scaled(self.init, 1.0 / target.scale)
        search = GreedySearch(problem, limits, init=init, dtype=probe.dtype, device=probe.device)
        listeners = [*as_callbacks(self.callbacks), *progress_callback(self.progress)]
        if self.checkpoint is not None:
            who = identity(probe, objective.dims, objective.norm, limits, self.options, policy, problem)
            keeper = Checkpoint(self.checkpoint, who)
            keeper.load(search)
            listeners.insert(0, keeper)
        with one_thread() if objective.use_numpy else nullcontext():
            run(search, listeners)
        answer, stop = search.answer, search.state.stop
        assert answer is not None and stop is not None
        details = describe(
            probe,
            effort=self.effort,
            options=self.options.to_dict(),
            seconds=search.state.elapsed,
            seed=seed_of(self.random_state, problem.generator),
            **info,
        )
        return Result(
            bring_home(answer.network, target.scale, target.home),
            target.error(answer.network),
            history_of(search, target.scale),
            stop,
            path_of(search, target.scale, target.home),
            details,
        )
