"""Part `same`: structure, error and path of one tensor, computed in four places."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.harness import Row

from .arrays import scratch

__all__ = ["measure_agreement"]


def measure_agreement(params: Row) -> Row:
    """Structure, error and path of one tensor, computed in four places."""
    import dask.array as da
    import distributed
    import zarr

    hidden = tg.Structure.tensor_ring((32, 30, 28, 24), (3, 4, 3, 4))
    x = tg.TensorNetwork.random(hidden, random_state=params["seed"]).to_dense().numpy()
    x += 1e-3 * np.linalg.norm(x) / math.sqrt(x.size) * np.random.default_rng(0).standard_normal(x.shape)
    arguments: Row = {"max_error": 0.01, "random_state": 0, "effort": "fast"}
    blockwise = arguments | {"memory_limit": 3e7}
    results: dict[str, tuple[Any, float]] = {}

    def run(name: str, call: Callable[..., Any], *args: Any, **keywords: Any) -> None:
        begin = time.perf_counter()
        results[name] = call(*args, **keywords), time.perf_counter() - begin

    with scratch(None, 0.01) as folder:
        stored = zarr.create_array(str(folder / "x.zarr"), shape=x.shape, chunks=(16, 15, 28, 24), dtype="f8")
        stored[:] = x
        run("dense", tg.decompose, x, **arguments)
        run("zarr", tg.decompose, tg.Blocks(stored, method="stream", threads=2), **blockwise)
        lazy = tg.Blocks(da.from_zarr(stored), method="stream", threads=2)
        run("dask threads", tg.decompose, lazy, **blockwise)
        run("compress", tg.decompose, tg.Blocks(x, method="compress"), **blockwise)
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
            ) as cluster,
            distributed.Client(cluster),
        ):
            run("cluster", tg.decompose, tg.Blocks(stored, method="stream"), **blockwise)
    dense = results["dense"][0]
    return {
        name: {
            "same_structure": r.structure == dense.structure,
            "same_path": [(s.kind, s.edge) for s in r.history] == [(s.kind, s.edge) for s in dense.history],
            "error_difference": abs(r.relative_error - dense.relative_error),
            "relative_error": r.relative_error,
            "passes": r.info.get("passes"),
            "blocks": r.info.get("blocks"),
            "seconds": seconds,
        }
        for name, (r, seconds) in results.items()
    }
