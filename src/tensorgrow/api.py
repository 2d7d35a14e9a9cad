"""The functions users call."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable
from contextlib import nullcontext
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ._version import __version__
from .callbacks import Callback, Checkpoint, as_callbacks, progress_callback
from .data import as_dtype, as_target, check_memory, choose_device, free_memory, power_of_two_scale
from .errors import DataError, OptionError, StructureError
from .io import read_file
from .linalg import one_thread
from .network import NETWORK_KIND, RandomState, TensorNetwork, as_generator
from .objectives import DenseLeastSquares
from .results import RESULT_KIND, PathPoint, Result, Step, StopReason
from .search import (
    CutBounds,
    EdgePolicy,
    Effort,
    GreedyOptions,
    GreedySearch,
    Limits,
    Problem,
)
from .solvers import ALSSettings, als
from .structure import Edge, Structure

__all__ = ["decompose", "fit", "load"]

# Up to this many entries the reported error is computed in double precision throughout.
DOUBLE_ENTRIES = 1 << 27
# Seconds that `effort="thorough"` takes when no limit is given.
THOROUGH_SECONDS = 60.0
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
        The tensor: NumPy, torch or anything with ``__array__``, real or complex. It is not modified.
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
    if options is not None and not isinstance(options, GreedyOptions):
        raise OptionError(f"options must be GreedyOptions, not {type(options).__name__}")
    limits = _limits(max_error, max_parameters, max_steps, max_seconds, effort, options)
    by_effort = GreedyOptions.for_effort(effort)
    chosen = by_effort if options is None else options
    wanted = as_dtype(dtype)
    target, home, scale = _prepare(x, wanted, device)
    shape = tuple(target.shape)
    policy = EdgePolicy.parse(edges, len(shape), chosen.max_degree)
    _check_init(init, shape, target)
    first = Structure.rank_one(shape) if init is None else init.structure
    limits.check_size(first.num_parameters)
    if not bool(target.any()):
        return _all_zero(first, target, home)

    limit = free_memory(target.device) if memory_limit is None else _positive_limit(memory_limit)
    objective = DenseLeastSquares(target)
    check_memory(objective.memory_needed(first), limit, f"decomposing a tensor of shape {shape}")
    bound = max_error is not None and chosen.certify
    problem = Problem(
        objective,
        chosen,
        policy,
        as_generator(random_state),
        target=0.0 if max_error is None else max_error * objective.norm,
        max_parameters=max_parameters,
        memory_limit=limit,
        split_nodes=policy.pairs is None if split_nodes is None else split_nodes,
        bounds=CutBounds(target, max_error) if bound and max_error else None,
    )
    search = GreedySearch(
        problem, limits, init=_scaled(init, 1.0 / scale), dtype=target.dtype, device=target.device
    )
    listeners = [*as_callbacks(callbacks), *progress_callback(progress)]
    if checkpoint is not None:
        keeper = Checkpoint(checkpoint, _identity(target, objective.norm, limits, chosen, policy, problem))
        keeper.load(search)
        listeners.insert(0, keeper)
    with one_thread() if objective.use_numpy else nullcontext():
        _run(search, listeners)
    return _result(search, target, scale, home, chosen, effort if options is None else "custom")


def fit(
    x: Any,
    structure: Structure,
    *,
    max_error: float | None = None,
    max_sweeps: int = FIT_SWEEPS,
    tolerance: float = FIT_TOLERANCE,
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
        The tensor; its shape must be ``structure.dims``.
    structure
        Graph and ranks.
    max_error
        Stop as soon as this relative error is reached.
    max_sweeps, tolerance
        Sweeps at most, and the relative decrease per sweep below which the fit has converged.
    init
        A network with this structure to start from; by default random.

    Returns
    -------
    Result
        One step in its history; `stop` says whether the target was reached or the fit converged.
    """
    if not isinstance(structure, Structure):
        raise StructureError(f"structure must be a tensorgrow.Structure, not {type(structure).__name__}")
    if not isinstance(max_sweeps, Integral) or max_sweeps < 1 or not tolerance >= 0:
        raise OptionError(f"max_sweeps={max_sweeps} and tolerance={tolerance} must be at least 1 and 0")
    limits = Limits(max_error=max_error, max_seconds=max_seconds, max_steps=1)
    target, home, scale = _prepare(x, as_dtype(dtype), device)
    if tuple(target.shape) != structure.dims:
        raise DataError(f"the tensor has shape {tuple(target.shape)}, the structure is for {structure.dims}")
    _check_init(init, structure.dims, target)
    if init is not None and init.structure != structure:
        raise OptionError(f"init has the structure {init.structure}, not the one to fit: {structure}")
    if not bool(target.any()):
        return _all_zero(structure, target, home)
    limit = free_memory(target.device) if memory_limit is None else _positive_limit(memory_limit)
    objective = DenseLeastSquares(target)
    check_memory(
        objective.memory_needed(structure), limit, f"fitting {structure.num_parameters:,} parameters"
    )
    network = _scaled(init, 1.0 / scale) or TensorNetwork.random(
        structure, random_state=as_generator(random_state), dtype=target.dtype
    )
    begin = time.perf_counter()
    settings = ALSSettings(max_sweeps=max_sweeps, tolerance=tolerance)
    goal = None if max_error is None else max_error * objective.norm
    deadline = math.inf if max_seconds is None else begin + max_seconds
    with one_thread() if objective.use_numpy else nullcontext():
        fitted = als(
            objective, network.to(target.device, target.dtype), settings, target=goal, deadline=deadline
        )
    seconds = time.perf_counter() - begin
    stop = StopReason.CONVERGED
    if goal is not None and fitted.loss <= goal:
        stop = StopReason.TARGET_REACHED
    elif fitted.num_sweeps == max_sweeps:
        stop = StopReason.MAX_STEPS
    elif seconds >= (limits.max_seconds or math.inf):
        stop = StopReason.MAX_SECONDS
    error = _exact_error(target, fitted.network)
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
    final = _home(fitted.network, scale, home)
    info = _info(target, sweeps=fitted.num_sweeps)
    return Result(final, error, (step,), stop, (PathPoint(final, error),), info)


def load(path: str | Path) -> TensorNetwork | Result:
    """Read a file written by `TensorNetwork.save` or `Result.save`."""
    header, tensors = read_file(path, (NETWORK_KIND, RESULT_KIND))
    if header["kind"] == NETWORK_KIND:
        return TensorNetwork.unpack(header["network"], tensors, "core")
    return Result.unpack(header, tensors)


# -- the door ------------------------------------------------------------------------------------------


def _limits(
    max_error: float | None,
    max_parameters: int | None,
    max_steps: int | None,
    max_seconds: float | None,
    effort: Effort,
    options: GreedyOptions | None,
) -> Limits:
    endless = (options is None and effort == "thorough") or (
        options is not None and options.regrow_cycles is None
    )
    if endless and max_seconds is None:  # steps alone may never run out: cycles without gain make none
        max_seconds = THOROUGH_SECONDS
    return Limits(max_error, max_parameters, max_steps, max_seconds)


def _prepare(
    x: Any, dtype: torch.dtype | None, device: torch.device | str | None
) -> tuple[torch.Tensor, torch.device, float]:
    """Data where it is computed, where the result goes, and the scale that was divided out."""
    data = as_target(x, dtype)
    where = choose_device(device, data)
    home = data.device if device == "auto" else where
    target = data.to(where)
    scale = power_of_two_scale(target)
    return (target if scale == 1.0 else target / scale), home, scale


def _check_init(init: TensorNetwork | None, shape: tuple[int, ...], target: torch.Tensor) -> None:
    if init is None:
        return
    if not isinstance(init, TensorNetwork):
        raise OptionError(f"init must be a TensorNetwork, not {type(init).__name__}")
    if init.structure.dims != shape:
        raise OptionError(f"init is a network over {init.structure.dims}, but the tensor has shape {shape}")
    if init.is_complex and not target.is_complex():
        raise OptionError("init is complex but the data is real; pass a real network or dtype=complex")
    if not all(bool(torch.isfinite(c).all()) for c in init.cores):
        raise OptionError("init has entries that are not finite")


def _positive_limit(memory_limit: float) -> float:
    if not isinstance(memory_limit, Real) or not memory_limit > 0:
        raise OptionError(f"memory_limit={memory_limit!r} must be a positive number of bytes")
    return float(memory_limit)


def _scaled(network: TensorNetwork | None, factor: float) -> TensorNetwork | None:
    """A network whose tensor is multiplied by `factor`, spread over all cores."""
    if network is None or factor == 1.0:
        return network
    share = factor ** (1.0 / len(network.cores))
    return TensorNetwork(network.structure, [c * share for c in network.cores])


def _home(network: TensorNetwork, scale: float, home: torch.device) -> TensorNetwork:
    scaled = _scaled(network, scale)
    assert scaled is not None
    return scaled.to(home)


def _all_zero(structure: Structure, target: torch.Tensor, home: torch.device) -> Result:
    cores = [torch.zeros(s, dtype=target.dtype, device=home) for s in structure.core_shapes]
    network = TensorNetwork(structure, cores)
    step = Step(0, "start", None, network.num_parameters, 0.0, 0.0, None, 0.0, structure)
    path = (PathPoint(network, 0.0),)
    return Result(network, 0.0, (step,), StopReason.TARGET_REACHED, path, _info(target))


def _identity(
    target: torch.Tensor,
    norm: float,
    limits: Limits,
    options: GreedyOptions,
    policy: EdgePolicy,
    problem: Problem,
) -> dict[str, Any]:
    """What a resumed run must share with the one that wrote the checkpoint."""
    flat = target.reshape(-1)
    probe = flat[:: max(1, flat.numel() // 97)][:97]
    parts = torch.view_as_real(probe) if probe.is_complex() else probe
    weights = torch.arange(1, parts.numel() + 1, dtype=torch.float64, device=probe.device)
    fingerprint = float((parts.reshape(-1).double() * weights).sum())
    return {
        "shape": list(target.shape),
        "dtype": str(target.dtype),
        "data": [norm, fingerprint],
        "max_error": limits.max_error,
        "max_parameters": limits.max_parameters,
        "edges": None if policy.pairs is None else sorted([list(e) for e in policy.pairs]),
        "split_nodes": problem.split_nodes,
        "options": options.to_dict(),
    }


# -- running and reporting -----------------------------------------------------------------------------


def _run(search: GreedySearch, listeners: list[Callback]) -> None:
    """Drive a search; callbacks may stop it, Ctrl-C keeps what there is."""
    for listener in listeners:
        listener.on_start(search)
    try:
        for step in search:
            answers = [listener.on_step(search, step) for listener in listeners]  # all of them are told
            if any(answers):
                search.state.stop = StopReason.CALLBACK
                break
    except KeyboardInterrupt:
        if search.answer is None:
            raise
        search.state.stop = StopReason.INTERRUPTED
    finally:
        shown = search.state.stop
        if search.hit_limit or shown in (StopReason.INTERRUPTED, StopReason.CALLBACK):
            search.state.stop = None  # a checkpoint of an unfinished run must be able to go on
        for listener in listeners:
            listener.on_end(search)
        search.state.stop = shown


def _result(
    search: GreedySearch,
    target: torch.Tensor,
    scale: float,
    home: torch.device,
    options: GreedyOptions,
    effort: str,
) -> Result:
    answer, stop = search.answer, search.state.stop
    assert answer is not None and stop is not None
    error = _exact_error(target, answer.network)
    path = tuple(PathPoint(_home(p.network, scale, home), p.relative_error) for p in search.state.path)
    history = tuple(
        s if scale == 1.0 else Step(**{**s.__dict__, "loss": s.loss * scale}) for s in search.state.steps
    )
    info = _info(target, effort=effort, options=options.to_dict(), seconds=search.state.elapsed)
    return Result(_home(answer.network, scale, home), error, history, stop, path, info)


def _exact_error(target: torch.Tensor, network: TensorNetwork) -> float:
    """Relative error from the residual, in double precision where that fits comfortably."""
    if target.numel() <= DOUBLE_ENTRIES:
        double = torch.complex128 if target.is_complex() else torch.float64
        target, network = target.to(double), network.to(dtype=double)
    objective = DenseLeastSquares(target, use_numpy=False)
    return objective.loss(network.structure, objective.to_arrays(network)) / objective.norm


def _info(target: torch.Tensor, **more: Any) -> dict[str, Any]:
    return {
        "library_version": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": str(target.device),
        "dtype": str(target.dtype),
        **more,
    }
