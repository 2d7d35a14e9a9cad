"""The door of the baselines: the keywords they share, and from data through a strategy to a `Result`."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
import torch

from ..callbacks.base import as_callbacks, progress_callback
from ..data.arrays import as_dtype
from ..data.devices import memory_for
from ..errors import MissingPackageError, OptionError, check_positive, check_whole
from ..network import RandomState, as_generator
from ..results import Result
from ..search import Limits
from ..structure import Structure
from ..tasks.task import (
    all_zero,
    bring_home,
    describe,
    exact_error,
    history_of,
    path_of,
    prepare,
    run,
    seed_of,
)
from .exploration import Exploration, ExplorationProblem, Goal, Map, Strategy
from .inner_fit import Fit, InnerFit, as_fit_options

__all__ = ["Common", "Setting", "explore", "missing"]

# Stands for "no limit of steps": the rounds of the method end it.
NO_LIMIT = 10**9


class Common(TypedDict, total=False):
    """Keywords of every baseline for dense tensors.

    `max_error`, `max_parameters`, `max_seconds`, `random_state`, `device`, `dtype`, `memory_limit`,
    `progress` and `callbacks` mean what they mean for `decompose`. `max_evaluations` is the number of
    structures that may be fitted. `map` fits the structures of a round: `map` of any executor, say, to do it
    in parallel.
    """

    max_error: float | None
    max_parameters: int | None
    max_seconds: float | None
    max_evaluations: int | None
    random_state: RandomState
    device: torch.device | str | None
    dtype: Any
    memory_limit: float | None
    progress: bool | None
    callbacks: Any
    map: Map


class Setting:
    """What a strategy may know: the data, the goal, and where random numbers come from."""

    def __init__(self, target: torch.Tensor, goal: Goal, rng: np.random.Generator, deadline: float) -> None:
        self.target = target
        self.goal = goal
        self.rng = rng
        self.deadline = deadline

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return tuple(self.target.shape)

    @property
    def order(self) -> int:
        """Number of its axes."""
        return len(self.dims)

    def array(self) -> np.ndarray:
        """The tensor as a NumPy array."""
        return self.target.cpu().numpy()


def explore(
    x: Any,
    method: str,
    strategy: Callable[[Setting], Strategy],
    common: Common,
    *,
    fit: Fit = "als",
    error_weight: float | None = None,
    needs_goal: bool = False,
    **described: Any,
) -> Result:
    """Run a strategy on a dense tensor.

    Parameters
    ----------
    strategy
        Makes the generator of rounds from the setting.
    error_weight
        ``lambda`` of the fitness; None for methods that have none.
    needs_goal
        Whether `max_error` or `max_parameters` must say when to stop.
    described
        What else goes into ``Result.info``.
    """
    unknown = set(common) - set(Common.__annotations__)
    if unknown:
        raise OptionError(f"{method} does not know {', '.join(sorted(unknown))}")
    goal, limits = _limits(method, common, error_weight, needs_goal)
    target, home, scale = prepare(x, as_dtype(common.get("dtype")), common.get("device"))
    limits.check_size(sum(target.shape))
    if not bool(target.any()):
        return all_zero(Structure.rank_one(target.shape), target, home)
    options = as_fit_options(fit)
    generator = as_generator(common.get("random_state"))
    asked = common.get("memory_limit")
    begin = time.perf_counter()
    setting = Setting(
        target,
        goal,
        np.random.default_rng(int(torch.randint(2**62, (), generator=generator))),
        begin + (limits.max_seconds or float("inf")),
    )
    problem = ExplorationProblem(
        InnerFit(target, options),
        goal,
        generator,
        map=common.get("map") or builtins.map,
        memory_limit=memory_for(target.device, asked),
        max_evaluations=common.get("max_evaluations"),
    )
    search = Exploration(problem, limits, strategy(setting))
    run(search, [*as_callbacks(common.get("callbacks")), *progress_callback(common.get("progress"))])
    best, stop = search.best, search.state.stop
    if best is None or best.network is None:
        raise OptionError(
            f"{method} proposed no structure that fits in: all are larger than the data, max_parameters or "
            "memory_limit. Allow more, or smaller ranks"
        )
    assert stop is not None
    error = exact_error(target, best.network)
    details = describe(
        target,
        method=method,
        fit=options.method,
        evaluations=search.evaluations,
        seed=seed_of(common.get("random_state"), generator),
        rounds=search.rounds,
        seconds=search.state.elapsed,
        **({} if error_weight is None else {"error_weight": error_weight, "fitness": goal.fitness(best)}),
        **({} if best.counted is None else {"num_parameters": best.counted}),
        **described,
    )
    history = history_of(search, scale)
    return Result(
        bring_home(best.network, scale, home), error, history, stop, path_of(search, scale, home), details
    )


def _limits(method: str, common: Common, error_weight: float | None, needs_goal: bool) -> tuple[Goal, Limits]:
    error, size = common.get("max_error"), common.get("max_parameters")
    if needs_goal and error is None and size is None:
        raise OptionError(f"nothing says when {method} should stop: give max_error or max_parameters")
    if error_weight is not None:
        check_positive("error_weight", error_weight)
    if common.get("max_evaluations") is not None:
        check_whole("max_evaluations", common["max_evaluations"])
    limits = Limits(error, size, NO_LIMIT, common.get("max_seconds"))
    return Goal(limits.max_error, limits.max_parameters, error_weight), limits


def missing(package: str, method: str) -> MissingPackageError:
    """The error for an optional package that is not installed."""
    return MissingPackageError(f"{method} needs {package}: pip install 'tensorgrow[baselines]'")
