"""Parts `disk` and `video`: a tensor on disk, decomposed in a process that may take 1 GB."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.data.blocks import ThreadReducer
from tensorgrow.experiments.harness import Row

from .. import ROOT
from .arrays import drop_from_cache, files_of, read_rate, scratch, write_smooth, write_video

__all__ = ["decompose_within_limit", "measure_disk"]

# Bytes that the process may take beyond what it has when it starts.
LIMIT = 1_000_000_000


def status(name: str) -> int:
    """Bytes that Linux counts for this process; `ru_maxrss` would count those of its parent too."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def page_faults() -> int:
    """Pages of memory that this process had mapped anew."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def decompose_within_limit(path: str, max_error: float, threads: int, max_seconds: float) -> None:
    """In a process of its own: decompose a zarr array within the memory limit, and print what it took."""
    import zarr

    array = zarr.open_array(path, mode="r")
    files = files_of(Path(path))
    passes: list[Row] = []
    plain = ThreadReducer.reduce

    def reduce(self: Any, kernel: Any) -> Any:
        drop_from_cache(files)
        begin, cpu, faults = time.perf_counter(), time.process_time(), page_faults()
        found = plain(self, kernel)
        seconds, spent = time.perf_counter() - begin, time.process_time() - cpu
        row = {"kernel": type(kernel).__name__, "seconds": seconds, "cpu_seconds": spent}
        passes.append(row | {"page_faults": page_faults() - faults})
        return found

    ThreadReducer.reduce = reduce  # type: ignore[method-assign]
    threading.stack_size(1 << 20)  # Linux counts stacks in full, used or not
    a = np.ones((600, 600), dtype=np.float32)
    with ThreadPoolExecutor(4) as pool:  # BLAS takes a buffer per thread, which is not ours to limit
        list(pool.map(lambda _: a @ a, range(16)))
    used = status("VmData")
    resource.setrlimit(resource.RLIMIT_DATA, (used + LIMIT, used + LIMIT))
    begin, cpu = time.perf_counter(), time.process_time()
    r = tg.decompose(
        tg.Blocks(array, threads=threads),
        max_error=max_error,
        max_seconds=max_seconds,
        memory_limit=LIMIT,
        random_state=0,
        effort="fast",
    )
    row = {
        "shape": list(array.shape),
        "seconds": time.perf_counter() - begin,
        "passes": passes,
        "method": r.info["method"],
        "multilinear_ranks": r.info.get("multilinear_ranks"),
        "blocks": r.info["blocks"],
        "parameters": r.num_parameters,
        "relative_error": r.relative_error,
        "stop": r.stop.name,
        "cpu_seconds": time.process_time() - cpu,
        "max_resident_bytes": status("VmHWM"),
        "bytes_before": used,
    }
    print(json.dumps(row))


def measure_disk(params: Row, folder_of: str | None, data: Path | None) -> Row:
    """Write a tensor, measure plain reads of it, and decompose it in a limited process."""
    gigabytes = params["gigabytes"]
    with scratch(folder_of, gigabytes) as folder:
        begin = time.perf_counter()
        if params["kind"] == "smooth":
            array = write_smooth(folder, gigabytes)
        else:
            array = write_video(folder, gigabytes, data)
        os.sync()
        written = time.perf_counter() - begin
        path = folder / f"{params['kind']}.zarr"
        files = files_of(path)
        rates = [read_rate(files, params["threads"]) for _ in range(2)]
        call = f"{str(path)!r}, {params['max_error']}, {params['threads']}, {params['max_seconds']}"
        code = f"from benchmarks.scale import disk; disk.decompose_within_limit({call})"
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(tg.__file__).parents[1])])}
        env.pop("MALLOC_TRIM_THRESHOLD_", None)  # dask sets it for its workers, and for this process too
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        if done.returncode:
            raise RuntimeError(done.stderr[-3000:])
        row: Row = json.loads(done.stdout.splitlines()[-1])
        rates.append(read_rate(files, params["threads"]))
    size = array.size * 4
    rate = float(np.median(rates))
    per_pass = sum(p["seconds"] for p in row["passes"]) / len(row["passes"])
    by_kernel = {p["kernel"]: p["seconds"] * rate / size for p in row["passes"]}
    return row | {
        "bytes": size,
        "write_seconds": written,
        "read_bytes_per_second": rates,
        "seconds_per_pass": per_pass,
        "seconds_per_plain_read": size / rate,
        "pass_over_read": per_pass * rate / size,
        "pass_over_read_by_kernel": by_kernel,
        "cpu_seconds_per_pass": sum(p["cpu_seconds"] for p in row["passes"]) / len(row["passes"]),
    }
