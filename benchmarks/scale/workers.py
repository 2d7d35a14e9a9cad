"""Part `workers`: seconds per pass with one and two workers, and with a slow network."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tensorgrow as tg
from tensorgrow.data.blocks import ClientReducer, Form, as_source
from tensorgrow.data.blocks.readers import BLOCK_ENTRIES
from tensorgrow.experiments.harness import Row
from tensorgrow.objectives import BlockedLeastSquares
from tensorgrow.objectives.sketch import find_ranges

from .. import ROOT
from .arrays import scratch, smooth_block
from .kernels import Timed, TimedSource
from .latency import latency

__all__ = ["measure_workers"]


def measure_workers(params: Row) -> Row:
    """Seconds per pass of sketches and sweeps with so many workers, and what they go into."""
    import distributed
    import zarr

    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(Path(tg.__file__).parents[1])])
    workers, shape = params["workers"], tuple(params["shape"])
    structure = tg.Structure.tensor_ring(shape, 4)
    spent: list[Row] = []

    class Reducer(ClientReducer):
        def reduce(self, kernel: Any) -> Any:
            found = super().reduce(Timed(kernel))
            spent.append({name: float(found.sums.pop(name)) for name in ("kernel", "read")})
            return found

    def measure(call: Callable[[], Any]) -> Row:
        """Of the time of all workers: shares in kernels, in reads, and in everything else."""
        call()  # workers import what they need, files are cached
        spent.clear()
        begin = time.perf_counter()
        for _ in range(params["repeats"]):
            call()
        seconds = (time.perf_counter() - begin) / len(spent)
        shares = {n: sum(s[n] for s in spent) / len(spent) / (workers * seconds) for n in ("kernel", "read")}
        return {"seconds_per_pass": seconds, **shares, "rest": 1.0 - sum(shares.values())}

    with scratch(None, 1.0) as folder:
        array = zarr.create_array(
            str(folder / "x.zarr"), shape=shape, chunks=(8, *shape[1:]), dtype="float32", compressors=None
        )
        for start in range(0, shape[0], 8):
            array[start : start + 8] = smooth_block(shape, start, start + 8)
        source = TimedSource(as_source(array))
        boxes = source.inner.boxes(math.prod((8, *shape[1:])), BLOCK_ENTRIES)
        with (
            latency(params["latency"]) as preload,
            distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                dashboard_address=":0",
                memory_limit=0,
                preload=preload,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            objective = BlockedLeastSquares(Reducer(source, boxes, Form("float32"), client), norm=1.0)
            network = tg.TensorNetwork.random(structure, random_state=0, dtype=torch.float32)
            arrays = objective.to_arrays(network)
            sketch = measure(lambda: find_ranges(objective.reducer))
            sweep = measure(lambda: objective.sweep(structure, arrays, 1e-7))
    return {"bytes": math.prod(shape) * 4, "blocks": len(boxes), "sketch": sketch, "sweep": sweep}
