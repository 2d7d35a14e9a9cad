"""Tensors larger than memory: same results, seconds per pass, scaling over workers, latency, GPU.

Parts (``--only``):

* same: dense, zarr, dask threads and a cluster of two processes on a tensor that fits.
* disk: a zarr tensor of ``--gigabytes`` written to ``--folder`` (deleted afterwards), decomposed in a process
  that may take 1 GB; the page cache is emptied before every pass.
* video: the same with the frames of a real video, repeated.
* workers: weak and strong scaling over one and two workers; with every message of dask delayed.
* gpu: a tensor of 32 GB on the GPU and in host memory (needs only torch, NumPy and opt_einsum).

    python -m benchmarks scale --only same disk workers
    python -m benchmarks scale --only gpu
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row

from ..benchmark import Benchmark, BenchmarkSettings, Option
from . import agreement, disk, gpu, workers

__all__ = ["BENCHMARK"]


def worker_cases(settings: BenchmarkSettings) -> Iterator[Case]:
    """Strong scaling, weak scaling, and latency."""
    base = [160, 96, 64, 128]
    for count in (1, 2):
        same: Row = {"workers": count, "shape": base, "latency": 0.0, "repeats": settings["repeats"]}
        yield Case(f"workers/strong/{count}", same)
        yield Case(f"workers/weak/{count}", {**same, "shape": [base[0] // 2 * count, *base[1:]]})
        for delay in (0.001, 0.01, 0.05):
            yield Case(f"workers/latency {delay}/{count}", {**same, "latency": delay})


def gpu_cases(settings: BenchmarkSettings) -> Iterator[Case]:
    """On the device and from host memory; without a GPU everything runs on the CPU, for trying it out."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = {"side": settings["side"], "device": device, "max_seconds": settings["max_seconds"]}
    for where, method in (
        ("device", "stream"),
        ("device", "compress"),
        ("host", "compress"),
        ("host", "stream"),
    ):
        yield Case(f"gpu/{where}/{method}", {**base, "where": where, "method": method})


def disk_case(settings: BenchmarkSettings, kind: str, gigabytes: float, max_error: float) -> Case:
    """One tensor on disk."""
    params = {"threads": settings["read_threads"], "max_seconds": 600.0, "kind": kind}
    return Case(f"disk/{kind}", {**params, "gigabytes": gigabytes, "max_error": max_error})


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Cases of the chosen parts."""
    cases = []
    if "same" in settings.parts:
        cases.append(Case("same/ring", {"seed": 0}))
    if "disk" in settings.parts:
        cases.append(disk_case(settings, "smooth", settings["gigabytes"], 0.01))
    if "video" in settings.parts:
        settings.folder("video")  # refused before anything is run
        cases.append(disk_case(settings, "video", settings["video_gigabytes"], 0.1))
    if "workers" in settings.parts:
        cases += worker_cases(settings)
    if "gpu" in settings.parts:
        cases += gpu_cases(settings)
    return cases


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Run one case; where a tensor lay on disk is no part of the result."""
    if case.part == "disk":
        video = settings.folder("video") if case.params["kind"] == "video" else None
        return disk.measure_disk(case.params, settings["folder"], video)
    measure = {"same": agreement.measure_agreement, "workers": workers.measure_workers, "gpu": gpu.measure}
    return measure[case.part](case.params)


def same_table(results: Results) -> list[Row]:
    """One tensor computed in several places."""
    return [
        {
            "place": name,
            "same structure": "yes" if v["same_structure"] else "**no**",
            "same steps": "yes" if v["same_path"] else "**no**",
            "error": v["relative_error"],
            "error less that of dense": v["error_difference"],
            "passes": v["passes"],
            "s": v["seconds"],
        }
        for row in results.rows("same/")
        for name, v in row.items()
        if isinstance(v, dict) and "same_path" in v
    ]


def disk_table(results: Results) -> list[Row]:
    """Tensors of which the memory holds a part."""
    return [
        {
            "tensor": f"{row['params']['kind']}, {'x'.join(map(str, row['shape']))}",
            "GB": row["bytes"] / 1e9,
            "GB resident": row["max_resident_bytes"] / 1e9,
            "GB before it": row["bytes_before"] / 1e9,
            "error": row["relative_error"],
            "parameters": f"{row['parameters']:,}",
            "s": row["seconds"],
            "passes": len(row["passes"]),
            "s per pass": row["seconds_per_pass"],
            "s per plain read": row["seconds_per_plain_read"],
            "pass / read": row["pass_over_read"],
        }
        for row in results.rows("disk/")
    ]


def workers_table(results: Results) -> list[Row]:
    """One and two workers; "rest" is the share of the time that is neither reading nor computing."""
    return [
        {
            "case": key.split("/")[1],
            "workers": row["params"]["workers"],
            "GB": row["bytes"] / 1e9,
            **{
                name: value
                for kind in ("sketch", "sweep")
                for name, value in (
                    (f"{kind}, s per pass", row[kind]["seconds_per_pass"]),
                    (f"{kind}, rest %", 100 * row[kind]["rest"]),
                )
            },
        }
        for key, row in results.finished("workers/").items()
    ]


def gpu_table(results: Results) -> list[Row]:
    """A cube on a GPU and beside it."""
    return [
        {
            "tensor": "on the device" if row["params"]["where"] == "device" else "in host memory",
            "way": row["params"]["method"],
            "s": row["seconds"],
            "limit, s": row["params"]["max_seconds"],
            "passes": row["passes"],
            "growths": row["growths"],
            "parameters": f"{row['parameters']:,}",
            "error": row["relative_error"],
            "stopped by": row["stop"],
            "GB read per s": row["bytes_per_second"] / 1e9,
        }
        for row in results.rows("gpu/")
    ]


def report(results: Results) -> Report:
    """What was claimed."""
    out = Report("Tensors larger than memory")
    out.summary = summary = {}
    for key, row in results.finished().items():
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
    out.tabulate_rows("One tensor in several places", same_table(results))
    out.tabulate_rows("From disk, within a limit of memory", disk_table(results))
    out.tabulate_rows("Workers, and messages that are delayed", workers_table(results))
    out.tabulate_rows("On a GPU and in host memory", gpu_table(results))
    out.tabulate("Claims", ["what", "value"], list(summary.items()))
    return out


BENCHMARK = Benchmark(
    "scale",
    "tensors larger than memory: same results, seconds per pass beside plain reads, workers, latency, GPU",
    cases,
    work,
    report,
    parts=("same", "disk", "video", "workers", "gpu"),
    options=(
        Option("gigabytes", 8.0, "size of the tensor on disk, in GiB", quick=0.05),
        Option("video_gigabytes", 8.0, "the same for the video", quick=0.05),
        Option("folder", None, "where to write it", kind=str),
        Option("read_threads", 2, "blocks worked on at once"),
        Option("repeats", 2, "sketches and sweeps timed per worker case", quick=1),
        Option("side", 2048, "side of the cube on the GPU", quick=64),
        Option("max_seconds", 30.0, "limit of one run on the GPU", quick=2.0),
    ),
)
