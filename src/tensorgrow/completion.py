"""Completion: a network for a tensor of which only some entries are known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from .callbacks import Checkpoint, as_callbacks, progress_callback
from .data import as_dtype, check_memory, choose_device, free_memory, power_of_two_scale
from .errors import DataError, OptionError
from .holdout import hold_out, is_asked, positions_in, warn_about_gaps
from .linalg import one_blas_thread, one_thread
from .losses import EntryLoss, Squared, as_loss, squared
from .network import RandomState, TensorNetwork, as_generator
from .objectives import ObservedLeastSquares, ReweightedLeastSquares
from .observations import Observations, as_observations
from .results import Result, StopReason
from .running import (
    all_zero,
    bring_home,
    check_init,
    describe,
    identity,
    path_of,
    positive_limit,
    refit_to_all,
    run,
    scaled,
    seed_of,
)
from .search import (
    CompletionSearch,
    EdgePolicy,
    Effort,
    GreedyOptions,
    Limits,
    Problem,
)
from .structure import Edge, Structure

__all__ = ["HELD_OUT", "complete", "fit_observed"]

# Share of the entries held out by default.
HELD_OUT = 0.1
# Observations up to which torch computes on one thread.
FEW_ENTRIES = 60_000
# Starts of losses with a scale of their own: this far from constant, and no smaller than that.
START_NOISE = 0.1
SMALLEST_START = 0.1
# Observations from which `device="auto"` takes a GPU: every one costs a row of each environment.
GPU_OBSERVATIONS = 30_000
FIT_SWEEPS = 100
FIT_TOLERANCE = 1e-4


def complete(
    x: Any,
    mask: Any = None,
    *,
    loss: str | EntryLoss = "squared",
    weights: Any = None,
    validation: Any = HELD_OUT,
    truth: Any = None,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
    split_nodes: bool | None = None,
    effort: Effort = "balanced",
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
) -> Result:
    """Find a tensor network for a tensor of which only some entries are known.

    Structure, ranks and ridge are chosen by the error on held-out entries; the growth ends when that no
    longer falls. The chosen network is then fitted once more to all entries.

    Parameters
    ----------
    x
        A dense tensor with a `mask` or with NaN for what is missing; `Observations`; a SciPy or torch sparse
        array (stored entries are observed); or a pandas frame of index columns and a value column last.
    mask
        True where a dense `x` is observed.
    loss
        "squared"; "absolute" or "huber" for outliers; "poisson" for counts (entries of the network are
        logarithms of rates); "logistic" for zeros and ones (log-odds); or an `EntryLoss` from
        `tensorgrow.losses`. Errors are then roots of deviances relative to that of a zero network, mean
        losses are in ``result.info``, and `predict` and `fill` give expected values.
    weights
        Weight of every entry's squared residual, or of its loss: of the shape of a dense `x`, or one per
        listed entry.
    validation
        Entries to hold out: a share, a boolean mask (of the shape of a dense `x`, or one per listed entry),
        or False to hold out none; then another limit must say when to stop.
    truth
        The full tensor (NaN where unknown) or `Observations` of it: the result reports the relative error
        on entries that are not observed. It is not used otherwise.
    max_error
        Stop at this relative error on the held-out entries.
    max_parameters, max_steps, max_seconds
        Limits of the size, the number of growths and the time.
    edges, split_nodes, effort, init, random_state, device, dtype, memory_limit
        As for `decompose`. ``edges="chain"`` and ``"ring"`` learn the ranks of TT and TR completion. With
        ``random_state=None`` the same entries are held out each time.
    progress, callbacks, checkpoint, options
        As for `decompose`. The ridge is ``options.ridge``.

    Returns
    -------
    Result
        `relative_error` is on all observed entries; `train_error`, `validation_error` and `test_error` say
        how well the network does on entries it was and was not fitted to. ``result.fill(x, mask)`` is the
        completed tensor, ``result.predict(indices)`` any entries.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.einsum("i,j,k->ijk", np.arange(1.0, 7.0), np.linspace(1, 2, 8), np.ones(9))
    >>> mask = np.random.default_rng(0).random(x.shape) < 0.5
    >>> r = complete(x, mask, random_state=0)
    >>> bool(np.abs(r.fill(x, mask) - x).max() < 1e-6)
    True
    """
    if options is not None and not isinstance(options, GreedyOptions):
        raise OptionError(f"options must be GreedyOptions, not {type(options).__name__}")
    chosen = GreedyOptions.for_completion(effort) if options is None else options
    task = _Task.prepare(x, mask, weights, validation, dtype, device, random_state, as_loss(loss))
    given = (max_error, max_parameters, max_steps, max_seconds)
    if task.held_out is None and is_asked(validation) and all(v is None for v in given):
        max_steps = 0  # too few observations to hold any out, as a warning says
    limits = Limits(max_error, max_parameters, max_steps, max_seconds, held_out=task.held_out is not None)
    policy = EdgePolicy.parse(edges, len(task.shape), chosen.max_degree)
    check_init(init, task.shape, task.values)
    first = Structure.rank_one(task.shape) if init is None else init.structure
    limits.check_size(first.num_parameters)
    test = _test_entries(truth, task)
    if not (task.by_weights or bool(task.values.any())):
        return task.zero(first, test)
    split = policy.pairs is None if split_nodes is None else split_nodes
    search = task.search(chosen, limits, policy, split, init or task.start(), memory_limit)
    listeners = [*as_callbacks(callbacks), *progress_callback(progress)]
    if checkpoint is not None:
        keeper = Checkpoint(checkpoint, task.identity(search))
        keeper.load(search)
        listeners.insert(0, keeper)
    with task.threads():
        run(search, listeners)
        return _finish(search, task, test, effort if options is None else "custom")


def fit_observed(
    x: Any,
    structure: Structure,
    mask: Any = None,
    *,
    weights: Any = None,
    validation: Any = HELD_OUT,
    truth: Any = None,
    ridge: float | None = None,
    max_error: float | None = None,
    max_sweeps: int | None = None,
    tolerance: float | None = None,
    max_seconds: float | None = None,
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    memory_limit: float | None = None,
) -> Result:
    """ALS on observed entries for a structure that is already known; behind `fit`."""
    sweeps = FIT_SWEEPS if max_sweeps is None else max_sweeps
    drop = FIT_TOLERANCE if tolerance is None else tolerance
    options = GreedyOptions.for_completion("balanced").replace(
        ridge=ridge, sweeps=sweeps, tolerance=drop, final_sweeps=sweeps, final_tolerance=drop
    )
    held_out = validation if ridge is None else False
    task = _Task.prepare(x, mask, weights, held_out, dtype, device, random_state)
    if task.shape != structure.dims:
        raise DataError(f"the tensor has shape {task.shape}, the structure is for {structure.dims}")
    check_init(init, task.shape, task.values)
    if init is not None and init.structure != structure:
        raise OptionError(f"init has the structure {init.structure}, not the one to fit: {structure}")
    test = _test_entries(truth, task)
    if not bool(task.values.any()):
        return task.zero(structure, test)
    start = init or TensorNetwork.random(structure, random_state=task.generator, dtype=task.values.dtype)
    limits = Limits(max_error=max_error, max_seconds=max_seconds, max_steps=0)
    search = task.search(options, limits, EdgePolicy(None), False, start, memory_limit)
    search.problem.patient = False
    with task.threads():
        run(search, [])
        result = _finish(search, task, test, "fit")
    reached = max_error is not None and (result.validation_error or result.relative_error) <= max_error
    stop = StopReason.TARGET_REACHED if reached else StopReason.CONVERGED
    return replace(result, stop=stop if result.stop == StopReason.MAX_STEPS else result.stop)


@dataclass
class _Task:
    """Observations where they are computed with, and what is needed to report on them.

    Attributes
    ----------
    held_out
        True for entries that are not fitted; None when all are.
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

    @property
    def by_weights(self) -> bool:
        """Whether the loss is another than the squared one."""
        return not isinstance(self.loss, Squared)

    @property
    def loss_scale(self) -> float:
        """What to multiply losses with."""
        return self.scale * math.sqrt(self.weight_scale)

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
    ) -> _Task:
        """Check and convert what the user gave."""
        seen = as_observations(x, mask, weights, as_dtype(dtype))
        loss.check(seen.values)
        where = choose_device(device, seen.values, GPU_OBSERVATIONS)
        home = seen.values.device if device == "auto" else where
        # Without a seed the split is the same each time, so that a checkpoint can be gone on with.
        generator = as_generator(0 if random_state is None else random_state)
        held_out = hold_out(seen, x, validation, generator)
        if random_state is None:
            generator = as_generator(None)
        warn_about_gaps(seen)
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

    def threads(self) -> AbstractContextManager[None]:
        """Threads that help: on few entries those of torch wait for each other longer than they compute."""
        return one_thread() if len(self.values) < FEW_ENTRIES else one_blas_thread()

    def objective(self, ridge: float, *, everything: bool = False) -> ObservedLeastSquares:
        """The loss on the fitted entries, or on all."""
        weights = None if self.weights is None else self.weights.to(self.values.real.dtype)
        given = (self.indices, self.values, self.shape)
        held_out = None if everything else self.held_out
        if self.by_weights:
            return ReweightedLeastSquares(
                *given, weights=weights, held_out=held_out, ridge=ridge, loss=self.loss
            )
        return ObservedLeastSquares(*given, weights=weights, held_out=held_out, ridge=ridge)

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
        limit = free_memory(self.values.device) if memory_limit is None else positive_limit(memory_limit)
        first = Structure.rank_one(self.shape) if init is None else init.structure
        what = f"completing a tensor of shape {self.shape} from {len(self.values):,} entries"
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
        return CompletionSearch(
            problem, limits, init=start, dtype=self.values.dtype, device=self.values.device
        )

    def mean_losses(
        self, chosen: TensorNetwork, final: TensorNetwork, test: tuple[torch.Tensor, torch.Tensor] | None
    ) -> dict[str, Any]:
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
            return _relative_error(network, indices, values)
        test = ReweightedLeastSquares(
            indices.to(network.device), values.to(network.cores[0]), self.shape, loss=self.loss
        )
        return test.loss(network.structure, test.to_arrays(network)) / (test.norm or 1.0)

    def zero(self, structure: Structure, test: tuple[torch.Tensor, torch.Tensor] | None) -> Result:
        """The result for observations that are zero throughout."""
        result = all_zero(structure, self.values, self.home)
        return replace(
            result,
            train_error=0.0,
            validation_error=None if self.held_out is None else 0.0,
            test_error=None if test is None else _relative_error(result.network, *test),
        )

    def _most_parameters(self, limits: Limits, first: Structure, fitted: int) -> int | None:
        """Where held-out entries decide: no more parameters than entries that could determine them."""
        if self.held_out is None:
            return limits.max_parameters
        most = max(fitted, first.num_parameters)
        return most if limits.max_parameters is None else min(limits.max_parameters, most)

    def identity(self, search: CompletionSearch) -> dict[str, Any]:
        """What a resumed run must share with the one that wrote the checkpoint."""
        problem = search.problem
        codes = torch.arange(1, len(self.values) + 1, device=self.values.device)
        for column in self.indices.T:  # whole numbers that wrap around: the same whatever the order of sums
            codes = (codes + column) * 6364136223846793005
            codes = codes ^ (codes >> 29)
        held_out = 0 if self.held_out is None else int(codes[self.held_out].sum())
        return identity(
            self.values,
            self.shape,
            problem.objective.norm,
            search.limits,
            problem.options,
            problem.policy,
            problem,
            observations=[len(self.values), int(codes.sum())],
            loss=repr(self.loss),
            held_out=held_out,
        )


# -- the end of a run ----------------------------------------------------------------------------------


def _test_entries(truth: Any, task: _Task) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Positions and true values of entries that were not observed."""
    if truth is None:
        return None
    known = truth if isinstance(truth, Observations) else Observations.from_dense(truth)
    if known.shape != task.shape:
        raise DataError(f"truth has shape {known.shape}, the tensor {task.shape}")
    mine = Observations(task.indices, task.values.real, task.shape)
    unseen = ~positions_in(known, mine)
    if not bool(unseen.any()):
        raise DataError("truth lists no entry that is not observed: there is nothing to test on")
    return known.indices[unseen], known.values[unseen]


def _finish(
    search: CompletionSearch,
    task: _Task,
    test: tuple[torch.Tensor, torch.Tensor] | None,
    effort: str,
) -> Result:
    """Fit the chosen network to all observations, and report."""
    answer, stop = search.answer, search.state.stop
    assert answer is not None and stop is not None
    last = refit_to_all(search, task.objective(search.ridge, everything=True), task.loss_scale)
    fitted = task.objective(search.ridge)
    losses = fitted.losses(answer.network.structure, fitted.to_arrays(answer.network))
    final = bring_home(last.network, task.scale, task.home)
    return Result(
        final,
        last.error,
        last.history,
        StopReason.INTERRUPTED if last.interrupted else stop,
        path_of(search, task.scale, task.home),
        describe(
            task.values,
            effort=effort,
            options=search.problem.options.to_dict(),
            seconds=last.seconds,
            seed=task.seed,
            ridge=search.ridge,
            num_observations=len(task.values),
            num_held_out=0 if task.held_out is None else int(task.held_out.sum()),
            **(task.mean_losses(answer.network, final, test) if task.by_weights else {}),
        ),
        train_error=losses[0] / (fitted.norm or 1.0),
        validation_error=None if losses[1] is None else losses[1] / search.problem.scale,
        test_error=None if test is None else task.test_error(final, *test),
    )


def _relative_error(network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
    wide = torch.complex128 if values.is_complex() or network.is_complex else torch.float64
    found = network.entries(indices.to(network.device)).to(wide)
    true = values.to(found.device, wide)
    scale = power_of_two_scale(true)  # squares of extreme values overflow or vanish
    found, true = found / scale, true / scale
    norm = float(torch.linalg.vector_norm(true))
    return float(torch.linalg.vector_norm(found - true)) / (norm or 1.0)
