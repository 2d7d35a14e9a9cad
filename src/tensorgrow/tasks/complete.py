"""Completion: a network for a tensor of which only some entries are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ..callbacks.base import Callbacks
from ..data.axes import one_variable
from ..data.blocks import Blocks
from ..data.holdout import AUTO
from ..data.partitions.tables import as_partitions
from ..data.tensorization import Shape, Tensorization
from ..errors import DataError
from ..losses import EntryLoss, as_loss
from ..network import RandomState, TensorNetwork
from ..priors import Priors
from ..results import Result
from ..search import Effort, GreedyOptions, HeldOutSearch
from ..structure import Edge, Structure
from .committee import Workers, run_committee
from .entry_task import EntryTask
from .observation_task import ObservationTask, Observed
from .partition_task import PartitionTask
from .request import Bounds, Request, pick
from .shapes import as_members, is_distilled, to_distil
from .task import run_task


def complete(
    x: Any,
    mask: Any = None,
    *,
    loss: str | EntryLoss = "squared",
    weights: Any = AUTO,
    validation: Any = AUTO,
    truth: Any = None,
    priors: Priors | None = None,
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
    names: Sequence[str] | None = None,
    bounds: Bounds | None = None,
    tensorize: Shape | Tensorization | None = None,
    members: int | None = None,
    workers: Workers = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
) -> Result:
    """Find a tensor network for a tensor of which only some entries are known.

    Structure, ranks and ridge are chosen by the error on held-out entries; the growth ends when that no
    longer falls. The best network is then fitted once more to all entries.

    Parameters
    ----------
    x
        A dense tensor with a `mask` or with NaN for what is missing; `Observations`; a SciPy or torch sparse
        array (stored entries are observed); a pandas frame of index columns and a value column last
        (`Observations.from_frame` says which columns are labels; rows without a value are not observed); or
        such a frame in partitions: a dask dataframe, a folder, file or pattern of parquet files, or
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
        entry, or the name of a column where entries come in partitions. "auto": all are equal, unless they
        are counts whose errors grow with their level, as held-out entries tell; then large values weigh less
        (``level**-power``, the power in ``result.info["noise_power"]``), as far as the squared error of
        held-out entries does not rise measurably. None: all are equal.
    validation
        Entries to hold out: "auto", a tenth in groups such as those that are missing (single entries, whole
        fibres or slices, blocks, tails; ``result.info["gaps"]`` says which; always at random where entries
        come in partitions); a share, at random; a boolean mask (of the shape of a dense `x`, or one per
        listed entry; the name of a boolean column where they come in partitions); or False to hold out none:
        then another limit must say when to stop.
    truth
        The full tensor (NaN where unknown), `Observations` of it, or a table where `x` is one: the result
        reports the relative error on entries that are not observed. It is not used otherwise.
    priors
        What is known of the axes, by their numbers or names: ``{"day": tensorgrow.priors.smooth(), "sensor":
        tensorgrow.priors.graph(adjacency)}``, several for one axis in a list; or "nonnegative" for all of
        them, so that no entry is negative. Places of an axis without any entry are filled by what its prior
        says. Strengths that are left open are chosen on the held-out entries, as the ridge is. None: axes
        along which known neighbours are alike are smooth (``result.info["priors"]``); where single entries
        are missing, only those along which they are nearly the same. ``{}`` for no prior.
    max_error
        Stop at this relative error on the held-out entries.
    max_parameters, max_steps, max_seconds
        Limits of the size, the number of growths and the time.
    tensorize
        Cut long axes into digits first, as for `decompose`. "auto" tries the array as it is and a few ways to
        cut it, for a few steps each, and continues where the held-out error is least.
    members
        Complete in so many shapes, and average: digits of other sizes with borders in other places, or, where
        nothing is cut, other entries held out. Better than the best of them, at so many times the time and
        size; each has the other limits for itself. Where axes are cut, one more that interpolates is added if
        held-out entries say that it helps. By default 1; where "auto" cuts axes, 1, 4 or 7 for
        the effort "fast", "balanced" or "thorough", unless `max_parameters` or another loss is given.
    workers
        Who runs the members: by default this process, one after the other. A number: so many processes (in
        a script below ``if __name__ == "__main__":``); "auto": one for each core where that pays. Or an
        executor with `submit`, or a dask client.
    names
        Names of the axes; by default the index columns of a table, or as for `decompose`.
    bounds
        As for `decompose`. By default predictions are not below the smallest known value where none is
        negative; ``(-math.inf, math.inf)`` lets them be.
    edges, split_nodes, effort, init, random_state, device, dtype, memory_limit
        As for `decompose`. "thorough" within `max_parameters`: three runs, and one network for their mean,
        which is mostly better than any of them. ``edges="chain"`` and ``"ring"`` learn the ranks of TT and TR
        completion. With ``random_state=None`` the same entries are held out each time.
    progress, callbacks, checkpoint, options
        As for `decompose`. The ridge is ``options.ridge``.

    Returns
    -------
    Result
        `relative_error` is on all observed entries; `train_error`, `validation_error` and `test_error` say
        how well the network does on entries it was and was not fitted to. ``result.fill(x, mask)`` is the
        completed tensor, ``result.predict(indices)`` any entries, by their labels where a table was given.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.einsum("i,j,k->ijk", np.arange(1.0, 7.0), np.linspace(1, 2, 8), np.ones(9))
    >>> mask = np.random.default_rng(0).random(x.shape) < 0.5
    >>> r = complete(x, mask, random_state=0)
    >>> bool(np.abs(r.fill(x, mask) - x).max() < 1e-6)
    True
    """
    request = Request.parse(
        "complete", HeldOutSearch, GreedyOptions.for_completion, limited=False, **pick(locals())
    )
    observed = Observed(one_variable(x), mask, as_loss(loss), weights, validation, truth)
    task = as_observation_task(observed, request)
    distils = members is None and isinstance(task, EntryTask) and is_distilled(task)
    if tensorize is None and members in (None, 1) and not distils:
        return run_task(task, request.audience)
    if not isinstance(task, EntryTask):
        raise DataError("tables in partitions cannot be tensorised, nor completed by a committee")
    if distils:
        return run_committee(to_distil(task), request, workers, distils=True)
    tasks = as_members(task, members)
    if len(tasks) == 1:
        return run_task(tasks[0], request.audience)
    return run_committee(tasks, request, workers)


def as_observation_task(
    observed: Observed, request: Request, structure: Structure | None = None
) -> ObservationTask:
    """Take entries in memory or in partitions, for one structure or for all that the request allows."""
    if isinstance(observed.x, Blocks):
        raise DataError(
            "Blocks hold tensors of which every entry is known; entries that are missing need another form: "
            "Observations, a dense tensor with a mask or with NaN, or PartitionedObservations"
        )
    parts = as_partitions(observed.x)
    if parts is None:
        return EntryTask(observed, request, structure)
    return PartitionTask(parts, observed, request, structure)
