"""Tensor regression: a network as the coefficient tensor of a linear model. Behind `TNRegressor`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..callbacks.base import as_callbacks, progress_callback
from ..data.arrays import as_dtype, as_target
from ..data.devices import check_memory, choose_device, memory_for, one_thread
from ..data.holdout import Split
from ..errors import DataError, OptionError
from ..losses import squared
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import RegressionLeastSquares
from ..results import Result, StopReason
from ..search import CompletionSearch, EdgePolicy, Effort, GreedyOptions, Limits, Problem
from ..solvers import ALSSettings, als
from ..structure import Edge, Structure
from .task import all_zero, bring_home, describe, path_of, refit_to_all, run

__all__ = ["HELD_OUT", "Regression", "regress"]

# Share of the samples held out by default.
HELD_OUT = 0.1
# Numbers in the samples up to which torch computes on one thread, and from which "auto" takes a GPU.
FEW_ENTRIES = 1_000_000
GPU_ENTRIES = 3_000_000
# Copies of the samples held at once: centred, split, stored in the order sweeps read; twice for the last fit.
COPIES = 6
# Sweeps for a structure that is given, and for the last fit.
FIT_SWEEPS = 100
FIT_TOLERANCE = 1e-4
# Random starts for a structure that is given: there, nothing grew into a good one.
FIT_STARTS = 4
# Deviations from the mean below this many units of rounding are rounding.
ROUNDING = 16.0


@dataclass(frozen=True)
class Regression:
    """A fitted model ``y = intercept + <x, network>``.

    Attributes
    ----------
    intercept
        One number per output.
    """

    result: Result
    intercept: torch.Tensor

    @property
    def network(self) -> TensorNetwork:
        """Coefficients; a last leg for the output where there are several."""
        return self.result.network


def regress(
    x: Any,
    y: Any,
    *,
    structure: Structure | None = None,
    validation: Any = HELD_OUT,
    fit_intercept: bool = True,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
    ridge: float | None = None,
    effort: Effort = "balanced",
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Any = None,
) -> Regression:
    """Learn ``y_i = b + <X_i, W>`` with a network ``W`` whose structure and ridge held-out samples decide on.

    Parameters
    ----------
    x
        Samples, ``(n, d_1, ..., d_p)``, real or complex.
    y
        Responses, ``(n,)``, or ``(n, q)``: then ``W`` has a last leg of size ``q``.
    structure
        Fit this structure instead of learning one.
    validation
        Samples to hold out: a share, a boolean mask of length ``n``, or False for none.
    max_error
        Stop at this relative error on the held-out samples.
    ridge
        Weight of the penalty on every core, relative to its Gram matrix; by default held-out samples decide.

    Returns
    -------
    Regression
        Errors in its result are relative to the norm of the responses, less their mean with an intercept.
    """
    task = _Task.prepare(x, y, validation, fit_intercept, dtype, device, random_state)
    options = GreedyOptions.for_completion(effort).replace(ridge=ridge, starts=1)
    if structure is not None:
        options = options.replace(
            sweeps=FIT_SWEEPS,
            tolerance=FIT_TOLERANCE,
            final_sweeps=FIT_SWEEPS,
            final_tolerance=FIT_TOLERANCE,
        )
        if structure.dims != task.dims:
            raise OptionError(f"the structure is for {structure.dims}, the coefficients are {task.dims}")
        max_steps = 0
    given = (max_error, max_parameters, max_steps, max_seconds)
    if task.held_out is None and all(v is None for v in given):
        max_steps = 0  # nothing says when to stop, as a warning or the user says
    limits = Limits(max_error, max_parameters, max_steps, max_seconds, held_out=task.held_out is not None)
    policy = EdgePolicy.parse(edges, len(task.dims), options.max_degree)
    first = structure or Structure.rank_one(task.dims)
    limits.check_size(first.num_parameters)
    if task.is_constant:
        return Regression(all_zero(first, task.y, task.home), task.constant)
    search = task.search(options, limits, policy, first, memory_limit)
    with task.threads():
        if structure is not None:
            search.init = _best_start(search, structure)
            search.problem.patient = False
        run(search, [*as_callbacks(callbacks), *progress_callback(progress)])
        return _finish(search, task, effort)


def _best_start(search: CompletionSearch, structure: Structure) -> TensorNetwork:
    """The best of some random starts after a few sweeps: ALS from one alone often ends in a poor minimum."""
    problem = search.problem
    found: list[tuple[float, int, TensorNetwork]] = []
    for _ in range(FIT_STARTS):
        drawn = TensorNetwork.random(
            structure, random_state=problem.generator, dtype=search.dtype, device=search.device
        )
        fit = als(problem.objective, drawn, ALSSettings(max_sweeps=FIT_SWEEPS // FIT_STARTS, accelerate=True))
        found.append((fit.loss, len(found), fit.network))
        if len(structure.edges) == 0 or problem.out_of_time:
            break
    return min(found)[2]


@dataclass
class _Task:
    """Samples where they are computed with, in units of about one, and what is needed to go back.

    Attributes
    ----------
    held_out
        True for samples that are not fitted; None when all are.
    home
        Where the result goes.
    x_scale, y_scale
        What was divided out: powers of two, so that nothing is rounded.
    """

    x: torch.Tensor
    y: torch.Tensor
    held_out: torch.Tensor | None
    fit_intercept: bool
    generator: torch.Generator
    home: torch.device
    x_scale: float
    y_scale: float

    @classmethod
    def prepare(
        cls,
        x: Any,
        y: Any,
        validation: Any,
        fit_intercept: bool,
        dtype: Any,
        device: torch.device | str | None,
        random_state: RandomState,
    ) -> _Task:
        """Check and convert what the user gave."""
        chosen = as_dtype(dtype)
        samples, responses = as_target(x, chosen), as_target(y, chosen)
        if samples.dim() < 2:
            raise DataError(
                f"x has shape {tuple(samples.shape)}; an axis of samples and at least one more are needed"
            )
        if responses.dim() > 2:
            raise DataError(f"y has shape {tuple(responses.shape)}; (n,) or (n, q) is needed")
        if len(samples) != len(responses):
            raise DataError(f"x has {len(samples)} samples, y has {len(responses)}")
        common = torch.promote_types(samples.dtype, responses.dtype) if chosen is None else chosen
        where = choose_device(device, samples, GPU_ENTRIES)
        home = samples.device if device == "auto" else where
        # Without a seed the split is the same each time.
        generator = as_generator(0 if random_state is None else random_state)
        held_out = Split.parse(validation).samples(len(samples), generator)
        if random_state is None:
            generator = as_generator(None)
        x_scale, y_scale = _unit(samples), _unit(responses)
        return cls(
            samples.to(where, common) / x_scale,
            responses.to(where, common) / y_scale,
            None if held_out is None else held_out.to(where),
            fit_intercept,
            generator,
            home,
            x_scale,
            y_scale,
        )

    @property
    def dims(self) -> tuple[int, ...]:
        """Shape of the coefficients."""
        return (*self.x.shape[1:], *self.y.shape[1:])

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing to explain."""
        return not bool(_centred(self.y, None, self.fit_intercept)[0].any())

    @property
    def constant(self) -> torch.Tensor:
        """The intercept where the responses are constant."""
        mean = _centred(self.y, None, self.fit_intercept)[1]
        return (mean * self.y_scale).reshape(-1).to(self.home)

    def threads(self) -> AbstractContextManager[None]:
        """Threads that help: on small data they wait for each other longer than they compute."""
        return one_thread() if self.x.numel() <= FEW_ENTRIES else nullcontext()

    def objective(self, ridge: float, *, everything: bool = False) -> RegressionLeastSquares:
        """Least squares on the fitted samples, or on all; their means are subtracted."""
        held_out = None if everything else self.held_out
        x, _ = _centred(self.x, held_out, self.fit_intercept)
        y, _ = _centred(self.y, held_out, self.fit_intercept)
        return RegressionLeastSquares(x, y, held_out=held_out, ridge=ridge)

    def intercept(self, network: TensorNetwork) -> torch.Tensor:
        """``mean(y) - <mean(x), W>`` for coefficients in the scaled units."""
        _, x_mean = _centred(self.x, None, self.fit_intercept)
        _, y_mean = _centred(self.y, None, self.fit_intercept)
        dense = network.to_dense().reshape(x_mean.numel(), -1)
        found = y_mean.reshape(-1) - x_mean.reshape(-1).to(dense.dtype) @ dense
        return (found * self.y_scale).to(self.home)

    def search(
        self,
        options: GreedyOptions,
        limits: Limits,
        policy: EdgePolicy,
        first: Structure,
        memory_limit: float | None,
    ) -> CompletionSearch:
        """A search that is ready to run; refused when not even its first network fits in memory."""
        limit = memory_for(self.x.device, memory_limit)
        what = f"a regression on {len(self.x):,} samples of shape {tuple(self.x.shape[1:])}"
        check_memory(COPIES * self.x.numel() * self.x.element_size(), limit, what)
        objective = self.objective(squared.ridge if options.ridge is None else options.ridge)
        check_memory(objective.memory_needed(first), limit, what)
        most = limits.max_parameters
        if self.held_out is not None:  # no more parameters than responses that could determine them
            enough = max(objective.num_fitted, first.num_parameters)
            most = enough if most is None else min(most, enough)
        problem = Problem(
            objective,
            options,
            policy,
            self.generator,
            target=(limits.max_error or 0.0) * (objective.validation_norm or objective.norm),
            max_parameters=most,
            memory_limit=limit,
            split_nodes=policy.pairs is None,
        )
        return CompletionSearch(problem, limits, dtype=self.x.dtype, device=self.x.device)


def _unit(tensor: torch.Tensor) -> float:
    """The power of two below the largest number: results do not depend on the units of the data."""
    largest = float(tensor.abs().max())
    return 2.0 ** math.floor(math.log2(largest)) if largest > 0.0 else 1.0


def _centred(
    data: torch.Tensor, held_out: torch.Tensor | None, fit_intercept: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Data less its mean over the fitted samples, and that mean; what is constant becomes exactly zero."""
    fitted = data if held_out is None else data[~held_out]
    if not fit_intercept:
        return data, torch.zeros_like(data[0])
    wide = torch.complex128 if data.is_complex() else torch.float64
    mean = fitted.mean(0, dtype=wide)
    rest = (data.to(wide) - mean).to(data.dtype)
    rounding = ROUNDING * torch.finfo(data.dtype).eps * mean.abs()
    constant = (rest.abs().amax(0) <= rounding).to(data.real.dtype)
    return rest * (1.0 - constant), mean.to(data.dtype)


def _finish(search: CompletionSearch, task: _Task, effort: str) -> Regression:
    """Fit the chosen network to all samples, and report."""
    answer, stop = search.answer, search.state.stop
    assert answer is not None and stop is not None
    if stop == StopReason.MAX_STEPS and search.init is not None:
        stop = StopReason.CONVERGED  # a structure was given
    last = refit_to_all(search, task.objective(search.ridge, everything=True), task.y_scale)
    train = answer.loss / (search.problem.objective.norm or 1.0)
    scale = task.y_scale / task.x_scale
    result = Result(
        bring_home(last.network, scale, task.home),
        last.error,
        last.history,
        StopReason.INTERRUPTED if last.interrupted else stop,
        path_of(search, scale, task.home),
        describe(
            task.x,
            effort=effort,
            options=search.problem.options.to_dict(),
            seconds=last.seconds,
            ridge=search.ridge,
            num_samples=len(task.x),
            num_held_out=0 if task.held_out is None else int(task.held_out.sum()),
        ),
        train_error=train,
        validation_error=None if answer.validation is None else answer.validation / search.problem.scale,
    )
    return Regression(result, task.intercept(last.network))
