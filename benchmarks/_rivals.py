"""What completion is compared with: TT-ALS, TR-ALS, CP and Tucker at given ranks, historical means.

TT-ALS and TR-ALS (Wang, Aggarwal and Aeron 2017) run through `tensorgrow.fit` with its default choice of the
ridge. CP and Tucker are TensorLy's with a mask, NumPy backend, one rank each: ALS on a tensor whose missing
entries are imputed by the current model. Missing entries begin as the mean of the observed ones, CP from
random factors and Tucker from its HOSVD: TensorLy's own start with a mask takes minutes and is no better.
Iterations end at a time limit; the row says so.
"""

from __future__ import annotations

import importlib.util
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from _common import Row

# isort: split
import numpy as np

import tensorgrow as tg

# Ranks tried, apart from the largest that a limit of the size allows.
RUNGS = (2, 3, 4, 6, 8, 10, 12, 15, 18, 21, 25, 30, 40, 60, 100, 150, 200, 300)
ITERATIONS = 1000
CP_TOLERANCE = 1e-6
# TensorLy's Tucker has no callback: its iterations come in blocks, until one changes little.
BLOCK = 10
BLOCK_TOLERANCE = 1e-4

Estimate = tuple[np.ndarray, Row]


class NotInstalledError(RuntimeError):
    """The rival's package is missing."""


def tensorly_is_installed() -> bool:
    """Whether CP and Tucker can run."""
    return importlib.util.find_spec("tensorly") is not None


# -- sizes ---------------------------------------------------------------------------------------------


def tucker_ranks(dims: Sequence[int], rank: int) -> tuple[int, ...]:
    """The same rank in every mode, no larger than the mode."""
    return tuple(min(rank, d) for d in dims)


def size_of(method: str, dims: Sequence[int], rank: int) -> int:
    """Parameters of a rival."""
    if method == "cp":
        return rank * sum(dims)
    if method == "tucker":
        ranks = tucker_ranks(dims, rank)
        return math.prod(ranks) + sum(r * d for r, d in zip(ranks, dims))
    return structure_of(method, dims, rank).num_parameters


def structure_of(method: str, dims: Sequence[int], rank: int) -> tg.Structure:
    """Train or ring of uniform rank; the rank of a train is no larger than a cut allows."""
    if method == "tr":
        return tg.Structure.tensor_ring(tuple(dims), rank)
    cuts = [min(math.prod(dims[:k]), math.prod(dims[k:])) for k in range(1, len(dims))]
    return tg.Structure.tensor_train(tuple(dims), [min(rank, c) for c in cuts])


def ladder(method: str, dims: Sequence[int], limit: int, rungs: Sequence[int] = RUNGS) -> list[int]:
    """Ranks to try: the rungs within the limit of the size and the largest rank there is."""
    largest, top = 1, max(dims) if method == "tucker" else limit
    while largest < top and size_of(method, dims, largest + 1) <= limit:
        largest += 1
    return sorted({r for r in rungs if r < largest} | {largest})


# -- methods -------------------------------------------------------------------------------------------


def run_rival(
    method: str, x: np.ndarray, mask: np.ndarray, rank: int, *, max_seconds: float, seed: int, device: str
) -> Estimate:
    """The tensor a rival predicts, everywhere, and its size and ranks."""
    if method in ("cp", "tucker") and not tensorly_is_installed():
        raise NotInstalledError("tensorly is not installed (pip install tensorly)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method in ("tt", "tr"):
            return als_completion(method, x, mask, rank, max_seconds=max_seconds, seed=seed, device=device)
        run = cp_completion if method == "cp" else tucker_completion
        return run(x, mask, rank, max_seconds=max_seconds, seed=seed)


def als_completion(
    method: str, x: np.ndarray, mask: np.ndarray, rank: int, *, max_seconds: float, seed: int, device: str
) -> Estimate:
    """TT-ALS or TR-ALS."""
    structure = structure_of(method, x.shape, rank)
    result = tg.fit(x, structure, mask, max_seconds=max_seconds, random_state=seed, device=device)
    row = {
        "size": result.num_parameters,
        "validation_error": result.validation_error,
        "ridge": result.info.get("ridge"),
        "stop": result.stop.name,
    }
    return result.fill(x, mask, keep_observed=False), row


def _prepared(x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.where(mask, x, x[mask].mean()), mask.astype(np.float64)


def cp_completion(x: np.ndarray, mask: np.ndarray, rank: int, *, max_seconds: float, seed: int) -> Estimate:
    """`tensorly.decomposition.parafac` with a mask."""
    import tensorly as tl
    from tensorly.decomposition import parafac

    tl.set_backend("numpy")
    filled, known = _prepared(x, mask)
    deadline, done = time.perf_counter() + max_seconds, 0

    def late(*_: Any) -> bool:
        nonlocal done
        done += 1
        return time.perf_counter() > deadline

    found = parafac(
        filled,
        rank,
        n_iter_max=ITERATIONS,
        init="random",
        mask=known,
        tol=CP_TOLERANCE,
        random_state=seed,
        callback=late,
    )
    row = {"size": size_of("cp", x.shape, rank), "iterations": done - 1}
    return np.asarray(tl.cp_to_tensor(found)), row


def tucker_completion(
    x: np.ndarray, mask: np.ndarray, rank: int, *, max_seconds: float, seed: int
) -> Estimate:
    """`tensorly.decomposition.tucker` with a mask."""
    import tensorly as tl
    from tensorly.decomposition import tucker

    tl.set_backend("numpy")
    filled, known = _prepared(x, mask)
    ranks = list(tucker_ranks(x.shape, rank))
    deadline, done = time.perf_counter() + max_seconds, 0
    found = tucker(filled, ranks, n_iter_max=1, tol=0, random_state=seed)
    before = np.asarray(tl.tucker_to_tensor(found))
    while done < ITERATIONS and time.perf_counter() < deadline:
        found = tucker(filled, ranks, n_iter_max=BLOCK, init=found, mask=known, tol=0, random_state=seed)
        done += BLOCK
        now = np.asarray(tl.tucker_to_tensor(found))
        change = float(np.linalg.norm(now - before) / np.linalg.norm(now))
        before = now
        if change < BLOCK_TOLERANCE:
            break
    return before, {"size": size_of("tucker", x.shape, rank), "ranks": ranks, "iterations": done}


def slot_means(x: np.ndarray, mask: np.ndarray, day_axis: int) -> Estimate:
    """Mean over the known days of the same place and slot; where none is known, of the place, then of all."""
    total = np.where(mask, x, 0.0)
    axes: Sequence[Callable[[np.ndarray], np.ndarray]] = (
        lambda a: a.sum(day_axis, keepdims=True),
        lambda a: a.sum((day_axis, x.ndim - 1), keepdims=True),
        lambda a: a.sum(keepdims=True),
    )
    found = np.full_like(total, np.nan)
    for collapse in axes:
        count = collapse(mask.astype(float))
        means = np.divide(collapse(total), count, out=np.full_like(count, np.nan), where=count > 0)
        found = np.where(np.isnan(found), means, found)
    return found, {"size": x.size // x.shape[day_axis]}
