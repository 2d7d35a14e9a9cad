"""What does a GPU bring, from which size on, and does `device="auto"` choose well?

Claims measured:

* sweeps: a sweep at ranks 8 on a 1024x1024x1024 float32 tensor takes at most 3x two streaming reads of the
  target on an H200; seconds per sweep on CPU and GPU from 7^5 to that size, chains and rings.
* runs: whole runs of `decompose` (fast, at most 10 steps) on low-rank tensors with noise, data on the CPU:
  where the GPU starts to win, and that `device="auto"` costs at most 1.5x the better one.

Needs torch, numpy, scipy, opt_einsum and safetensors only. With `--stop-after SECONDS` the rest is left for
the next call. Without a GPU it measures the CPU alone; `--max-entries` makes it small.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tensorgrow as tg
from tensorgrow.contraction import clear_plans
from tensorgrow.data.devices import free_memory
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, median
from tensorgrow.objectives import DenseLeastSquares

from .benchmark import Benchmark, BenchmarkSettings, Option
from .timing import call_seconds, low_rank_plus_noise, sweep_seconds

__all__ = ["BENCHMARK"]

SHAPES = {
    "7^5": (7,) * 5,
    "4^8": (4,) * 8,
    "64^3": (64,) * 3,
    "128^3": (128,) * 3,
    "256^3": (256,) * 3,
    "512^3": (512,) * 3,
    "1024^3": (1024,) * 3,
}
RANK = 8
READS_CLAIM, AUTO_CLAIM = 3.0, 1.5


def devices() -> list[str]:
    """CPU, and the GPU where there is one."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def make_target(shape: tuple[int, ...], dtype: str, device: str) -> torch.Tensor:
    """A ring of rank 4 with noise, made where random numbers are fast and brought to `device`."""
    maker = devices()[-1]
    ring = tg.Structure.tensor_ring(shape, 4)
    return low_rank_plus_noise(ring, noise=0.03, dtype=getattr(torch, dtype), device=maker).to(device)


# -- sweeps --------------------------------------------------------------------------------------------


def measure_sweeps(params: Row) -> Row:
    """Seconds per sweep of a chain and a ring of rank 8, beside two reads of the target."""
    device = params["device"]
    x = make_target(tuple(params["shape"]), params["dtype"], device)
    row: Row = {"entries": x.numel(), "two_reads_seconds": 2.0 * read_seconds(x)}
    release_memory()
    objective = DenseLeastSquares(x)
    for form, structure in (("chain", chain(x.shape)), ("ring", tg.Structure.tensor_ring(x.shape, RANK))):
        needed, free = objective.memory_needed(structure), free_memory(x.device)
        if needed > free:
            row[form] = {"skipped": f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"}
            continue
        seconds, sweeps = sweep_seconds(objective, structure, budget=params["budget"])
        row[form] = {
            "seconds": seconds,
            "size": structure.num_parameters,
            "flops": objective.sweep_flops(structure),
            "sweeps_per_fit": sweeps,
            "over_two_reads": seconds / row["two_reads_seconds"],
        }
    return row


def read_seconds(x: torch.Tensor, repeats: int = 10) -> float:
    """Time to stream the target once: by a sum, or by half of a copy where that is faster."""
    buffer = torch.empty_like(x)
    return min(_seconds(x.sum, x, repeats), _seconds(lambda: buffer.copy_(x), x, repeats) / 2)


def _seconds(action: Callable[[], Any], x: torch.Tensor, repeats: int) -> float:
    """Median time of a call, by events on the GPU and by the clock on the CPU; two calls do not count."""
    if not x.is_cuda:
        return statistics.median([call_seconds(action, x.device) for _ in range(repeats + 2)][2:])
    times = []
    for _ in range(repeats + 2):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        action()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1e3)
    return statistics.median(times[2:])


def chain(shape: Sequence[int]) -> tg.Structure:
    """A tensor train of rank 8, less where the legs at its ends cannot use so much."""
    cuts = range(1, len(shape))
    ranks = [min(RANK, math.prod(shape[:k]), math.prod(shape[k:])) for k in cuts]
    return tg.Structure.tensor_train(shape, ranks)


def release_memory() -> None:
    """Give back what torch keeps for later, so that free memory is what it seems."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# -- whole runs ----------------------------------------------------------------------------------------


def measure_runs(params: Row) -> Row:
    """Whole runs on each device and with `device="auto"`, data on the CPU, plans forgotten before each."""
    x = make_target(tuple(params["shape"]), params["dtype"], "cpu")
    row: Row = {"entries": x.numel()}
    for device in [*devices(), "auto"]:
        time_run(x, device, params["max_seconds"])  # first calls are not part of the measurement
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < params["repeats"] and (
            not times or time.perf_counter() - begin < params["budget"]
        ):
            seconds, result = time_run(x, device, params["max_seconds"])
            times.append(seconds)
        row[device] = {
            "seconds": median(times),
            "repeats": len(times),
            "size": result.num_parameters,
            "error": result.relative_error,
            "stop": result.stop.name,
            "computed_on": result.info["device"],
        }
    return row


def time_run(x: torch.Tensor, device: str, max_seconds: float) -> tuple[float, tg.Result]:
    """One run, with cold plans, until its result is there."""
    clear_plans()
    results: list[tg.Result] = []

    def run() -> None:
        options = {"effort": "fast", "random_state": 0, "device": device, "progress": False}
        results.append(tg.decompose(x, max_error=0.05, max_steps=10, max_seconds=max_seconds, **options))

    return call_seconds(run, devices()[-1]), results[0]


# -- cases ---------------------------------------------------------------------------------------------


def cases(settings: BenchmarkSettings) -> list[Case]:
    """From small to large; sweeps on the GPU before those on the CPU, then whole runs."""
    cases = []
    for part in settings.parts:
        for device in reversed(devices()) if part == "sweeps" else [""]:
            for name, shape in SHAPES.items():
                entries = math.prod(shape)
                if entries > min(settings["max_entries"], math.inf if part == "sweeps" else 512**3):
                    continue
                for dtype in ("float32", "float64") if entries <= 256**3 else ("float32",):
                    params: Row = {"shape": list(shape), "dtype": dtype, "budget": settings["budget"]}
                    if part == "sweeps":
                        cases.append(Case(f"sweeps/{device}/{dtype}/{name}", {**params, "device": device}))
                    elif dtype == "float32" or entries <= 128**3:
                        params |= {"repeats": settings["repeats"]}
                        params |= {"max_seconds": settings["max_seconds_per_run"]}
                        cases.append(Case(f"runs/{dtype}/{name}", params))
    return cases


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Measure sweeps or runs."""
    return measure_sweeps(case.params) if case.part == "sweeps" else measure_runs(case.params)


# -- report --------------------------------------------------------------------------------------------


def _rows_by_tensor(results: Results, prefix: str) -> dict[str, Row]:
    """Measured cases by what follows `prefix` in their key, small ones first."""
    done = {k.removeprefix(prefix): r for k, r in results.finished(prefix).items()}
    return dict(sorted(done.items(), key=lambda item: (item[0].split("/")[0], item[1]["entries"])))


def sweep_table(results: Results) -> list[Row]:
    """One row per tensor and form with the times on both devices."""
    on = {device: _rows_by_tensor(results, f"sweeps/{device}/") for device in ("cpu", "cuda")}
    table = []
    for key, any_row in {**on["cuda"], **on["cpu"]}.items():
        for form in ("chain", "ring"):
            row: Row = {"tensor": key, "form": form, "entries": any_row["entries"]}
            for device, rows in on.items():
                found = rows.get(key, {}).get(form, {})
                row[f"{device}_seconds"] = found.get("seconds")
                row[f"{device}_over_two_reads"] = found.get("over_two_reads")
            table.append(row)
    return table


def run_table(results: Results) -> list[Row]:
    """One row per tensor with the times of whole runs."""
    table = []
    for key, case in _rows_by_tensor(results, "runs/").items():
        row: Row = {"tensor": key, "entries": case["entries"]}
        row |= {f"{d}_seconds": case.get(d, {}).get("seconds") for d in ("cpu", "cuda", "auto")}
        best = min(s for s in (row["cpu_seconds"], row["cuda_seconds"]) if s is not None)
        row |= {"auto_used": case["auto"]["computed_on"], "auto_over_best": row["auto_seconds"] / best}
        table.append(row)
    return table


def gpu_wins_from(table: list[Row], dtype: str) -> int | None:
    """Fewest entries from which on the GPU is always faster; None where it is not, or was not measured."""
    both = [
        r
        for r in table
        if r["tensor"].startswith(dtype) and None not in (r["cpu_seconds"], r["cuda_seconds"])
    ]
    wins: int | None = None
    for row in sorted(both, key=lambda r: -r["entries"]):
        if row["cuda_seconds"] >= row["cpu_seconds"]:
            break
        wins = row["entries"]
    return wins


def _for_people(row: Row) -> Row:
    """Columns with names that can be read."""
    words = {"cpu": "CPU", "cuda": "GPU", "seconds": "s", "over": "/"}
    named = {" ".join(words.get(w, w) for w in name.split("_")): v for name, v in row.items()}
    return named | {"entries": f"{row['entries']:,}"}


def report(results: Results) -> Report:
    """Sweeps, runs and claims."""
    out = Report("CPU and GPU")
    sweeps, runs = sweep_table(results), run_table(results)
    chains = [r for r in sweeps if r["form"] == "chain"]
    largest = [r["cuda_over_two_reads"] for r in chains if r["tensor"] == "float32/1024^3"]
    ratios = [r["auto_over_best"] for r in runs]
    out.summary = summary = {
        "sweeps": sweeps,
        "runs": runs,
        "largest_over_two_reads": largest[0] if largest else None,
        "largest_over_two_reads_claim": READS_CLAIM,
        "worst_auto_over_best": max(ratios, default=None),
        "worst_auto_over_best_claim": AUTO_CLAIM,
    }
    for dtype in ("float32", "float64"):
        summary[f"gpu_wins_sweeps_from_entries_{dtype}"] = gpu_wins_from(chains, dtype)
        summary[f"gpu_wins_runs_from_entries_{dtype}"] = gpu_wins_from(runs, dtype)
    out.tabulate_rows("Sweeps", [_for_people(r) for r in sweeps])
    out.tabulate_rows("Whole runs", [_for_people(r) for r in runs])
    claims = [(k, v) for k, v in summary.items() if not isinstance(v, list)]
    out.tabulate("Claims", ["claim", "value"], claims)
    return out


BENCHMARK = Benchmark(
    "gpu",
    "seconds per sweep and per run on CPU and GPU from 7^5 to 1024^3, two reads of the target, device='auto'",
    cases,
    work,
    report,
    parts=("sweeps", "runs"),
    uses=("tasks.fit", "tasks.decompose"),
    options=(
        Option("max_entries", 1024**3, "largest tensor", quick=70_000),
        Option("repeats", 3, "whole runs per device", quick=1),
        Option("budget", 1.0, "seconds per measurement, about", quick=0.1),
        Option("max_seconds_per_run", 25.0, "limit of one whole run", quick=2.0),
    ),
    default_threads=0,  # the CPU may use all its cores
)
