"""Runs on tensors that are known."""

from __future__ import annotations

import inspect
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg

from .reading import read_network, read_numbers, read_result
from .registry import LAZY, RING, SMALL, TRAIN, TUCKER, golden, noisy, planted, seen, simple, start

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
