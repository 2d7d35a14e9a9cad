"""Tensors larger than memory: same results, seconds per pass, scaling over workers, latency, GPU.

Parts (``--only``):

* same: dense, zarr, dask threads and a cluster of two processes on a tensor that fits.
* disk: a zarr tensor of ``--gigabytes`` written to ``--folder`` (deleted afterwards), decomposed in a process
  that may take 1 GB; the page cache is emptied before every pass.
* video: the same with the frames of a real video, repeated.
* workers: weak and strong scaling over one and two workers; with every message of dask delayed.
* gpu: a tensor of 32 GB on the GPU and in host memory (needs only torch, NumPy and opt_einsum).

    python benchmarks/scale.py --only same disk workers
    python benchmarks/scale.py --only gpu
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from _common import Case, Results, Row, data_folder, make_parser, open_results, print_table, run_cases

# isort: split
import numpy as np
import torch

import tensorgrow as tg

PARTS = ("same", "disk", "video", "workers", "gpu")
LIMIT = 1_000_000_000
HERE = Path(__file__).resolve().parent


# -- data ----------------------------------------------------------------------------------------------


def smooth_block(shape: Sequence[int], start: int, stop: int) -> np.ndarray:
    """Rows of a smooth function, 1 / (1 + distance), plus a product of waves, plus noise of 0.1 %."""
    axes = [np.linspace(0.0, 1.0, n, dtype=np.float32) for n in shape]
    axes[0] = axes[0][start:stop]
    parts = [a.reshape([-1 if k == m else 1 for m in range(len(shape))]) for k, a in enumerate(axes)]
    x = 1.0 + parts[0] + parts[1]
    x = x + (parts[2] + parts[3])
    np.reciprocal(x, out=x)
    waves = [np.sin((9.0 + 4 * k) * p) for k, p in enumerate(parts)]
    x += 0.2 * (waves[0] * waves[1]) * (waves[2] * waves[3])
    noise = np.random.default_rng(start).standard_normal(x.shape, dtype=np.float32)
    noise *= 3e-4
    x += noise
    return x


def write_smooth(folder: Path, gigabytes: float) -> Any:
    """Order 4, float32, chunks of at most 33 MB."""
    import zarr

    side = 1 << round(math.log2((gigabytes * 2**30 / 4 * 2) ** 0.25))
    last = max(1, round(gigabytes * 2**30 / 4 / side**3))
    shape = (side, side, side, last)
    chunk = (min(16, side), min(64, side), side, min(32, last))
    array = zarr.create_array(
        str(folder / "smooth.zarr"), shape=shape, chunks=chunk, dtype="float32", compressors=None
    )
    for start in range(0, side, chunk[0]):
        array[start : start + chunk[0]] = smooth_block(shape, start, start + chunk[0])
    return array


def write_video(folder: Path, gigabytes: float, data: Path) -> Any:
    """Frames of a real video, repeated in time."""
    import zarr

    name = sorted((data / "video").glob("*.npz"))[0]
    with np.load(name) as file:
        video = file[file.files[0]]
    height, width, colours, frames = video.shape
    repeats = max(1, round(gigabytes * 2**30 / 4 / video.size))
    shape = (height, width, colours, frames * repeats)
    array = zarr.create_array(
        str(folder / "video.zarr"),
        shape=shape,
        chunks=(height, width, colours, min(frames, 64)),
        dtype="float32",
        compressors=None,
    )
    for k in range(repeats):
        array[..., k * frames : (k + 1) * frames] = video.astype(np.float32)
    return array


def files_of(folder: Path) -> list[Path]:
    """Chunk files of a zarr array."""
    return [p for p in folder.rglob("*") if p.is_file()]


def forget(files: Sequence[Path]) -> None:
    """Drop files from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_rate(files: Sequence[Path], threads: int) -> float:
    """Bytes per second of plain reads that nothing has cached."""
    forget(files)

    def read(path: Path) -> int:
        total = 0
        with path.open("rb", buffering=0) as file:
            while piece := file.read(1 << 23):
                total += len(piece)
        return total

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        size = sum(pool.map(read, files))
    return size / (time.perf_counter() - begin)


@contextmanager
def scratch(folder: str | None, gigabytes: float) -> Iterator[Path]:
    """A folder that is deleted afterwards; refused where the disk is too full."""
    made = Path(tempfile.mkdtemp(dir=folder))
    try:
        free = shutil.disk_usage(made).free
        if free < 1.3 * gigabytes * 2**30:
            raise SystemExit(f"{free / 1e9:.0f} GB are free in {made.parent}; --folder chooses another place")
        yield made
    finally:
        shutil.rmtree(made)


# -- same ----------------------------------------------------------------------------------------------


def measure_same(params: Row) -> Row:
    """Structure, error and path of one tensor, computed in four places."""
    import dask.array as da
    import distributed
    import zarr

    hidden = tg.Structure.tensor_ring((32, 30, 28, 24), (3, 4, 3, 4))
    x = tg.TensorNetwork.random(hidden, random_state=params["seed"]).to_dense().numpy()
    x += 1e-3 * np.linalg.norm(x) / math.sqrt(x.size) * np.random.default_rng(0).standard_normal(x.shape)
    arguments: Row = {"max_error": 0.01, "random_state": 0, "effort": "fast"}
    blockwise = arguments | {"method": "stream", "memory_limit": 3e7}
    found: dict[str, tuple[Any, float]] = {}

    def timed(name: str, call: Any, *given: Any, **keywords: Any) -> None:
        begin = time.perf_counter()
        found[name] = call(*given, **keywords), time.perf_counter() - begin

    with scratch(None, 0.01) as folder:
        stored = zarr.create_array(str(folder / "x.zarr"), shape=x.shape, chunks=(16, 15, 28, 24), dtype="f8")
        stored[:] = x
        timed("dense", tg.decompose, x, **arguments)
        timed("zarr", tg.distributed.decompose, stored, threads=2, **blockwise)
        timed("dask threads", tg.distributed.decompose, da.from_zarr(stored), threads=2, **blockwise)
        timed("compress", tg.distributed.decompose, x, **(blockwise | {"method": "compress"}))
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
            ) as cluster,
            distributed.Client(cluster),
        ):
            timed("cluster", tg.distributed.decompose, stored, **blockwise)
    dense = found["dense"][0]
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
        for name, (r, seconds) in found.items()
    }


# -- disk ----------------------------------------------------------------------------------------------


def status(name: str) -> int:
    """Bytes that Linux counts for this process; `ru_maxrss` would count those of its parent too."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def page_faults() -> int:
    """Pages of memory that this process had mapped anew."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def limited(path: str, max_error: float, threads: int, max_seconds: float) -> None:
    """In a process of its own: decompose a zarr array within the memory limit, and print what it took."""
    import zarr

    from tensorgrow.data.blocks import ThreadReducer

    array = zarr.open_array(path, mode="r")
    files = files_of(Path(path))
    passes: list[Row] = []
    plain = ThreadReducer.reduce

    def reduce(self: Any, kernel: Any) -> Any:
        forget(files)
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
    r = tg.distributed.decompose(
        array,
        max_error=max_error,
        max_seconds=max_seconds,
        memory_limit=LIMIT,
        threads=threads,
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


def measure_disk(params: Row, folder_of: str | None = None) -> Row:
    """Write a tensor, measure plain reads of it, and decompose it in a limited process."""
    gigabytes = params["gigabytes"]
    with scratch(folder_of, gigabytes) as folder:
        begin = time.perf_counter()
        if params["kind"] == "smooth":
            array = write_smooth(folder, gigabytes)
        else:
            array = write_video(folder, gigabytes, data_folder(None))
        os.sync()
        written = time.perf_counter() - begin
        path = folder / f"{params['kind']}.zarr"
        files = files_of(path)
        rates = [read_rate(files, params["threads"]) for _ in range(2)]
        given = f"{str(path)!r}, {params['max_error']}, {params['threads']}, {params['max_seconds']}"
        code = f"import scale; scale.limited({given})"
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(Path(tg.__file__).parents[1])])}
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


# -- workers -------------------------------------------------------------------------------------------


def measure_workers(params: Row) -> Row:
    """Seconds per pass of sketches and sweeps with so many workers, and what they go into."""
    import distributed
    import zarr

    from _scale_kernels import Timed, TimedSource
    from _scale_latency import latency
    from tensorgrow.data.blocks import ClientReducer, Form, as_source
    from tensorgrow.data.blocks.readers import BLOCK_ENTRIES
    from tensorgrow.objectives import BlockedLeastSquares
    from tensorgrow.objectives.sketch import find_ranges

    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(Path(tg.__file__).parents[1])])
    workers, shape = params["workers"], tuple(params["shape"])
    structure = tg.Structure.tensor_ring(shape, 4)
    spent: list[Row] = []

    class Reducer(ClientReducer):
        def reduce(self, kernel: Any) -> Any:
            found = super().reduce(Timed(kernel))
            spent.append({name: float(found.sums.pop(name)) for name in ("kernel", "read")})
            return found

    def timed(call: Any) -> Row:
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
            sketch = timed(lambda: find_ranges(objective.reducer))
            sweep = timed(lambda: objective.sweep(structure, arrays, 1e-7))
    return {"bytes": math.prod(shape) * 4, "blocks": len(boxes), "sketch": sketch, "sweep": sweep}


def worker_cases(args: argparse.Namespace) -> list[Case]:
    """Strong scaling, weak scaling, and latency."""
    base = [160, 96, 64, 128]
    cases = []
    for workers in (1, 2):
        for kind, first in (("strong", base[0]), ("weak", base[0] // 2 * workers)):
            params = {
                "workers": workers,
                "shape": [first, *base[1:]],
                "latency": 0.0,
                "repeats": args.repeats,
            }
            cases.append(Case(f"workers/{kind}/{workers}", params))
        for delay in (0.001, 0.01, 0.05):
            params = {"workers": workers, "shape": base, "latency": delay, "repeats": args.repeats}
            cases.append(Case(f"workers/latency {delay}/{workers}", params))
    return cases


# -- report --------------------------------------------------------------------------------------------


def report(results: Results) -> None:
    """Write the summary and print it."""
    summary: Row = {}
    for key, row in results.cases.items():
        if "failed" in row:
            continue
        if key.startswith("same/"):
            others = [v for v in row.values() if isinstance(v, dict) and "same_path" in v]
            exact = [v for k, v in row.items() if k in ("zarr", "dask threads", "cluster")]
            summary["same_structure"] = all(v["same_structure"] for v in others)
            summary["same_path_blockwise"] = all(v["same_path"] for v in exact)
            summary["largest_error_difference_blockwise"] = max(v["error_difference"] for v in exact)
        for name in ("pass_over_read", "seconds_per_pass", "bytes_per_second"):
            if name in row:
                summary[f"{key}: {name}"] = row[name]
    for kind in ("sketch", "sweep"):
        both = [results.cases.get(f"workers/strong/{n}", {}).get(kind) for n in (1, 2)]
        if all(both):
            speedup = both[0]["seconds_per_pass"] / both[1]["seconds_per_pass"]
            summary[f"workers: speedup of two, {kind}"] = speedup
            summary[f"workers: share neither kernel nor read, {kind}, two workers"] = both[1]["rest"]
    results.summarise(summary)
    print()
    print_table(["what", "value"], list(summary.items()))


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "scale", PARTS)
    parser.add_argument("--gigabytes", type=float, default=8.0, help="size of the tensor on disk, in GiB")
    parser.add_argument("--video-gigabytes", type=float, default=8.0, help="the same for the video")
    parser.add_argument("--folder", default=None, help="where to write it")
    parser.add_argument("--read-threads", type=int, default=2, help="blocks worked on at once")
    parser.add_argument("--repeats", type=int, default=2, help="sketches and sweeps timed per worker case")
    parser.add_argument("--side", type=int, default=2048, help="side of the cube on the GPU")
    parser.add_argument("--max-seconds", type=float, default=30.0, help="limit of one run on the GPU")
    return parser.parse_args()


def gpu_cases(args: argparse.Namespace) -> list[Case]:
    """On the device and from host memory; without a GPU everything runs on the CPU, for trying it out."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = {"side": args.side, "device": device, "max_seconds": args.max_seconds}
    ways = [("device", "stream"), ("device", "compress"), ("host", "compress"), ("host", "stream")]
    return [Case(f"gpu/{w}/{m}", base | {"where": w, "method": m}) for w, m in ways]


def main() -> None:
    """Measure the chosen parts and report."""
    args = arguments()
    results = open_results(args, args.only)
    disk = {"threads": args.read_threads, "max_seconds": 600.0}
    on_disk = partial(measure_disk, folder_of=args.folder)  # where it lay is no part of the result
    if "same" in args.only:
        run_cases(results, [Case("same/ring", {"seed": 0})], measure_same)
    if "disk" in args.only:
        params = disk | {"kind": "smooth", "gigabytes": args.gigabytes, "max_error": 0.01}
        run_cases(results, [Case("disk/smooth", params)], on_disk)
    if "video" in args.only:
        params = disk | {"kind": "video", "gigabytes": args.video_gigabytes, "max_error": 0.1}
        run_cases(results, [Case("disk/video", params)], on_disk)
    if "workers" in args.only:
        run_cases(results, worker_cases(args), measure_workers)
    if "gpu" in args.only:
        from _part_gpu_scale import measure

        run_cases(results, gpu_cases(args), measure)
    report(results)


if __name__ == "__main__":
    main()
