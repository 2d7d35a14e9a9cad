"""The fit of a structure that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.arrays import as_tensor, norm_of
from ..data.axes import is_xarray, one_variable
from ..data.blocks import is_lazy
from ..data.holdout import AUTO
from ..data.observations import is_listed
from ..data.partitions.tables import is_partitioned
from ..errors import OptionError, StructureError, check_whole
from ..losses import EntryLoss, Squared, as_loss
from ..network import RandomState, TensorNetwork
from ..priors import Priors
from ..results import PathPoint, Result
from ..search import Context, FitProblem, FitSearch, GreedyOptions, HeldOutSearch
from ..solvers import SweepGraphs
from ..structure import Structure
from .complete import as_observation_task
from .decompose import TensorTask, as_tensor_data
from .held_out import FIT_SWEEPS, FIT_TOLERANCE
from .observation_task import Observed
from .request import Bounds, Keywords, Request, pick
from .task import run_task
from .tensor_data import TensorData

# Of a fit of known data, sweeps at most and convergence: it is the end of the work, not a step of a search.
SWEEPS, TOLERANCE = 500, 1e-7


def fit(
    x: Any,
    structure: Structure,
    mask: Any = None,
    *,
    loss: str | EntryLoss = "squared",
    weights: Any = None,
    validation: Any = AUTO,
    truth: Any = None,
    priors: Priors | None = None,
    ridge: float | None = None,
    max_error: float | None = None,
    max_sweeps: int | None = None,
    tolerance: float | None = None,
    max_seconds: float | None = None,
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    names: Sequence[str] | None = None,
    bounds: Bounds | None = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
) -> Result:
    """Fit a structure you already have by alternating least squares.

    Parameters
    ----------
    x
        The tensor; its shape must be ``structure.dims``. Arrays that are not in memory are read block by
        block where they do not fit, as by `decompose`. Or some of its entries: `Observations`, a sparse
        array, a dense tensor with a `mask` or with NaN for what is missing, or partitions as for `complete`.
        Or a network, as for `decompose`.
    structure
        Graph and ranks. ``Structure.tensor_train(shape, rank)`` with a mask is TT-ALS completion, and
        ``Structure.tensor_ring`` TR-ALS.
    mask, weights, validation, truth
        Where entries are missing: as for `complete`. Held-out entries choose the ridge.
    priors
        What is known of the axes, as for `complete`.
    loss
        As for `complete`. Other losses than "squared", and priors, treat all of `x` as observed where nothing
        is missing: a tenth of it is held out to choose the ridge and the strength of priors, and all of it is
        fitted at the end.
    ridge
        Where entries are missing: the ridge, relative to the mean diagonal of the Gram matrices; nothing is
        held out then.
    max_error
        Stop as soon as this relative error is reached.
    max_sweeps, tolerance
        Sweeps at most, and the relative decrease per sweep below which the fit has converged: by default 500
        and 1e-7, where entries are missing 100 and 1e-4.
    init
        A network with this structure to start from; by default random.
    random_state, device, dtype, names, bounds, memory_limit, progress, callbacks, checkpoint
        As for `decompose`. The whole fit is one step.

    Returns
    -------
    Result
        One step in its history; `stop` says whether the target was reached or the fit converged. Ctrl-C
        returns what the last sweep gave, where all of `x` is known.
    """
    if not isinstance(structure, Structure):
        raise StructureError(f"structure must be a tensorgrow.Structure, not {type(structure).__name__}")
    if max_sweeps is not None:
        check_whole("max_sweeps", max_sweeps, least=1)
    if tolerance is not None and not tolerance >= 0:
        raise OptionError(f"tolerance={tolerance!r} must not be negative")
    keywords: Keywords = {**pick(locals()), "max_steps": 0}
    request = Request.parse("fit", HeldOutSearch, GreedyOptions.for_completion, limited=False, **keywords)
    x, entry_loss = one_variable(x), as_loss(loss)
    norm = norm_of_whole(x) if mask is None else None
    has_missing = norm is None and (mask is not None or is_listed(x) or is_partitioned(x) or has_gaps(x))
    by_entries = has_missing or priors is not None or not isinstance(entry_loss, Squared)
    most, least = (FIT_SWEEPS, FIT_TOLERANCE) if by_entries else (SWEEPS, TOLERANCE)
    sweeps = most if max_sweeps is None else int(max_sweeps)
    drop = least if tolerance is None else tolerance
    if by_entries:
        options = request.options.replace(
            ridge=ridge, sweeps=sweeps, tolerance=drop, final_sweeps=sweeps, final_tolerance=drop
        )
        observed = Observed(x, mask, entry_loss, weights, validation if ridge is None else False, truth)
        request = replace(request, options=options, effort="fit")
        return run_task(as_observation_task(observed, request, structure), request.audience)
    if weights is not None or ridge is not None or truth is not None:
        raise OptionError("weights, ridge and truth go with a mask or listed entries; all of x is known here")
    return run_task(FitTask(as_tensor_data(x, request, norm), structure, sweeps, drop), request.audience)


def norm_of_whole(x: Any) -> float | None:
    """The norm of an array of doubles in memory, which tells that it has no gaps; None of all others."""
    if type(x) is not np.ndarray or x.dtype != np.float64 or not x.flags.c_contiguous:
        return None
    norm = norm_of(as_tensor(x))
    return norm if math.isfinite(norm) else None


def has_gaps(x: Any) -> bool:
    """Whether an array in memory has entries that are masked or NaN."""
    if np.ma.is_masked(x):
        return True
    if is_xarray(x) and not is_lazy(x):
        x = x.to_numpy()
    if isinstance(x, torch.Tensor):
        return not x.is_meta and bool(torch.isnan(x).any())
    if is_lazy(x) or not isinstance(x, np.ndarray) or x.dtype.kind not in "fc" or not x.size:
        return False
    return bool(np.isnan(x.min()))  # NaN is the least of all numbers; no array of flags is made


class FitTask(TensorTask[FitSearch]):
    """The fit of one structure to a tensor that is known."""

    structure: Structure

    def __init__(self, data: TensorData, structure: Structure, sweeps: int, tolerance: float) -> None:
        super().__init__(data)
        self.structure, self.sweeps, self.tolerance = structure, sweeps, tolerance

    def search(self) -> FitSearch:
        objectives = self.data.approximations(self.structure)
        on_gpu = self.probe.device.type == "cuda"  # elsewhere nothing is recorded
        graphs = SweepGraphs(self.data.memory_limit) if on_gpu else SweepGraphs()
        context = Context(self.generator, graphs=graphs)
        problem = FitProblem(self.structure, objectives, context, self.sweeps, self.tolerance)
        return FitSearch(problem, self.request.limits, self.start())

    def identity(self, search: FitSearch) -> Mapping[str, object]:
        return {**super().identity(search), "tolerance": self.tolerance}

    def finish(self, search: FitSearch) -> Result:
        result = super().finish(search)
        path = (PathPoint(result.network, result.relative_error),)
        return replace(result, path=path, info={**result.info, "sweeps": search.state.sweeps})
