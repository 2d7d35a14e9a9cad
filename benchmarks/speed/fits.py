"""Part `fits`: `tensorgrow.fit` of a given structure beside TensorLy, at equal sweeps."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.errors import import_package
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from ..benchmark import BenchmarkSettings
from ..completion.runs import claim

__all__ = ["cases", "claims", "run", "table"]

# Shape and rank.
RINGS = {"ring 7^5": ((7,) * 5, 4), "ring 16^4": ((16,) * 4, 4), "ring 30^4": ((30,) * 4, 4)}
TUCKERS = {"tucker 40^4": ((40,) * 4, 5), "tucker 100^3": ((100,) * 3, 5)}
SWEEPS, NOISE = 10, 0.1
REPEATS = 15  # of both in turn: calls of a few milliseconds differ by a factor of two on a shared machine
GAIN = 10.0


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Each shape once, ours and TensorLy's timed in turn."""
    items = {"ring 7^5": RINGS["ring 7^5"]} if settings.quick else {**RINGS, **TUCKERS}
    return [
        Case(
            f"fits/{settings['label']}/cpu/{name}",
            {"item": name, "dims": list(dims), "rank": rank, "sweeps": SWEEPS},
            alone=True,
            threads=1,
        )
        for name, (dims, rank) in items.items()
    ]


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Median CPU seconds of both on one thread after a first call of each, and the errors they end at."""
    dims, rank, sweeps = tuple(params["dims"]), params["rank"], params["sweeps"]
    is_ring = params["item"] in RINGS
    structure = tg.Structure.tensor_ring(dims, rank) if is_ring else tg.Structure.tucker(dims, rank)
    clean = tg.TensorNetwork.random(structure, random_state=0).to_dense().numpy()
    noise = np.random.default_rng(0).standard_normal(dims)
    x = clean / np.linalg.norm(clean) + NOISE * noise / math.sqrt(noise.size)

    def ours() -> float:
        limits: Row = {"max_sweeps": sweeps, "tolerance": 0.0}
        return tg.fit(x, structure, random_state=1, progress=False, **limits).relative_error

    (seconds, error), (rival, their_error) = _time(ours, lambda: _tensorly(x, rank, sweeps, is_ring))
    return {
        "seconds": seconds,
        "error": error,
        "tensorly_seconds": rival,
        "tensorly_error": their_error,
        "size": structure.num_parameters,
    }


def _tensorly(x: np.ndarray, rank: int, sweeps: int, is_ring: bool) -> float:
    """The error of TensorLy's alternating least squares, or orthogonal iteration for Tucker."""
    tl: Any = import_package("tensorly", "this part compares with TensorLy", "baselines")
    from tensorly.decomposition import tensor_ring_als, tucker

    tl.set_backend("numpy")
    if is_ring:
        ring = tensor_ring_als(x, rank=[rank] * (x.ndim + 1), n_iter_max=sweeps, tol=0.0, random_state=1)
        found = tl.tr_to_tensor(ring)
    else:
        found = tl.tucker_to_tensor(
            tucker(x, rank=[rank] * x.ndim, n_iter_max=sweeps, tol=0.0, init="random", random_state=1)
        )
    return float(np.linalg.norm(found - x) / np.linalg.norm(x))


def _time(*calls: Callable[[], float]) -> list[tuple[float, float]]:
    """Median CPU seconds of every call, made in turn, and what it returns."""
    seconds: list[list[float]] = [[] for _ in calls]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [call() for call in calls]
        for _ in range(REPEATS):
            for taken, call in zip(seconds, calls):
                with stopwatch() as watch:
                    call()
                taken.append(watch.cpu)
    return [(statistics.median(taken), value) for taken, value in zip(seconds, found)]


def table(results: Results) -> list[Row]:
    """One line per shape and source."""
    columns = ("seconds", "tensorly_seconds", "error", "tensorly_error", "size")
    return [
        {
            "fit": key.split("/")[3],
            "source": key.split("/")[1],
            **{c: row[c] for c in columns},
            "times faster": row["tensorly_seconds"] / row["seconds"],
        }
        for key, row in results.finished("fits/").items()
    ]


def claims(results: Results) -> list[Row]:
    """The gain on every shape."""
    rows = [line for line in table(results) if line["source"] == "after"]
    return [
        claim(f"fit {r['fit']}: times faster than TensorLy", GAIN, g, g >= GAIN, 1)
        for r in rows
        for g in [r["times faster"]]
    ]
