"""What every front end does alike: check its arguments, drive a search, describe the run."""

from __future__ import annotations

import math
import platform
import time
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch

from .._version import __version__
from ..callbacks.base import Callback, listening
from ..data.arrays import as_target, power_of_two_scale
from ..data.devices import choose_device
from ..errors import OptionError
from ..network import RandomState, TensorNetwork
from ..objectives import DenseLeastSquares, LeastSquares
from ..results import PathPoint, Result, Step, StopReason
from ..search import CompletionSearch, EdgePolicy, GreedyOptions, Limits, Problem, Search
from ..solvers import ALSSettings, als
from ..structure import Structure

__all__ = [
    "Refit",
    "all_zero",
    "bring_home",
    "check_init",
    "describe",
    "exact_error",
    "history_of",
    "identity",
    "path_of",
    "prepare",
    "refit_to_all",
    "run",
    "scaled",
    "seed_of",
]


# Up to this many entries the reported error is computed in double precision throughout.
DOUBLE_ENTRIES = 1 << 27


def check_init(init: TensorNetwork | None, shape: tuple[int, ...], target: torch.Tensor) -> None:
    """Refuse a start that does not fit the data."""
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


def scaled(network: TensorNetwork | None, factor: float) -> TensorNetwork | None:
    """A network whose tensor is multiplied by `factor`, spread over all cores."""
    if network is None or factor == 1.0:
        return network
    share = factor ** (1.0 / len(network.cores))
    return TensorNetwork(network.structure, [c * share for c in network.cores])


def bring_home(network: TensorNetwork, scale: float, device: torch.device) -> TensorNetwork:
    """The network in the units of the data, where the result goes."""
    found = scaled(network, scale)
    assert found is not None
    return found.to(device)


def run(search: Search, listeners: list[Callback]) -> None:
    """Drive a search; callbacks may stop it, Ctrl-C keeps what there is."""
    with listening(search, listeners) as wants_to_stop:
        try:
            for step in search:
                if wants_to_stop(step):
                    search.state.stop = StopReason.CALLBACK
                    break
        except KeyboardInterrupt:
            if search.answer is None:
                raise
            search.state.stop = StopReason.INTERRUPTED
        shown = search.state.stop
        if search.hit_limit or shown in (StopReason.INTERRUPTED, StopReason.CALLBACK):
            search.state.stop = None  # a checkpoint of an unfinished run must be able to go on
    search.state.stop = shown


@dataclass(frozen=True)
class Refit:
    """A chosen network after its last fit, with what to report of it."""

    network: TensorNetwork
    error: float
    history: tuple[Step, ...]
    seconds: float
    interrupted: bool = False


def refit_to_all(search: CompletionSearch, objective: LeastSquares, loss_scale: float) -> Refit:
    """Fit the chosen network to all the data, what was held out included.

    Parameters
    ----------
    objective
        All the data.
    loss_scale
        What to multiply losses with, to have them in the units of the user.
    """
    answer, options, begin = search.answer, search.problem.options, time.perf_counter()
    assert answer is not None
    history = list(history_of(search, loss_scale))
    network, interrupted = answer.network, False
    if search.problem.holds_out:
        settings = ALSSettings(
            max_sweeps=options.final_sweeps,
            tolerance=options.final_tolerance,
            ridge=options.rounding_ridge,
            balance_every=options.balance_every,
            accelerate=options.accelerate,
            momentum=search.problem.momentum(network.structure),
        )
        # A run that is out of time gets a share more of it: the refit matters more than the last growth.
        limit = search.limits.max_seconds
        deadline = math.inf if limit is None else begin + max(limit - search.state.elapsed, 0.1 * limit)
        try:
            fitted = als(objective, network, settings, deadline=deadline, keep_on_interrupt=True)
            network, interrupted = fitted.network, fitted.interrupted
        except KeyboardInterrupt:  # before the first sweep was done: the network as it was chosen
            interrupted = True
    loss = objective.loss(network.structure, objective.to_arrays(network))
    error = loss / (objective.norm or 1.0)
    seconds = search.state.elapsed + time.perf_counter() - begin
    if search.problem.holds_out:
        history.append(
            Step(
                index=len(history),
                kind="refit",
                edge=None,
                num_parameters=network.num_parameters,
                loss=loss * loss_scale,
                relative_error=error,
                validation_error=None,
                seconds=seconds,
                structure=network.structure,
                start=next((s.start for s in reversed(history) if s.structure == network.structure), 0),
            )
        )
    return Refit(network, error, tuple(history), seconds, interrupted)


def describe(target: torch.Tensor, **more: Any) -> dict[str, Any]:
    """Versions, device and whatever else describes a run."""
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


def seed_of(random_state: RandomState, generator: torch.Generator | None = None) -> int | None:
    """The seed that gives the same run again; None where no number does.

    Parameters
    ----------
    generator
        The one made for ``random_state=None``, where all that is random comes from it.
    """
    if isinstance(random_state, Integral):
        return int(random_state)
    return generator.initial_seed() if random_state is None and generator is not None else None


def identity(
    values: torch.Tensor,
    shape: tuple[int, ...],
    norm: float,
    limits: Limits,
    options: GreedyOptions,
    policy: EdgePolicy,
    problem: Problem,
    **more: Any,
) -> dict[str, Any]:
    """What a resumed run must share with the one that wrote the checkpoint."""
    flat = values.reshape(-1)
    probe = flat[:: max(1, flat.numel() // 97)][:97]
    parts = torch.view_as_real(probe) if probe.is_complex() else probe
    weights = torch.arange(1, parts.numel() + 1, dtype=torch.float64, device=probe.device)
    fingerprint = float((parts.reshape(-1).double() * weights).sum())
    return {
        "shape": list(shape),
        "dtype": str(values.dtype),
        "data": [norm, fingerprint],
        "max_error": limits.max_error,
        "max_parameters": limits.max_parameters,
        "edges": None if policy.pairs is None else sorted([list(e) for e in policy.pairs]),
        "split_nodes": problem.split_nodes,
        "options": options.to_dict(),
        **more,
    }


def all_zero(structure: Structure, target: torch.Tensor, device: torch.device) -> Result:
    """The result for data that is zero throughout."""
    cores = [torch.zeros(s, dtype=target.dtype, device=device) for s in structure.core_shapes]
    network = TensorNetwork(structure, cores)
    step = Step(0, "start", None, network.num_parameters, 0.0, 0.0, None, 0.0, structure)
    path = (PathPoint(network, 0.0),)
    return Result(network, 0.0, (step,), StopReason.TARGET_REACHED, path, describe(target))


def history_of(search: Search, scale: float) -> tuple[Step, ...]:
    """Steps of a search in the units of the data."""
    steps = search.state.steps
    return tuple(s if scale == 1.0 else Step(**{**s.__dict__, "loss": s.loss * scale}) for s in steps)


def path_of(search: Search, scale: float, device: torch.device) -> tuple[PathPoint, ...]:
    """Networks on the error-size path in the units of the data."""
    return tuple(
        PathPoint(bring_home(p.network, scale, device), p.relative_error, p.counted)
        for p in search.state.path
    )


def prepare(
    x: Any, dtype: torch.dtype | None, device: torch.device | str | None
) -> tuple[torch.Tensor, torch.device, float]:
    """Data where it is computed, where the result goes, and the scale that was divided out."""
    data = as_target(x, dtype)
    where = choose_device(device, data)
    home = data.device if device == "auto" else where
    target = data.to(where)
    scale = power_of_two_scale(target)
    return (target if scale == 1.0 else target / scale), home, scale


def exact_error(target: torch.Tensor, network: TensorNetwork) -> float:
    """Relative error from the residual, in double precision where that fits comfortably."""
    if target.numel() <= DOUBLE_ENTRIES:
        double = torch.complex128 if target.is_complex() else torch.float64
        target, network = target.to(double), network.to(dtype=double)
    objective = DenseLeastSquares(target, use_numpy=False)
    return objective.loss(network.structure, objective.to_arrays(network)) / objective.norm
