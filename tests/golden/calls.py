"""Small runs of every task through public names, each with a fixed seed.

Every call takes a folder of its own, which is the working folder too, and returns plain JSON. None has a
limit of time: what comes out must not depend on how busy the machine is.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tensorgrow as tg

from .reading import read_compressed, read_grown, read_network, read_numbers, read_result, read_structure

__all__ = ["CALLS", "cli", "noisy", "planted", "seen"]

Call = Callable[[Path], dict[str, Any]]
CALLS: dict[str, Call] = {}

TRAIN = tg.Structure.tensor_train((5, 6, 5, 4), 2)
RING = tg.Structure.tensor_ring((5, 5, 5, 4), 2)
TUCKER = tg.Structure.tucker((7, 7, 7, 7), 2)
SMALL = tg.Structure.tensor_ring((5, 6, 5), 2)
LAZY = tg.Structure.tensor_train((12, 10, 11, 9), (2, 3, 2))


def golden(name: str) -> Callable[[Call], Call]:
    """Add a call under this name."""

    def add(call: Call) -> Call:
        if name in CALLS:
            raise ValueError(f"the name {name} is taken")
        CALLS[name] = call
        return call

    return add


def simple(name: str, run: Callable[[], Any]) -> None:
    """Add a call that gives a `Result` and needs no folder."""
    golden(name)(lambda folder: read_result(run()))


# -- data ----------------------------------------------------------------------------------------------


def planted(structure: tg.Structure, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """The dense tensor of a random network of this structure, of norm one per entry."""
    rng = np.random.default_rng(seed)
    cores = [rng.standard_normal(s) for s in structure.core_shapes]
    if np.dtype(dtype).kind == "c":
        cores = [c + 1j * rng.standard_normal(c.shape) for c in cores]
    x = tg.TensorNetwork(structure, [torch.from_numpy(c) for c in cores]).to_dense().numpy()
    return (x * (np.sqrt(x.size) / np.linalg.norm(x))).astype(dtype)


def noisy(structure: tg.Structure, size: float = 0.05, seed: int = 0) -> np.ndarray:
    """A planted tensor with noise."""
    x = planted(structure, seed)
    return x + size * np.random.default_rng(seed + 1).standard_normal(x.shape)


def seen(dims: Sequence[int], share: float = 0.7, seed: int = 0) -> np.ndarray:
    """A mask that is True for about this share of the entries."""
    return np.random.default_rng(seed + 7).random(tuple(dims)) < share


def start(structure: tg.Structure, seed: int = 3) -> tg.TensorNetwork:
    """A network to start from."""
    rng = np.random.default_rng(seed)
    return tg.TensorNetwork(
        structure, [torch.from_numpy(rng.standard_normal(s)) for s in structure.core_shapes]
    )


# -- what can be called --------------------------------------------------------------------------------

PUBLIC = (
    "decompose fit complete learn learn_density load tensorize detensorize Observations GreedyOptions "
    "TrainingOptions TNRegressor TNClassifier nn.grow nn.compress nn.TNLinear nn.TNLinear.from_linear "
    "nn.load_compressed baselines.run"
)


@golden("public/parameters")
def _parameters(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in PUBLIC.split():
        try:
            found[name] = list(inspect.signature(attrgetter(name)(tg)).parameters)
        except AttributeError as error:
            found[name] = str(error)
    return found


# -- decompose -----------------------------------------------------------------------------------------

simple("decompose/train", lambda: tg.decompose(planted(TRAIN), max_error=1e-6, random_state=0))
simple("decompose/ring", lambda: tg.decompose(planted(RING), max_error=1e-6, random_state=0))
simple("decompose/tucker", lambda: tg.decompose(planted(TUCKER), max_error=1e-6, random_state=0))
simple("decompose/noisy", lambda: tg.decompose(noisy(RING), max_error=0.08, random_state=0))
simple("decompose/random", lambda: tg.decompose(noisy(RING, 2.0), max_error=0.5, max_steps=8, random_state=0))
simple("decompose/budget", lambda: tg.decompose(noisy(RING, 0.3), max_parameters=70, random_state=0))
simple(
    "decompose/error-and-budget",
    lambda: tg.decompose(noisy(RING, 0.3), max_error=0.02, max_parameters=60, random_state=0),
)
simple(
    "decompose/effort-fast",
    lambda: tg.decompose(noisy(TUCKER, 0.2), max_error=0.22, effort="fast", random_state=0),
)
simple(
    "decompose/effort-balanced",
    lambda: tg.decompose(noisy(TUCKER, 0.2), max_error=0.22, effort="balanced", random_state=0),
)
simple(
    "decompose/effort-thorough",
    lambda: tg.decompose(noisy(TUCKER, 0.2), max_error=0.22, max_steps=16, effort="thorough", random_state=0),
)
for _edges, _named in (("chain", "chain"), ("ring", "ring"), (((0, 2), (1, 3), (2, 1)), "list")):
    simple(
        f"decompose/edges-{_named}",
        lambda edges=_edges: tg.decompose(noisy(RING), max_error=0.3, edges=edges, random_state=0),
    )
simple(
    "decompose/no-splits",
    lambda: tg.decompose(noisy(TUCKER), max_error=0.2, split_nodes=False, effort="fast", random_state=0),
)
simple(
    "decompose/init",
    lambda: tg.decompose(
        noisy(RING), max_error=0.08, init=start(tg.Structure(RING.dims, {(0, 1): 2})), random_state=0
    ),
)
simple(
    "decompose/paper",
    lambda: tg.decompose(
        noisy(RING), max_error=0.1, max_steps=6, options=tg.GreedyOptions.paper(), random_state=0
    ),
)
simple(
    "decompose/options",
    lambda: tg.decompose(
        noisy(RING),
        max_error=0.08,
        options=tg.GreedyOptions(scoring="full", lookahead=3, rank_increment=2, starts=1, regrow_cycles=2),
        random_state=0,
    ),
)
simple(
    "decompose/complex",
    lambda: tg.decompose(planted(SMALL, dtype=np.complex128), max_error=1e-6, random_state=0),
)
simple(
    "decompose/float32",
    lambda: tg.decompose(noisy(RING).astype(np.float32), max_error=0.08, effort="fast", random_state=0),
)
simple(
    "decompose/dtype-of-whole-numbers",
    lambda: tg.decompose(
        np.rint(9 * noisy(RING)).astype(np.int32), max_error=0.1, dtype="float32", random_state=0
    ),
)
simple(
    "decompose/torch-and-generator",
    lambda: tg.decompose(
        torch.from_numpy(noisy(SMALL)), max_error=0.08, random_state=torch.Generator().manual_seed(5)
    ),
)
simple("decompose/zeros", lambda: tg.decompose(np.zeros((3, 4, 5)), max_error=0.1))
simple("decompose/matrix", lambda: tg.decompose(noisy(RING).reshape(25, 20), max_error=0.1, random_state=0))
simple("decompose/vector", lambda: tg.decompose(np.arange(5.0), max_error=0.1, random_state=0))
simple(
    "decompose/callback-stops",
    lambda: tg.decompose(noisy(RING), max_error=0.01, callbacks=lambda step: step.index >= 3, random_state=0),
)
simple(
    "decompose/memory-limit-stops",
    lambda: tg.decompose(
        np.random.default_rng(0).standard_normal((6,) * 4),
        max_error=0.01,
        memory_limit=40_000,
        random_state=0,
    ),
)


@golden("decompose/at-and-array")
def _at_and_array(folder: Path) -> dict[str, Any]:
    result = tg.decompose(noisy(RING), max_error=0.08, effort="fast", random_state=0)
    return {
        "compression_ratio": result.compression_ratio,
        "smaller": read_network(result.at(max_parameters=60)),
        "coarser": read_network(result.at(max_error=0.5)),
        "entries": read_numbers(result.predict([[0, 0, 0, 0], [4, 3, 2, 1]])),
        "array": read_numbers(result.to_array()[0, 0, 0]),
    }


@golden("decompose/checkpoint")
def _checkpoint(folder: Path) -> dict[str, Any]:
    common: dict[str, Any] = {"max_error": 0.05, "random_state": 0, "checkpoint": folder / "run.ckpt"}
    first = tg.decompose(noisy(RING), max_steps=3, **common)
    second = tg.decompose(noisy(RING), max_steps=9, **common)
    return {"first": read_result(first), "second": read_result(second)}


@golden("decompose/save-and-load")
def _save_and_load(folder: Path) -> dict[str, Any]:
    result = tg.decompose(noisy(RING), max_error=0.08, effort="fast", random_state=0)
    result.save(folder / "run.safetensors")
    result.network.save(folder / "net.safetensors")
    loaded: Any = tg.load(folder / "run.safetensors")
    network: Any = tg.load(folder / "net.safetensors")
    return {
        "result": read_result(loaded),
        "network": read_network(network),
        "kinds": [type(loaded).__name__, type(network).__name__],
    }


@golden("decompose/tensorize")
def _tensorize(folder: Path) -> dict[str, Any]:
    image = (
        np.outer(np.sin(np.arange(16.0)), np.cos(np.arange(16.0))) + np.arange(256.0).reshape(16, 16) / 256
    )
    tensor, how = tg.tensorize(image, (4, 4, 4, 4))
    result = tg.decompose(tensor, max_error=0.05, random_state=0)
    back = tg.detensorize(result.network.to_dense(), how)
    return {**read_result(result), "how": how.to_dict(), "corner": read_numbers(back[:2, :2])}


# -- arrays that are not in memory ---------------------------------------------------------------------


def _zarr(folder: Path, x: np.ndarray) -> Any:
    import zarr

    array = zarr.open(
        str(folder / "x.zarr"),
        mode="w",
        shape=x.shape,
        chunks=tuple(-(-d // 2) for d in x.shape),
        dtype=x.dtype,
    )
    array[...] = x
    return array


def _dask(x: np.ndarray) -> Any:
    import dask.array

    return dask.array.from_array(x, chunks=tuple(-(-d // 2) for d in x.shape))


def by_blocks(x: Any, *, method: str, threads: int, **options: Any) -> Any:
    """Decompose block by block in a chosen way, whatever that is called."""
    if hasattr(tg, "Blocks"):
        return tg.decompose(tg.Blocks(x, method=method, threads=threads), **options)
    return tg.distributed.decompose(x, method=method, threads=threads, **options)


@golden("lazy/zarr")
def _lazy_zarr(folder: Path) -> dict[str, Any]:
    x = _zarr(folder, planted(LAZY))
    return read_result(tg.decompose(x, max_error=1e-5, memory_limit=300_000, random_state=0))


@golden("lazy/zarr-compressed")
def _lazy_compressed(folder: Path) -> dict[str, Any]:
    x = _zarr(folder, planted(tg.Structure.tensor_train((20, 20, 20, 12), (2, 3, 2))))
    return read_result(tg.decompose(x, max_error=1e-5, memory_limit=3_000_000, random_state=0))


@golden("lazy/dask")
def _lazy_dask(folder: Path) -> dict[str, Any]:
    x = _dask(noisy(LAZY))
    return read_result(
        tg.decompose(x, max_error=0.1, max_steps=5, effort="fast", memory_limit=400_000, random_state=0)
    )


@golden("lazy/fits-in-memory")
def _lazy_fits(folder: Path) -> dict[str, Any]:
    x = _zarr(folder, noisy(SMALL))
    return read_result(tg.decompose(x, max_error=0.1, effort="fast", random_state=0))


@golden("lazy/memmap")
def _lazy_memmap(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", planted(LAZY))
    x = np.load(folder / "x.npy", mmap_mode="r")
    return read_result(
        tg.decompose(x, max_parameters=150, effort="fast", memory_limit=300_000, random_state=0)
    )


for _method in ("stream", "compress"):

    @golden(f"lazy/{_method}")
    def _blocks(folder: Path, method: str = _method) -> dict[str, Any]:
        x = _zarr(folder, noisy(LAZY, 0.01))
        return read_result(
            by_blocks(x, method=method, threads=2, max_error=0.05, effort="fast", random_state=0)
        )


@golden("lazy/stream-complex")
def _blocks_complex(folder: Path) -> dict[str, Any]:
    x = _dask(planted(SMALL, dtype=np.complex128))
    return read_result(by_blocks(x, method="stream", threads=1, max_error=1e-5, max_steps=5, random_state=0))


@golden("lazy/checkpoint")
def _blocks_checkpoint(folder: Path) -> dict[str, Any]:
    common: dict[str, Any] = {"method": "stream", "threads": 1, "max_error": 0.05, "effort": "fast"}
    common |= {"random_state": 0, "checkpoint": folder / "run.ckpt"}
    x = _dask(noisy(SMALL, 0.02))
    first = by_blocks(x, max_steps=1, **common)
    second = by_blocks(x, max_steps=4, **common)
    return {"first": read_result(first), "second": read_result(second)}


@golden("lazy/fit")
def _lazy_fit(folder: Path) -> dict[str, Any]:
    x = _zarr(folder, noisy(LAZY))
    return read_result(tg.fit(x, LAZY, memory_limit=400_000, max_sweeps=10, random_state=0))


@golden("lazy/map-runs")
def _map_runs(folder: Path) -> dict[str, Any]:
    runs = tg.distributed.map_runs(
        tg.decompose,
        [{"x": noisy(SMALL), "max_error": 0.1, "effort": "fast", "random_state": k} for k in (0, 1)],
    )
    return {"runs": [read_result(r) for r in runs]}


# -- fit -----------------------------------------------------------------------------------------------

simple("fit/dense", lambda: tg.fit(noisy(RING), RING, random_state=0))
simple("fit/max-error", lambda: tg.fit(planted(TRAIN), TRAIN, max_error=1e-4, random_state=0))
simple("fit/tucker-few-sweeps", lambda: tg.fit(noisy(TUCKER), TUCKER, max_sweeps=4, random_state=1))
simple("fit/init", lambda: tg.fit(noisy(RING), RING, init=start(RING), tolerance=1e-3))
simple(
    "fit/complex", lambda: tg.fit(planted(SMALL, dtype=np.complex64), SMALL, max_sweeps=20, random_state=0)
)
simple(
    "fit/mask",
    lambda: tg.fit(noisy(SMALL), SMALL, seen(SMALL.dims), truth=planted(SMALL), random_state=0),
)
simple(
    "fit/mask-ridge-weights",
    lambda: tg.fit(
        noisy(SMALL),
        SMALL,
        seen(SMALL.dims),
        ridge=1e-3,
        weights=1.0 + seen(SMALL.dims, 0.5, 1),
        max_sweeps=15,
        random_state=0,
    ),
)
simple(
    "fit/observations",
    lambda: tg.fit(
        tg.Observations.from_dense(noisy(SMALL), seen(SMALL.dims)), SMALL, validation=0.2, random_state=0
    ),
)

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


# -- learn ---------------------------------------------------------------------------------------------


def _training() -> Any:
    return tg.TrainingOptions(optimizer="adam", learning_rate=0.02, epochs=20, candidate_epochs=3)


def _squared(x: torch.Tensor) -> Callable[[tg.TensorNetwork], torch.Tensor]:
    return lambda network: ((network.to_dense() - x) ** 2).mean()


simple(
    "learn/plain",
    lambda: tg.learn(
        _squared(torch.from_numpy(noisy(SMALL))),
        SMALL.dims,
        max_steps=2,
        effort="fast",
        dtype="float64",
        random_state=0,
    ),
)


def _learn_batches() -> Any:
    x, mask = torch.from_numpy(noisy(SMALL)), seen(SMALL.dims)
    held = torch.from_numpy(np.argwhere(~mask))
    rows = torch.from_numpy(np.argwhere(mask))
    batches = [rows[k::3] for k in range(3)]

    def loss(network: tg.TensorNetwork, where: torch.Tensor) -> torch.Tensor:
        return ((network.entries(where) - x[tuple(where.T)]) ** 2).mean()

    return tg.learn(
        loss,
        SMALL.dims,
        batches=batches,
        validation=lambda network: float(loss(network, held)),
        max_steps=2,
        dtype="float64",
        training=_training(),
        random_state=0,
    )


simple("learn/batches-validation", _learn_batches)
simple(
    "learn/budget-chain",
    lambda: tg.learn(
        _squared(torch.from_numpy(noisy(SMALL)).float()),
        SMALL.dims,
        max_parameters=40,
        edges="chain",
        training=_training(),
        random_state=0,
    ),
)


@golden("learn/checkpoint")
def _learn_checkpoint(folder: Path) -> dict[str, Any]:
    def run(steps: int) -> Any:
        return tg.learn(
            _squared(torch.from_numpy(noisy(SMALL))),
            SMALL.dims,
            max_steps=steps,
            dtype="float64",
            training=_training(),
            random_state=0,
            checkpoint=folder / "run.ckpt",
        )

    return {"first": read_result(run(1)), "second": read_result(run(2))}


# -- densities -----------------------------------------------------------------------------------------


def _samples() -> np.ndarray:
    rng = np.random.default_rng(4)
    a = rng.integers(0, 3, 200)
    b = np.where(rng.random(200) < 0.8, a, rng.integers(0, 3, 200))
    c = np.where(rng.random(200) < 0.7, (a + b) % 2, rng.integers(0, 2, 200))
    return np.stack([a, b, c, rng.integers(0, 2, 200)], 1)


for _kind in ("born", "nonnegative"):

    @golden(f"density/{_kind}")
    def _density(folder: Path, kind: str = _kind) -> dict[str, Any]:
        result = tg.learn_density(_samples(), kind=kind, max_steps=2, effort="fast", random_state=0)
        result.save(folder / "run.safetensors")
        result.model.save(folder / "model.safetensors")
        loaded: Any = tg.load(folder / "run.safetensors")
        model: Any = tg.load(folder / "model.safetensors")
        return {
            **read_result(result),
            "nll": [result.train_nll, result.validation_nll],
            "log_partition": result.model.log_partition(),
            "marginal": read_numbers(result.model.marginal((0, 1))),
            "conditional": read_numbers(result.model.conditional({0: 1}, 1)),
            "sample": read_numbers(result.model.sample(4, random_state=0)),
            "loaded": [type(loaded).__name__, type(model).__name__, model.nll(_samples())],
        }


simple(
    "density/weights-no-validation",
    lambda: tg.learn_density(
        _samples(),
        weights=np.linspace(0.5, 1.5, 200),
        validation=False,
        max_steps=1,
        edges="chain",
        training=_training(),
        random_state=0,
    ),
)


# -- estimators ----------------------------------------------------------------------------------------


def _regression(responses: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((150, 4, 5))
    w = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 5 * responses))
    y = np.einsum("nij,ijq->nq", x, w.reshape(4, 5, responses)) + 1.0
    y = y + 0.1 * rng.standard_normal(y.shape)
    return x, y[:, 0] if responses == 1 else y


def _fitted(model: Any, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    model.fit(x, y)
    return {
        **read_result(model.result_),
        "structure_": read_structure(model.structure_),
        "score": float(model.score(x, y)),
        "predicted": [v.item() for v in np.ravel(model.predict(x[:3]))],
    }


@golden("estimators/regressor")
def _regressor(folder: Path) -> dict[str, Any]:
    return _fitted(tg.TNRegressor(random_state=0), *_regression())


@golden("estimators/regressor-many-responses")
def _regressor_many(folder: Path) -> dict[str, Any]:
    x, y = _regression(2)
    model = tg.TNRegressor(random_state=0, dims=(4, 5), effort="fast", max_parameters=40)
    return _fitted(model, x.reshape(150, 20), y)


@golden("estimators/regressor-structure")
def _regressor_structure(folder: Path) -> dict[str, Any]:
    model = tg.TNRegressor(random_state=0, structure=tg.Structure((4, 5), {(0, 1): 2}), ridge=1e-3)
    return _fitted(model, *_regression())


def _classes() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(8).uniform(-1, 1, (160, 3))
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "opposite")


@golden("estimators/classifier")
def _classifier(folder: Path) -> dict[str, Any]:
    x, y = _classes()
    model = tg.TNClassifier(random_state=0, effort="fast", max_steps=2)
    found = _fitted(model, x, y)
    return {**found, "probabilities": read_numbers(model.predict_proba(x[:3]))}


@golden("estimators/classifier-structure")
def _classifier_structure(folder: Path) -> dict[str, Any]:
    x, y = _classes()
    shape = tg.Structure((2, 2, 2, 2), {(0, 1): 2, (1, 3): 2, (2, 3): 2})
    model = tg.TNClassifier(random_state=0, structure=shape, feature_map="cosine", training=_training())
    return _fitted(model, x, y)


# -- layers --------------------------------------------------------------------------------------------


def _layers() -> nn.Module:
    first = tg.nn.TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), random_state=0)
    last = tg.nn.TNLinear(16, 4, in_dims=(4, 4), out_dims=(2, 2), paired=False, random_state=1)
    return nn.Sequential(first, nn.ReLU(), last)


def _vectors(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 16)).astype(np.float32)
    labels = 2 * (x[:, 0] * x[:, 5] > 0) + (x[:, 1] + x[:, 2] > 0)
    return torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64))


def _grow(**options: Any) -> Any:
    training = tg.TrainingOptions(optimizer="adam", learning_rate=0.01, epochs=8, candidate_epochs=1)
    settings: dict[str, Any] = {"training": training, "max_steps": 2, "batch_size": 64, "random_state": 0}
    return tg.nn.grow(_layers(), _vectors(192, 0), _vectors(96, 1), **(settings | options))


def _accuracy(model: nn.Module) -> float:
    x, y = _vectors(200, 2)
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


@golden("nn/grow")
def _nn_grow(folder: Path) -> dict[str, Any]:
    result = _grow()
    result.save(folder / "model.safetensors")
    loaded = tg.nn.GrowResult.load(folder / "model.safetensors", _layers())
    return {**read_grown(result), "accuracy": _accuracy(result.model), "loaded": read_grown(loaded)}


@golden("nn/grow-score-layers-final")
def _nn_grow_score(folder: Path) -> dict[str, Any]:
    result = _grow(
        score="accuracy", layers=["0"], edge_score="per_parameter", final_epochs=2, max_steps=1, edges="chain"
    )
    return {**read_grown(result), "accuracy": _accuracy(result.model)}


@golden("nn/grow-checkpoint")
def _nn_grow_checkpoint(folder: Path) -> dict[str, Any]:
    first = _grow(checkpoint=folder / "run.ckpt", max_steps=1, layers=["0"])
    second = _grow(checkpoint=folder / "run.ckpt", max_steps=2, layers=["0"])
    return {"first": read_grown(first), "second": read_grown(second)}


def _trained() -> nn.Module:
    rng = np.random.default_rng(9)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5))
    with torch.no_grad():
        for layer in model[::2]:
            rows, columns = layer.weight.shape
            weight = rng.standard_normal((rows, 6)) @ rng.standard_normal((6, columns))
            weight += 0.2 * rng.standard_normal((rows, columns))
            layer.weight.copy_(torch.from_numpy(weight / np.linalg.norm(weight) * 6))
            layer.bias.copy_(torch.from_numpy(0.1 * rng.standard_normal(rows)))
        pairs = [np.kron(rng.standard_normal((8, 8)), rng.standard_normal((8, 8))) for _ in range(2)]
        model[0].weight.copy_(torch.from_numpy(sum(pairs) / 16 + 0.01 * rng.standard_normal((64, 64))))
    return model


COMPRESS: dict[str, Any] = {
    "min_size": 1000,
    "measure": False,
    "effort": "fast",
    "dims": {"0": ((8, 8), (8, 8)), "2": ((64,), (8, 6))},
    "paired": False,
    "random_state": 0,
}


def _outputs(model: nn.Module) -> list[float]:
    rows = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32))
    return read_numbers(model(rows))


@golden("nn/compress")
def _nn_compress(folder: Path) -> dict[str, Any]:
    model = _trained()
    result = tg.nn.compress(model, max_error=0.2, **COMPRESS)
    result.save(folder / "model.safetensors")
    loaded = tg.nn.load_compressed(folder / "model.safetensors", model)
    return {**read_compressed(result), "outputs": _outputs(result.model), "loaded": _outputs(loaded.model)}


@golden("nn/compress-calibration")
def _nn_compress_calibration(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((120, 64)) * np.linspace(0.1, 2, 64)).astype(np.float32)
    result = tg.nn.compress(_trained(), max_ratio=0.4, calibration=torch.from_numpy(rows), **COMPRESS)
    return {**read_compressed(result), "outputs": _outputs(result.model)}


@golden("nn/compress-budget-checkpoint")
def _nn_compress_budget(folder: Path) -> dict[str, Any]:
    runs = [
        tg.nn.compress(_trained(), max_parameters=3000, checkpoint=folder / "run.ckpt", **COMPRESS)
        for _ in "ab"
    ]
    return {"first": read_compressed(runs[0]), "second": read_compressed(runs[1])}


@golden("nn/from-linear")
def _nn_from_linear(folder: Path) -> dict[str, Any]:
    linear = _trained()[0]
    structure = tg.Structure.tensor_train((16, 16, 16), 4)
    layer = tg.nn.TNLinear.from_linear(
        linear, in_dims=(4, 4, 4), out_dims=(4, 4, 4), structure=structure, random_state=0
    )
    found = {"layer": read_network(layer.network), "outputs": _outputs(layer), "size": layer.num_parameters}
    layer.grow_edge(0, 2, noise=0.1, random_state=0)
    return {**found, "grown": read_network(layer.network), "dense": read_numbers(layer.to_linear().weight[0])}


# -- baselines -----------------------------------------------------------------------------------------

BASELINES: dict[str, dict[str, Any]] = {
    "cp": {"max_error": 0.2},
    "tucker": {"max_error": 0.2},
    "tt": {"max_error": 0.2},
    "tt_svd": {"max_error": 0.2, "order": "best"},
    "hosvd": {"max_error": 0.2},
    "greedy": {"max_error": 0.2},
    "random_walk": {"max_error": 0.2, "max_evaluations": 8},
    "genetic": {"rank": 2, "population": 6, "generations": 2, "max_evaluations": 10},
    "tnls": {"max_rank": 2, "samples": 4, "iterations": 2},
    "tnale": {"max_rank": 2, "rounds": 1},
    "svd_ins_tn": {"max_rank": 2, "sparsity": 1e-2, "iterations": 20},
}
RIVALS = tg.Structure.tensor_ring((4, 4, 3, 3), 2)

for _name in BASELINES:
    simple(
        f"baselines/{_name}",
        lambda name=_name: tg.baselines.run(name, noisy(RIVALS, 0.02), random_state=0, **BASELINES[name]),
    )
COMPLETIONS: dict[str, dict[str, Any]] = {
    "cp": {"rank": 2},
    "tucker": {"rank": 2},
    "tt_als": {"ranks": (1, 2)},
    "tr_als": {"ranks": (1, 2)},
}
for _name in COMPLETIONS:
    simple(
        f"baselines/complete-{_name}",
        lambda name=_name: tg.baselines.run(
            name,
            noisy(SMALL),
            seen(SMALL.dims, 0.8),
            truth=planted(SMALL),
            random_state=0,
            **COMPLETIONS[name],
        ),
    )


@golden("baselines/names")
def _baseline_names(folder: Path) -> dict[str, Any]:
    return {
        "decomposition": sorted(tg.baselines.DECOMPOSITION),
        "completion": sorted(tg.baselines.COMPLETION),
    }


# -- command line --------------------------------------------------------------------------------------

# What differs from run to run, or says where the code lies.
CHANGING = ("seconds", "version", "device")


def cli(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: exit code, standard output, standard error."""
    from tensorgrow.cli import main

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["tensorgrow", *arguments]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv = before
    return int(code), out.getvalue(), err.getvalue()


def _document(*arguments: str) -> dict[str, Any]:
    code, out, err = cli(*arguments, "--json")
    if code:
        return {"exit_code": code, "message": err}
    return _without(json.loads(out))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without(v) for k, v in value.items() if k not in CHANGING}
    return [_without(v) for v in value] if isinstance(value, list) else value


@golden("cli/decompose-show-reconstruct")
def _cli_decompose(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    made = _document("decompose", "x.npy", "-e", "0.1", "--effort", "fast", "--report", "x.html")
    shown = _document("show", "x.safetensors")
    rebuilt = _document("reconstruct", "x.safetensors", "-o", "y.npy", "-p", "20")
    values = read_numbers(np.load(folder / "y.npy")[0, 0]) if (folder / "y.npy").exists() else []
    files = sorted(p.name for p in folder.iterdir())
    return {"decompose": made, "show": shown, "reconstruct": rebuilt, "values": values, "files": files}


@golden("cli/picture")
def _cli_picture(folder: Path) -> dict[str, Any]:
    from PIL import Image

    t = np.linspace(0, 1, 16)
    grey = 0.5 + 0.3 * np.sin(9 * t[:, None]) * np.cos(5 * t[None, :])
    Image.fromarray(np.rint(255 * np.stack([grey, 0.8 * grey, 1 - grey], 2)).astype(np.uint8)).save(
        "photo.png"
    )
    made = _document("decompose", "photo.png", "-e", "0.1", "--effort", "fast", "-o", "back.png")
    return {"decompose": made, "files": sorted(p.name for p in folder.iterdir())}


@golden("cli/complete")
def _cli_complete(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    made = _document("complete", "x.npy", "--observed", "0.8", "--effort", "fast")
    return {"complete": made, "files": sorted(p.name for p in folder.iterdir())}


@golden("cli/fit")
def _cli_fit(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    np.save(folder / "mask.npy", seen(SMALL.dims, 0.8))
    return {
        "dense": _document("fit", "x.npy", "-s", "ring", "--rank", "2"),
        "masked": _document("fit", "x.npy", "-s", "train", "--rank", "2,3", "--mask", "mask.npy"),
        "from_file": _document("fit", "x.npy", "-s", "x.safetensors", "-o", "again.safetensors"),
    }


@golden("cli/compare")
def _cli_compare(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    return _document("compare", "x.npy", "-e", "0.2", "--effort", "fast", "--quiet")


@golden("cli/checkpoint")
def _cli_checkpoint(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    line = ("decompose", "x.npy", "-e", "0.1", "--effort", "fast", "--checkpoint", "run.ckpt")
    return {"first": _document(*line), "second": _document(*line)}


@golden("cli/help")
def _cli_help(folder: Path) -> dict[str, Any]:
    code, out, _ = cli("--help")
    return {"exit_code_of_help": code, "commands": [c for c in _COMMANDS if c in out]}


_COMMANDS = (
    "demo decompose complete fit reconstruct show compare report reproduce version".split()  # noqa: SIM905
)
