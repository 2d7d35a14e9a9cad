"""The functions users call."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import torch

from ..data.arrays import as_dtype
from ..data.blocks import as_source, is_lazy
from ..data.devices import check_memory, free_memory, parse_memory_limit
from ..data.observations import is_listed
from ..data.partitions.tables import is_partitioned
from ..errors import OptionError, StructureError
from ..files import read_file
from ..network import NETWORK_KIND, RandomState, TensorNetwork
from ..objectives import DenseLeastSquares
from ..results import RESULT_KIND, Result
from ..search import CutBounds, Effort, GreedyOptions, Limits
from ..structure import Edge, Structure
from .complete import HELD_OUT, fit_observed
from .decompose_blocks import decompose_blocks, fit_blocks, fits_in_memory
from .density import DensityResult
from .density_model import DENSITY_KIND, DensityModel
from .fit import FitRequest
from .request import Request, Target
from .task import all_zero, check_init, exact_error, prepare

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
    limit = parse_memory_limit(memory_limit)
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
        The tensor; its shape must be ``structure.dims``. Arrays that are not in memory are read block by
        block where they do not fit, as by `decompose`. Or some of its entries: `Observations`, a sparse
        array, a dense tensor with a `mask`, or partitions as for `complete`.
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
    Limits(max_error=max_error, max_seconds=max_seconds, max_steps=1)  # refuses what is out of range
    request = FitRequest(
        structure,
        max_error,
        FIT_SWEEPS if max_sweeps is None else int(max_sweeps),
        FIT_TOLERANCE if tolerance is None else tolerance,
        max_seconds,
        init,
        random_state,
    )
    limit = parse_memory_limit(memory_limit)
    if is_lazy(x):
        if not fits_in_memory(x, as_dtype(dtype), limit):
            return fit_blocks(x, request, device=device, dtype=as_dtype(dtype), memory_limit=limit)
        x = as_source(x).load()
    target, home, scale = prepare(x, as_dtype(dtype), device)
    request.check(tuple(target.shape))
    check_init(init, structure.dims, target)
    if not bool(target.any()):
        return all_zero(structure, target, home)
    limit = free_memory(target.device) if limit is None else limit
    objective = DenseLeastSquares(target)
    check_memory(
        objective.memory_needed(structure), limit, f"fitting {structure.num_parameters:,} parameters"
    )
    about = Target(target, home, scale, lambda network: exact_error(target, network))
    return request.solve([objective], about)


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
