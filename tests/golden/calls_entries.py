"""Runs on some entries of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tensorgrow as tg

from .reading import read_numbers, read_result
from .registry import RING, SMALL, golden, noisy, planted, seen, simple, start

# -- complete ------------------------------------------------------------------------------------------

QUICK: dict[str, Any] = {"random_state": 0, "effort": "fast"}


def _counts(dims: Sequence[int]) -> np.ndarray:
    rates = np.exp(0.6 * planted(tg.Structure.tensor_train(dims, 1)) + 1.0)
    return np.random.default_rng(5).poisson(rates).astype(float)


def _bits(dims: Sequence[int]) -> np.ndarray:
    odds = 2.0 * planted(tg.Structure.tensor_train(dims, 2))
    return (np.random.default_rng(5).random(tuple(dims)) < 1 / (1 + np.exp(-odds))).astype(float)


def _outliers() -> np.ndarray:
    x = noisy(SMALL)
    x[seen(x.shape, 0.05, 2)] += 8.0
    return x


def _with_nan() -> np.ndarray:
    return np.where(seen(SMALL.dims), noisy(SMALL), np.nan)


simple("complete/mask", lambda: tg.complete(noisy(SMALL), seen(SMALL.dims, 0.8), random_state=0))
simple(
    "complete/truth",
    lambda: tg.complete(noisy(SMALL, 0.01), seen(SMALL.dims, 0.8), truth=planted(SMALL), random_state=0),
)
simple(
    "complete/ring-of-order-four",
    lambda: tg.complete(noisy(RING), seen(RING.dims), truth=planted(RING), **QUICK),
)
simple(
    "complete/observations",
    lambda: tg.complete(
        tg.Observations.from_dense(noisy(SMALL), seen(SMALL.dims), weights=1.0 + seen(SMALL.dims, 0.5, 1)),
        **QUICK,
    ),
)
simple("complete/nan", lambda: tg.complete(_with_nan(), **QUICK))
simple(
    "complete/weights",
    lambda: tg.complete(
        noisy(SMALL), seen(SMALL.dims), weights=np.where(seen(SMALL.dims, 0.5, 1), 2.0, 0.5), **QUICK
    ),
)
simple("complete/poisson", lambda: tg.complete(_counts((5, 6, 5)), seen((5, 6, 5)), loss="poisson", **QUICK))
simple(
    "complete/logistic",
    lambda: tg.complete(_bits((7, 6, 7)), seen((7, 6, 7)), loss="logistic", max_steps=3, **QUICK),
)
simple("complete/huber", lambda: tg.complete(_outliers(), seen(SMALL.dims), loss="huber", **QUICK))
simple(
    "complete/huber-object",
    lambda: tg.complete(_outliers(), seen(SMALL.dims), loss=tg.losses.Huber(0.5), max_steps=3, **QUICK),
)
simple(
    "complete/absolute",
    lambda: tg.complete(_outliers(), seen(SMALL.dims), loss="absolute", max_steps=3, **QUICK),
)
simple(
    "complete/ridge",
    lambda: tg.complete(
        noisy(SMALL),
        seen(SMALL.dims),
        options=tg.GreedyOptions.for_completion("fast").replace(ridge=1e-4),
        random_state=0,
    ),
)
simple(
    "complete/validation-mask",
    lambda: tg.complete(noisy(SMALL), seen(SMALL.dims), validation=seen(SMALL.dims, 0.15, 9), **QUICK),
)
simple(
    "complete/validation-off",
    lambda: tg.complete(noisy(SMALL), seen(SMALL.dims), validation=False, max_steps=3, **QUICK),
)
simple(
    "complete/budget",
    lambda: tg.complete(noisy(RING), seen(RING.dims), max_parameters=50, max_steps=8, random_state=0),
)
simple("complete/max-error", lambda: tg.complete(noisy(SMALL), seen(SMALL.dims), max_error=0.3, **QUICK))
simple("complete/chain", lambda: tg.complete(noisy(RING), seen(RING.dims), edges="chain", **QUICK))
simple(
    "complete/init",
    lambda: tg.complete(noisy(SMALL), seen(SMALL.dims), init=start(SMALL), max_steps=2, **QUICK),
)
simple(
    "complete/complex",
    lambda: tg.complete(planted(SMALL, dtype=np.complex128), seen(SMALL.dims, 0.8), max_steps=4, **QUICK),
)
simple(
    "complete/float32",
    lambda: tg.complete(noisy(SMALL), seen(SMALL.dims), dtype="float32", max_steps=3, **QUICK),
)
simple(
    "complete/thorough",
    lambda: tg.complete(noisy(SMALL), seen(SMALL.dims), effort="thorough", max_steps=4, random_state=0),
)


@golden("complete/frame-and-sparse")
def _frame_and_sparse(folder: Path) -> dict[str, Any]:
    import scipy.sparse

    sparse = scipy.sparse.coo_array(np.where(seen((12, 10), 0.6), noisy(RING).reshape(25, 20)[:12, :10], 0.0))
    frame = _frame()
    return {
        "sparse": read_result(tg.complete(sparse, **QUICK)),
        "frame": read_result(tg.complete(frame, max_steps=3, **QUICK)),
    }


@golden("complete/fill-and-predict")
def _fill_and_predict(folder: Path) -> dict[str, Any]:
    x, mask = _counts((5, 6, 5)), seen((5, 6, 5))
    counts = tg.complete(x, mask, loss="poisson", max_steps=2, **QUICK)
    plain = tg.complete(_with_nan(), max_steps=3, **QUICK)
    return {
        "counts": read_numbers(counts.fill(x, mask)[0]),
        "all": read_numbers(counts.fill(x, mask, keep_observed=False)[0]),
        "predicted": read_numbers(counts.predict([[0, 0, 0], [4, 5, 4]])),
        "plain": read_numbers(plain.fill(_with_nan())[0]),
    }


@golden("complete/checkpoint")
def _complete_checkpoint(folder: Path) -> dict[str, Any]:
    common = {**QUICK, "checkpoint": folder / "run.ckpt"}
    first = tg.complete(noisy(SMALL), seen(SMALL.dims), max_steps=2, **common)
    second = tg.complete(noisy(SMALL), seen(SMALL.dims), max_steps=5, **common)
    second.save(folder / "run.safetensors")
    return {
        "first": read_result(first),
        "second": read_result(second),
        "loaded": read_result(tg.load(folder / "run.safetensors")),
    }


# -- partitions ----------------------------------------------------------------------------------------


def _steady() -> dict[str, Any]:
    """Options of a short completion with a ridge of its own."""
    options = tg.GreedyOptions.for_completion("fast").replace(ridge=1e-5)
    return {"random_state": 0, "max_steps": 4, "options": options}


def _frame(**columns: Any) -> Any:
    import pandas

    x, mask = noisy(SMALL), seen(SMALL.dims)
    where = np.argwhere(mask)
    return pandas.DataFrame({**{n: where[:, k] for k, n in enumerate("abc")}, **columns, "value": x[mask]})


def _parquet(folder: Path, frame: Any, parts: int = 3) -> Path:
    made = folder / "parts"
    made.mkdir()
    size = -(-len(frame) // parts)
    for k in range(parts):
        frame.iloc[k * size : (k + 1) * size].to_parquet(made / f"part{k}.parquet")
    return made


@golden("partitions/parquet")
def _partitions_parquet(folder: Path) -> dict[str, Any]:
    made = _parquet(folder, _frame())
    parts = tg.distributed.PartitionedObservations.from_parquet(made, shape=SMALL.dims, threads=1)
    return {**read_result(tg.complete(parts, **_steady())), "partitions": len(parts)}


@golden("partitions/path")
def _partitions_path(folder: Path) -> dict[str, Any]:
    made = _parquet(folder, _frame())
    return read_result(tg.complete(str(made), max_steps=2, **QUICK))


@golden("partitions/dask-weights-validation")
def _partitions_dask(folder: Path) -> dict[str, Any]:
    import dask.dataframe

    count = int(seen(SMALL.dims).sum())
    rng = np.random.default_rng(2)
    frame = _frame(trust=rng.uniform(0.5, 2.0, count), held=rng.random(count) < 0.2)
    parts = tg.distributed.PartitionedObservations.from_frame(
        dask.dataframe.from_pandas(frame, npartitions=2), weights="trust", threads=2
    )
    return read_result(tg.complete(parts, validation="held", **_steady()))


@golden("partitions/fit")
def _partitions_fit(folder: Path) -> dict[str, Any]:
    import dask.dataframe

    parts = dask.dataframe.from_pandas(_frame(), npartitions=2)
    return read_result(tg.fit(parts, SMALL, ridge=1e-4, max_sweeps=10, random_state=0))
