"""Methods by name: ours, baselines and rivals, their labels, and the values their runs are compared by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import baselines
from ..results import Result
from ..search import Effort
from ..tasks.decompose import decompose
from .harness import Row, stopwatch

LABELS = {
    "ours": "tensorgrow",
    "default": "tensorgrow, default",
    "fast": "tensorgrow, fast",
    "thorough": "tensorgrow, thorough",
    "greedy": "Greedy (paper preset)",
    "greedy_int": "Greedy-int (paper preset)",
    "random_walk": "random walk",
    "tt_als": "TT-ALS",
    "tr_als": "TR-ALS",
    "cp": "CP",
    "tucker": "Tucker",
    "tt": "TT, uniform rank",
    "tt_svd": "TT-SVD",
    "tt_svd_interleaved": "TT-SVD, interleaved",
    "genetic": "TNGA",
    "genetic6": "TNGA, rank 6",
    "genetic7": "TNGA, rank 7",
    "tnls": "TNLS",
    "tnale": "TnALE",
    "svd_ins_tn": "SVDinsTN",
}
_EFFORTS: dict[str, Effort] = {"default": "balanced", "fast": "fast", "thorough": "thorough"}
# Names of methods that stand for a baseline with options.
_IMPLIED: dict[str, tuple[str, Row]] = {
    "greedy": ("greedy", {"split_nodes": False}),
    "greedy_int": ("greedy", {"split_nodes": True}),
    "tt_svd_interleaved": ("tt_svd", {"order": "interleaved"}),
    "genetic6": ("genetic", {"rank": 6}),
    "genetic7": ("genetic", {"rank": 7}),
}


def run_method(method: str, x: Any, **options: Any) -> tuple[Result, Row]:
    """Run ours or a baseline on a dense tensor; return the result and a row of plain numbers."""
    with stopwatch() as watch:
        if method in _EFFORTS:
            result = decompose(x, effort=_EFFORTS[method], progress=False, **options)
        else:
            name, implied = _IMPLIED.get(method, (method, {}))
            result = baselines.run(name, x, progress=False, **{**implied, **options})
    limit, seconds = options.get("max_seconds"), result.info.get("seconds")
    row = {
        **describe_run(result, options.get("max_error")),
        # By time, not by `stop`: a search that has reached the error by then names that reason.
        "hit_limit": limit is not None and seconds is not None and seconds >= limit,
        "seconds": seconds,
        "cpu_seconds": watch.cpu,
        "evaluations": result.info.get("evaluations", len(result.history)),
        "fitness": result.info.get("fitness"),
        "curve": front((s.num_parameters, s.error) for s in result.history),
        "times": gains((s.num_parameters, s.error, s.seconds) for s in result.history),
    }
    return result, row


def describe_run(result: Result, max_error: float | None) -> Row:
    """The values that every run on a dense tensor has."""
    return {
        "size": result.num_parameters,
        "error": result.relative_error,
        "reached": None if max_error is None else result.relative_error <= max_error * (1 + 1e-9),
        "stop": result.stop.name,
        "ranks": result.structure.to_dict()["ranks"],
    }


def run_rival(method: str, x: np.ndarray, mask: np.ndarray, rank: int, **options: Any) -> Result:
    """Complete with ``tt_als``, ``tr_als``, ``cp`` or ``tucker`` at one rank."""
    ranks: Row = {"rank": rank} if method in ("cp", "tucker") else {"ranks": [rank]}
    return baselines.run(method, x, mask, progress=False, **ranks, **options)


def random_mask(shape: tuple[int, ...], share: float, seed: int) -> np.ndarray:
    """A mask of exactly this share of the entries, drawn uniformly."""
    size = int(np.prod(shape))
    mask = np.zeros(size, dtype=bool)
    mask[np.random.default_rng(seed).permutation(size)[: round(share * size)]] = True
    return mask.reshape(shape)


# -- curves --------------------------------------------------------------------------------------------


def front(points: Iterable[tuple[int, float]]) -> list[list[float]]:
    """The points that no other point beats in both size and error, sorted by size."""
    best: list[list[float]] = []
    for size, error in sorted(points):
        if not best or error < best[-1][1]:
            best.append([size, error])
    return best


def gains(steps: Iterable[tuple[int, float, float]]) -> list[list[float]]:
    """The steps, as size, error and seconds, that no earlier one beats in both size and error."""
    best: list[list[float]] = []
    for size, error, seconds in sorted(steps, key=lambda s: s[2]):
        if not any(n <= size and e <= error for n, e, _ in best):
            best.append([size, error, seconds])
    return best


def best_error(row: Row, size: float) -> float | None:
    """Smallest error of a run with at most this many parameters."""
    return min((e for n, e in row["curve"] if n <= size), default=None)


def mean_and_deviation(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Mean and standard deviation of the values that are not None; None without any."""
    known = [v for v in values if v is not None]
    return (float(np.mean(known)), float(np.std(known))) if known else None
