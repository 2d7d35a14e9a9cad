"""Measurements used by several scripts: the unit of time, ALS sweeps, cold plans, shares, TT-SVD."""

from __future__ import annotations

import functools
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any

from _common import Row, Stopwatch, median, stopwatch

# isort: split
import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.baselines.svd import truncated_train
from tensorgrow.contraction.program import Program
from tensorgrow.data.devices import one_thread
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.search.cuts import CutBounds
from tensorgrow.solvers import ALSSettings, als

# A tolerance no sweep falls below, so that every sweep asked for is done.
NEVER_CONVERGED = -1.0
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
def _plan_caches() -> list[Any]:
    """The library's caches of contraction plans and paths."""
    modules = [m for n, m in sys.modules.items() if n.startswith("tensorgrow.contraction")]
    found = {id(v): v for m in modules for v in vars(m).values() if hasattr(v, "cache_clear")}
    return [v for v in found.values() if v.__name__ != "_rust"]


def clear_plans() -> None:
    """Forget all compiled contraction plans, so that a run pays for its own planning."""
    for cache in _plan_caches():
        cache.cache_clear()


@functools.lru_cache(maxsize=1)
def warm_up() -> None:
    """One small run per process: lazy imports and first calls are not part of any measurement."""
    x = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 4, 4, 4), 2), random_state=0).to_dense()
    tg.decompose(x, max_error=1e-6, random_state=0)


def timed_decompose(x: torch.Tensor, **options: Any) -> tuple[tg.Result, Row]:
    """A run with cold plans, and the values that every script reports about it."""
    warm_up()
    unit = unit_seconds()
    clear_plans()
    with stopwatch() as watch:
        result = tg.decompose(x, progress=False, **options)
    target = options.get("max_error")
    limit = options.get("max_seconds")
    row = {
        "size": result.num_parameters,
        "error": result.relative_error,
        "reached": None if target is None else bool(result.relative_error <= target * (1 + 1e-9)),
        "hit_limit": bool(limit is not None and watch.wall >= limit),
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
        "units": watch.wall / unit.wall,
        "cpu_units": watch.cpu / unit.cpu,
        "unit_ms": 1e3 * unit.wall,
        "steps": len(result.history),
        "stop": result.stop.name,
        "seconds_per_growth": seconds_per_growth(result),
        "ranks": result.structure.to_dict()["ranks"],
    }
    return result, row


def seconds_per_growth(result: tg.Result) -> float | None:
    """Median time between a growth and the step before it."""
    steps = result.history
    return median(b.seconds - a.seconds for a, b in pairwise(steps) if b.kind == "grow")


def history_rows(result: tg.Result) -> list[list[Any]]:
    """One short row per step: kind, parameters, relative error, seconds, start."""
    return [[s.kind, s.num_parameters, s.relative_error, s.seconds, s.start] for s in result.history]


# -- sweeps --------------------------------------------------------------------------------------------


def synchronize(device: torch.device | str) -> None:
    """Wait for the GPU, where there is one."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def sweep_seconds(
    objective: DenseLeastSquares, structure: tg.Structure, *, budget: float = 1.0, repeats: int = 5
) -> tuple[float, int]:
    """Seconds per ALS sweep, gauge balancing included: median of several fits; and sweeps per fit.

    The first fit compiles the plan, stores the target in the order the sweep reads it and warms everything
    up; it is not counted.
    """
    target = objective.target
    network = tg.TensorNetwork.random(structure, random_state=0, dtype=target.dtype, device=target.device)

    def fit(sweeps: int) -> float:
        settings = ALSSettings(max_sweeps=sweeps, tolerance=NEVER_CONVERGED)
        synchronize(target.device)
        begin = time.perf_counter()
        fitted = als(objective, network, settings)
        synchronize(target.device)
        return (time.perf_counter() - begin) / fitted.num_sweeps

    with one_thread() if objective.use_numpy else nullcontext():
        fit(2)
        once = fit(1)
        sweeps = int(min(max(budget / repeats / max(once, 1e-6), 1), 25))
        repeats = max(1, min(repeats, int(budget / (once * sweeps)) + 1))
        found = median(fit(sweeps) for _ in range(repeats))
    assert found is not None
    return found, sweeps


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


# -- where the time goes -------------------------------------------------------------------------------


class Shares:
    """Seconds per category, each moment counted once, for the innermost category it falls in."""

    def __init__(self) -> None:
        self.exclusive: dict[str, float] = defaultdict(float)
        self.inclusive: dict[str, float] = defaultdict(float)
        self._stack: list[str] = ["other"]
        self._mark = time.perf_counter()

    def _charge(self) -> None:
        now = time.perf_counter()
        self.exclusive[self._stack[-1]] += now - self._mark
        self._mark = now

    def wrap(self, category: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time charged to `category`."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            begin, outermost = self._mark, category not in self._stack
            self._stack.append(category)
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._stack.pop()
                if outermost:
                    self.inclusive[category] += self._mark - begin

        return timed

    def to_row(self) -> Row:
        """Shares of the total; `scoring` alone holds only what is none of the others."""
        self._charge()
        total = sum(self.exclusive.values())
        return {
            "seconds": total,
            "shares": {k: v / total for k, v in sorted(self.exclusive.items())},
            "scoring_with_its_contractions_and_solves": self.inclusive["scoring"] / total,
        }


_FUNCTIONS = {
    "solves": ("solve_normal",),
    "planning": ("sweep_plan", "pair_plan", "dense_plan", "slice_gram_plan", "gram_plan", "inner_plan"),
    "scoring": ("score_edges",),
    "gauge": ("balance",),
    "cut spectra and trees": ("smallest_tree", "build_tree"),
}


@contextmanager
def measured_shares() -> Iterator[Shares]:
    """Charge the library's time to categories by wrapping its functions from outside."""
    _plan_caches()  # found before wrappers hide them
    shares = Shares()
    modules = [m for n, m in sys.modules.items() if n == "tensorgrow" or n.startswith("tensorgrow.")]
    replaced: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, category: str) -> None:
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, shares.wrap(category, getattr(owner, name)))

    replace(Program, "run", "contractions")
    replace(CutBounds, "spectrum", "cut spectra and trees")
    for category, names in _FUNCTIONS.items():
        for name in names:
            owners = [m for m in modules if callable(vars(m).get(name))]
            if not owners:
                raise RuntimeError(f"tensorgrow has no {name} any more; adapt _FUNCTIONS in {__name__}")
            for module in owners:
                replace(module, name, category)
    try:
        shares._mark = time.perf_counter()
        yield shares
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)


# -- TT-SVD --------------------------------------------------------------------------------------------


def tt_svd_at(x: np.ndarray, max_error: float) -> Row:
    """Smallest train within a relative `max_error`; the whole bisection, and one train, timed."""
    with stopwatch() as watch:
        result = tg.baselines.tt_svd(x, max_error=max_error)
    with stopwatch() as once:
        truncated_train(
            torch.from_numpy(x), range(x.ndim), max_error * float(np.linalg.norm(x)) / math.sqrt(x.ndim)
        )
    return {
        "size": result.num_parameters,
        "error": result.relative_error,
        "ranks": [result.structure.rank(k, k + 1) for k in range(x.ndim - 1)],
        "seconds": watch.wall,
        "seconds_one_threshold": once.wall,
    }
