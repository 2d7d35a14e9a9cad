"""Training core by core: sweeps that never raise the loss, until held-out data gains no more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ..network import TensorNetwork
from .gradient import TrainingOptions


def improve(
    network: TensorNetwork,
    sweep: Callable[[TensorNetwork, float], tuple[TensorNetwork, float]],
    measure: Callable[[TensorNetwork], float],
    options: TrainingOptions,
    *,
    deadline: float = math.inf,
    enough: float = -math.inf,
) -> TensorNetwork:
    """Sweep over the cores of a network; returns the best one met.

    Parameters
    ----------
    sweep
        Improves every core once, until a deadline; see `Sweeping`.
    measure
        Score that decides on the best sweep, lower is better.
    options
        `epochs`, `patience` and `tolerance` apply to sweeps.
    deadline
        Value of ``time.perf_counter()`` after which no sweep starts, except the first.
    enough
        No further sweep starts once the measure is no larger than this.
    """
    best, lowest, stale = network, measure(network), 0
    if math.isnan(lowest):
        lowest = math.inf
    for _ in range(options.epochs):
        if lowest <= enough or stale >= options.patience:
            break
        network, _ = sweep(network, deadline)
        now = measure(network)
        gained = now < lowest - options.tolerance * abs(lowest) or math.isinf(lowest)
        stale = 0 if gained else stale + 1
        if now < lowest:
            best, lowest = network, now
        if not math.isfinite(now) or time.perf_counter() > deadline:
            break
    return best
