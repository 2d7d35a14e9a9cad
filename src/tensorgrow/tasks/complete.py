"""Completion: a network for a tensor of which only some entries are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from ..callbacks.base import Checkpoint, as_callbacks, progress_callback
from ..data.holdout import Split
from ..data.partitions.tables import as_partitions
from ..errors import DataError, OptionError
from ..losses import EntryLoss, as_loss
from ..network import RandomState, TensorNetwork
from ..results import Result, StopReason
from ..search import EdgePolicy, Effort, GreedyOptions, Limits
from ..structure import Edge, Structure
from .complete_partitions import PartitionedTask
from .completion_task import CompletionTask
from .entry_task import ListedTask
from .task import check_init, run

__all__ = ["HELD_OUT", "complete", "fit_observed"]

# Share of the entries held out by default.
HELD_OUT = 0.1
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
        array (stored entries are observed); a pandas frame of index columns and a value column last; or such
        a frame in partitions: a dask dataframe, a folder, file or pattern of parquet files, or
        `tensorgrow.distributed.PartitionedObservations`.
    mask
        True where a dense `x` is observed.
    loss
        "squared"; "absolute" or "huber" for outliers; "poisson" for counts (entries of the network are
        logarithms of rates); "logistic" for zeros and ones (log-odds); or an `EntryLoss` from
        `tensorgrow.losses`. Errors are then roots of deviances relative to that of a zero network, mean
        losses are in ``result.info``, and `predict` and `fill` give expected values.
    weights
        Weight of every entry's squared residual, or of its loss: of the shape of a dense `x`, one per listed
        entry, or the name of a column where entries come in partitions.
    validation
        Entries to hold out: a share, a boolean mask (of the shape of a dense `x`, or one per listed entry;
        the name of a boolean column where they come in partitions), or False to hold out none; then another
        limit must say when to stop.
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
    task = _prepared(x, mask, weights, validation, dtype, device, random_state, memory_limit, as_loss(loss))
    given = (max_error, max_parameters, max_steps, max_seconds)
    if not task.num_held_out and Split.parse(validation).holds_out and all(v is None for v in given):
        max_steps = 0  # too few observations to hold any out, as a warning says
    limits = Limits(max_error, max_parameters, max_steps, max_seconds, held_out=task.num_held_out > 0)
    policy = EdgePolicy.parse(edges, len(task.shape), chosen.max_degree)
    check_init(init, task.shape, task.probe)
    first = Structure.rank_one(task.shape) if init is None else init.structure
    limits.check_size(first.num_parameters)
    test = task.test_entries(truth)
    if task.is_zero and not task.by_weights:
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
        return task.finish(search, test, effort if options is None else "custom")


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
    task = _prepared(
        x, mask, weights, held_out, dtype, device, random_state, memory_limit, as_loss("squared")
    )
    if task.shape != structure.dims:
        raise DataError(f"the tensor has shape {task.shape}, the structure is for {structure.dims}")
    check_init(init, task.shape, task.probe)
    if init is not None and init.structure != structure:
        raise OptionError(f"init has the structure {init.structure}, not the one to fit: {structure}")
    test = task.test_entries(truth)
    if task.is_zero:
        return task.zero(structure, test)
    start = init or TensorNetwork.random(structure, random_state=task.generator, dtype=task.probe.dtype)
    limits = Limits(max_error=max_error, max_seconds=max_seconds, max_steps=0)
    search = task.search(options, limits, EdgePolicy(None), False, start, memory_limit)
    search.problem.patient = False
    with task.threads():
        run(search, [])
        result = task.finish(search, test, "fit")
    reached = max_error is not None and (result.validation_error or result.relative_error) <= max_error
    stop = StopReason.TARGET_REACHED if reached else StopReason.CONVERGED
    return replace(result, stop=stop if result.stop == StopReason.MAX_STEPS else result.stop)


def _prepared(
    x: Any,
    mask: Any,
    weights: Any,
    validation: Any,
    dtype: Any,
    device: torch.device | str | None,
    random_state: RandomState,
    memory_limit: float | None,
    loss: EntryLoss,
) -> CompletionTask:
    """Observations, checked and converted, in memory or in partitions."""
    parts = as_partitions(x)
    if parts is None:
        return ListedTask.prepare(x, mask, weights, validation, dtype, device, random_state, loss)
    if mask is not None:
        raise OptionError("a mask goes with a dense tensor; entries listed in partitions are all observed")
    return PartitionedTask.prepare(
        parts, weights, validation, dtype, device, random_state, memory_limit, loss
    )
