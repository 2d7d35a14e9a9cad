"""The functions users call."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import nullcontext
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import torch

from .blocks import as_source, is_lazy
from .completion import HELD_OUT, fit_observed
from .data import as_dtype, check_memory, free_memory
from .decomposing import Request, Target
from .density import DensityResult
from .density_model import DENSITY_KIND, DensityModel
from .distributed import decompose_blocks, fits_in_memory, is_partitioned
from .errors import DataError, OptionError, StructureError
from .io import read_file
from .linalg import one_thread
from .network import NETWORK_KIND, RandomState, TensorNetwork, as_generator
from .objectives import DenseLeastSquares
from .observations import is_listed
from .results import RESULT_KIND, PathPoint, Result, Step, StopReason
from .running import (
    all_zero,
    bring_home,
    check_init,
    describe,
    exact_error,
    positive_limit,
    prepare,
    scaled,
    seed_of,
)
from .search import CutBounds, Effort, GreedyOptions, Limits
from .solvers import ALSSettings, als
from .structure import Edge, Structure

__all__ = ["decompose", "fit", "load"]

FIT_SWEEPS = 500
FIT_TOLERANCE = 1e-7


def decompose(
    x: Any,
    *,
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
    """Find a small tensor network for a dense tensor.

    Parameters
    ----------
    x
        The tensor: NumPy, torch or anything with ``__array__``, real or complex. It is not modified. Arrays
        that are not in memory (zarr, dask, h5py, lazy xarray, `numpy.memmap`) are read block by block where
        they do not fit; see `tensorgrow.distributed`.
    max_error
        Smallest network with ``||x - x_hat|| <= max_error * ||x||``.
    max_parameters
        Best network with at most so many parameters.
    max_steps, max_seconds
        Stop after so many steps, or so long.
    edges
        Pairs of modes that may be joined: "all", "chain", "ring", or a list of pairs.
    split_nodes
        Whether internal nodes may be added; by default when `edges` is "all".
    effort
        "fast": one growth. "balanced": lookahead, pruning, splits, more starts while the target looks exactly
        representable. "thorough": keeps improving until `max_seconds` (a minute by default).
    init
        A network to start from instead of rank one.
    random_state
        Seed or generator; one seed reproduces a run on the same machine.
    device
        Where to compute: None (where the data is), "auto", "cpu", "cuda". The result stays there, except that
        "auto" brings it back to the data.
    dtype
        Precision to compute in; by default that of the data (whole numbers become float64).
    memory_limit
        Bytes that may be taken beyond the data; by default what is free.
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    callbacks
        Functions of a `Step`, or objects with ``on_start``, ``on_step``, ``on_end``; a true answer stops.
    checkpoint
        A file the state is kept in. When it exists the run resumes from it.
    options
        Everything rarer; overrides what `effort` stands for.

    Returns
    -------
    Result
        Network, error, history and the reason the run stopped. Ctrl-C returns the best so far.

    Examples
    --------
    >>> import numpy as np
    >>> u, v, w = np.eye(3)[0], np.arange(4.0), np.ones(5)
    >>> x = np.einsum("i,j,k->ijk", u, v, w)
    >>> decompose(x, max_error=1e-8, random_state=0).num_parameters
    12
    """
    request = Request.parse(
        max_error=max_error,
        max_parameters=max_parameters,
        max_steps=max_steps,
        max_seconds=max_seconds,
        effort=effort,
        options=options,
        edges=edges,
        split_nodes=split_nodes,
        init=init,
        random_state=random_state,
        progress=progress,
        callbacks=callbacks,
        checkpoint=checkpoint,
    )
    limit = None if memory_limit is None else positive_limit(memory_limit)
    if is_lazy(x):
        if not fits_in_memory(x, as_dtype(dtype), limit):
            return decompose_blocks(x, request, device=device, dtype=as_dtype(dtype), memory_limit=limit)
        x = as_source(x).load()
    target, home, scale = prepare(x, as_dtype(dtype), device)
    shape = tuple(target.shape)
    request.policy(len(shape))  # refuses edges that do not exist
    check_init(init, shape, target)
    first = Structure.rank_one(shape) if init is None else init.structure
    request.limits.check_size(first.num_parameters)
    if not bool(target.any()):
        return all_zero(first, target, home)

    limit = free_memory(target.device) if limit is None else limit
    objective = DenseLeastSquares(target)
    check_memory(objective.memory_needed(first), limit, f"decomposing a tensor of shape {shape}")
    bounds = CutBounds(target, max_error) if request.wants_bounds and max_error else None
    about = Target(target, home, scale, lambda network: exact_error(target, network))
    return request.solve(objective, about, limit, bounds)


def fit(
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
    """Fit a structure you already have by alternating least squares.

    Parameters
    ----------
    x
        The tensor; its shape must be ``structure.dims``. Or some of its entries: `Observations`, a sparse
        array, or a dense tensor with a `mask`.
    structure
        Graph and ranks. ``Structure.tensor_train(shape, rank)`` with a mask is TT-ALS completion, and
        ``Structure.tensor_ring`` TR-ALS.
    mask, weights, validation, truth
        Where entries are missing: as for `complete`. Held-out entries choose the ridge.
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

    Returns
    -------
    Result
        One step in its history; `stop` says whether the target was reached or the fit converged. Ctrl-C
        returns what the last sweep gave, where all of `x` is known.
    """
    if not isinstance(structure, Structure):
        raise StructureError(f"structure must be a tensorgrow.Structure, not {type(structure).__name__}")
    if (max_sweeps is not None and (not isinstance(max_sweeps, Integral) or max_sweeps < 1)) or (
        tolerance is not None and not tolerance >= 0
    ):
        raise OptionError(f"max_sweeps={max_sweeps} and tolerance={tolerance} must be at least 1 and 0")
    if mask is not None or is_listed(x) or is_partitioned(x):
        return fit_observed(
            x,
            structure,
            mask,
            weights=weights,
            validation=validation,
            truth=truth,
            ridge=ridge,
            max_error=max_error,
            max_sweeps=max_sweeps,
            tolerance=tolerance,
            max_seconds=max_seconds,
            init=init,
            random_state=random_state,
            device=device,
            dtype=dtype,
            memory_limit=memory_limit,
        )
    if weights is not None or ridge is not None or truth is not None:
        raise OptionError("weights, ridge and truth go with a mask or listed entries; all of x is known here")
    max_sweeps = FIT_SWEEPS if max_sweeps is None else max_sweeps
    tolerance = FIT_TOLERANCE if tolerance is None else tolerance
    limits = Limits(max_error=max_error, max_seconds=max_seconds, max_steps=1)
    target, home, scale = prepare(x, as_dtype(dtype), device)
    if tuple(target.shape) != structure.dims:
        raise DataError(f"the tensor has shape {tuple(target.shape)}, the structure is for {structure.dims}")
    check_init(init, structure.dims, target)
    if init is not None and init.structure != structure:
        raise OptionError(f"init has the structure {init.structure}, not the one to fit: {structure}")
    if not bool(target.any()):
        return all_zero(structure, target, home)
    limit = free_memory(target.device) if memory_limit is None else positive_limit(memory_limit)
    objective = DenseLeastSquares(target)
    check_memory(
        objective.memory_needed(structure), limit, f"fitting {structure.num_parameters:,} parameters"
    )
    generator = as_generator(random_state)
    network = scaled(init, 1.0 / scale) or TensorNetwork.random(
        structure, random_state=generator, dtype=target.dtype
    )
    begin = time.perf_counter()
    settings = ALSSettings(max_sweeps=max_sweeps, tolerance=tolerance)
    goal = None if max_error is None else max_error * objective.norm
    deadline = math.inf if max_seconds is None else begin + max_seconds
    with one_thread() if objective.use_numpy else nullcontext():
        fitted = als(
            objective,
            network.to(target.device, target.dtype),
            settings,
            target=goal,
            deadline=deadline,
            keep_on_interrupt=True,
        )
    seconds = time.perf_counter() - begin
    stop = StopReason.CONVERGED
    if fitted.interrupted:
        stop = StopReason.INTERRUPTED
    elif goal is not None and fitted.loss <= goal:
        stop = StopReason.TARGET_REACHED
    elif fitted.num_sweeps == max_sweeps:
        stop = StopReason.MAX_STEPS
    elif seconds >= (limits.max_seconds or math.inf):
        stop = StopReason.MAX_SECONDS
    error = exact_error(target, fitted.network)
    step = Step(
        index=0,
        kind="fit",
        edge=None,
        num_parameters=structure.num_parameters,
        loss=fitted.loss * scale,
        relative_error=fitted.loss / objective.norm,
        validation_error=None,
        seconds=seconds,
        structure=structure,
    )
    final = bring_home(fitted.network, scale, home)
    details = describe(
        target, sweeps=fitted.num_sweeps, seconds=seconds, seed=seed_of(random_state, generator)
    )
    return Result(final, error, (step,), stop, (PathPoint(final, error),), details)


def load(path: str | Path) -> TensorNetwork | Result | DensityModel:
    """Read a file written by `TensorNetwork.save`, `Result.save` or `DensityModel.save`."""
    header, tensors = read_file(path, (NETWORK_KIND, RESULT_KIND, DENSITY_KIND))
    if header["kind"] == DENSITY_KIND:
        return DensityModel.unpack(header, tensors)
    if header["kind"] == NETWORK_KIND:
        return TensorNetwork.unpack(header["network"], tensors, "core")
    kind = DensityResult if "density" in header["info"] else Result
    return kind.unpack(header, tensors)


# -- the door ------------------------------------------------------------------------------------------
