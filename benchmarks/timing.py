"""Timed runs: the unit of time, cold plans, ALS sweeps, whole decompositions."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.contraction import clear_plans
from tensorgrow.data.devices import one_thread
from tensorgrow.experiments.harness import Row, Stopwatch, median, stopwatch
from tensorgrow.experiments.methods import describe_run
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.solvers.sweep_graphs import SweepGraphs

# A graph found by a growth on a 256x256 image as 4^8; 2,092 parameters.
IMAGE_RANKS = {
    (0, 1): 2,
    (1, 2): 3,
    (2, 3): 3,
    (2, 6): 4,
    (2, 7): 4,
    (3, 6): 3,
    (3, 7): 4,
    (4, 5): 3,
    (5, 6): 4,
    (6, 7): 5,
}


def unit_seconds(repeats: int = 30) -> Stopwatch:
    """One unit: a float64 `gelsd` solve of a 2401x60 system with 7 right-hand sides; medians."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2401, 60)), rng.standard_normal((2401, 7))
    np.linalg.lstsq(a, b, rcond=None)
    watches = []
    for _ in range(repeats):
        with stopwatch() as watch:
            np.linalg.lstsq(a, b, rcond=None)
        watches.append(watch)
    return Stopwatch(statistics.median(w.wall for w in watches), statistics.median(w.cpu for w in watches))


@functools.lru_cache(maxsize=1)
def warm_up() -> None:
    """One small run per process: lazy imports and first calls are not part of any measurement."""
    x = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 4, 4, 4), 2), random_state=0).to_dense()
    tg.decompose(x, max_error=1e-6, random_state=0, progress=False)


def timed_decompose(x: torch.Tensor, **options: Any) -> tuple[tg.Result, Row]:
    """A run with cold plans, and the values that are reported about it."""
    warm_up()
    unit = unit_seconds()
    clear_plans()
    with stopwatch() as watch:
        result = tg.decompose(x, progress=False, **options)
    limit = options.get("max_seconds")
    growths = [b.seconds - a.seconds for a, b in pairwise(result.history) if b.kind == "grow"]
    return result, {
        **describe_run(result, options.get("max_error")),
        "hit_limit": limit is not None and watch.wall >= limit,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
        "units": watch.wall / unit.wall,
        "cpu_units": watch.cpu / unit.cpu,
        "unit_ms": 1e3 * unit.wall,
        "steps": len(result.history),
        "seconds_per_growth": median(growths),
    }


# -- sweeps --------------------------------------------------------------------------------------------


def synchronize(device: torch.device | str) -> None:
    """Wait for the GPU, where there is one."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def call_seconds(call: Callable[[], Any], device: torch.device | str, *, cpu_time: bool = False) -> float:
    """Seconds of a call, by the clock or of the CPU, which other processes disturb less."""
    now = time.process_time if cpu_time else time.perf_counter
    synchronize(device)
    begin = now()
    call()
    synchronize(device)
    return now() - begin


def als_seconds(
    objective: Any, network: tg.TensorNetwork, sweeps: int, graphs: SweepGraphs | None = None
) -> float:
    """Seconds per sweep of a fit, gauge balancing included, with a tolerance that no sweep falls below."""
    settings = ALSSettings(max_sweeps=sweeps, tolerance=-1.0)
    fit = functools.partial(als, objective, network, settings, graphs=graphs)
    return call_seconds(fit, network.cores[0].device) / sweeps


def sweep_seconds(
    objective: DenseLeastSquares, structure: tg.Structure, *, budget: float = 1.0, repeats: int = 5
) -> tuple[float, int]:
    """Seconds per ALS sweep: median of several fits; and sweeps per fit.

    The first fits compile the plan, store the target in the order the sweep reads it, record the sweep on a
    GPU and warm everything up; they are not counted.
    """
    target, graphs = objective.target, SweepGraphs()
    network = tg.TensorNetwork.random(structure, random_state=0, dtype=target.dtype, device=target.device)
    with one_thread() if objective.use_numpy else nullcontext():
        als_seconds(objective, network, 4, graphs)
        once = als_seconds(objective, network, 1, graphs)
        sweeps = int(min(max(budget / repeats / max(once, 1e-6), 1), 25))
        repeats = max(1, min(repeats, int(budget / (once * sweeps)) + 1))
        return statistics.median(
            als_seconds(objective, network, sweeps, graphs) for _ in range(repeats)
        ), sweeps


def low_rank_plus_noise(
    structure: tg.Structure, *, noise: float, dtype: torch.dtype, device: torch.device | str, seed: int = 0
) -> torch.Tensor:
    """The tensor of a random network with entries of size about 1, plus noise, made in place slab by slab."""
    network = tg.TensorNetwork.random(structure, random_state=seed, dtype=dtype, device=device)
    x = network.to_dense()
    x /= float(torch.linalg.vector_norm(x)) / math.sqrt(x.numel())
    generator = torch.Generator(device).manual_seed(seed)
    for slab in x:
        slab += noise * torch.randn(slab.shape, generator=generator, dtype=dtype, device=device)
    return x
