"""How does the time of an ALS sweep grow with the tensor and with the network?

Claims measured: on large targets a sweep stays within 4x of the floor on the CPU. The floor is the larger of

* the bytes of the target, read twice, at the measured bandwidth of a sum over a big array, and
* the flops of the compiled plan at the measured rate of a 1500^3 double matrix product,

measured with the same number of threads. Two series, float64: chains of rank 8 of order 3 and 4 with 10^4 to
10^8 entries, and a 4^8 tensor with a graph found on an image whose ranks grow. Each is run with one thread
and with all, or with `--threads` alone. Draws docs/figures/scaling.png.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.figures import pyplot, save_figure
from tensorgrow.experiments.harness import Case, Results, Row, median
from tensorgrow.objectives import DenseLeastSquares

from .benchmark import Benchmark, BenchmarkSettings, Option
from .timing import IMAGE_RANKS, call_seconds, low_rank_plus_noise, sweep_seconds

__all__ = ["BENCHMARK"]

RANK = 8
CLAIM = 4.0
# Entries from which a target counts as large: it no longer fits into the caches.
LARGE = 10**7
# What the ranks of the graph found on an image are multiplied by.
SCALES = (0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0)


# -- floor ---------------------------------------------------------------------------------------------


def measure_machine(params: Row) -> Row:
    """Bandwidth of reading and rate of multiplying: the best seen, so that the floor is a floor."""
    x = torch.ones(params["read_entries"], dtype=torch.float64)
    side = params["matmul_side"]
    a, b = (torch.randn(side, side, dtype=torch.float64) for _ in range(2))
    # The first call is slower than the others and does not count.
    read = min([call_seconds(x.sum, "cpu") for _ in range(8)][1:])
    multiply = min([call_seconds(lambda: a @ b, "cpu") for _ in range(6)][1:])
    return {
        "bytes_per_second": x.numel() * x.element_size() / read,
        "flops_per_second": 2.0 * side**3 / multiply,
    }


def measure_sweep(params: Row) -> Row:
    """Seconds of a sweep and what its plan does."""
    structure = tg.Structure.from_dict(params["structure"])
    planted = tg.Structure.tensor_train(structure.dims, 4)
    x = low_rank_plus_noise(planted, noise=0.1, dtype=torch.float64, device="cpu")
    objective = DenseLeastSquares(x)
    seconds, sweeps = sweep_seconds(objective, structure, budget=params["budget"])
    return {
        "entries": x.numel(),
        "size": structure.num_parameters,
        "seconds": seconds,
        "sweeps_per_fit": sweeps,
        "bytes_read_twice": 2 * x.numel() * x.element_size(),
        "flops": objective.sweep_flops(structure),
        "on_numpy": objective.use_numpy,
    }


# -- cases ---------------------------------------------------------------------------------------------


def cases(settings: BenchmarkSettings) -> list[Case]:
    """The machine and both series, for one thread and for all."""
    every = {1, len(os.sched_getaffinity(0))} if settings.threads is None else {settings.threads}
    return [c for threads in sorted(every) for c in _cases(settings, threads)]


def _cases(settings: BenchmarkSettings, threads: int) -> list[Case]:
    budget, most = settings["budget"], settings["max_entries"]
    machine = {"read_entries": min(4 * 10**7, max(most, 10**5)), "matmul_side": settings["matmul_side"]}
    made: list[tuple[str, Row]] = [(f"machine/threads{threads}", machine)]
    if "entries" in settings.parts:
        for power in range(8, 17):  # half decades from 10^4 to 10^8
            for order in (3, 4):
                side = round(10 ** (power / 2 / order))
                if side**order <= most * 1.05:
                    structure = tg.Structure.tensor_train((side,) * order, RANK)
                    params = {"structure": structure.to_dict(), "budget": budget}
                    made.append((f"entries/threads{threads}/order{order}/{side**order:09}", params))
    if "parameters" in settings.parts:
        for scale in SCALES:
            ranks = {e: max(1, math.floor(scale * r + 0.5)) for e, r in IMAGE_RANKS.items()}
            structure = tg.Structure((4,) * 8, ranks)
            if structure.num_parameters <= settings["max_parameters"]:
                params = {"structure": structure.to_dict(), "budget": budget}
                made.append((f"parameters/threads{threads}/{structure.num_parameters:06}", params))
    return [Case(key, params, alone=True, threads=threads) for key, params in made]


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Measure the machine or a sweep."""
    return measure_machine(case.params) if case.part == "machine" else measure_sweep(case.params)


# -- report --------------------------------------------------------------------------------------------


def with_floor(results: Results, key: str) -> Row | None:
    """A case with its floor and how far above it the sweep is."""
    part, threads, series = key.split("/")[:3]
    row, machine = results.cases[key], results.cases.get(f"machine/{threads}", {"failed": ""})
    if "failed" in row or "failed" in machine:
        return None
    read = row["bytes_read_twice"] / machine["bytes_per_second"]
    arithmetic = row["flops"] / machine["flops_per_second"]
    return {
        "part": part,
        "threads": int(threads.removeprefix("threads")),
        "series": series.replace("order", "order ") if part == "entries" else "image graph",
        "entries": row["entries"],
        "size": row["size"],
        "seconds": row["seconds"],
        "floor": max(read, arithmetic),
        "bound_by": "reading" if read > arithmetic else "arithmetic",
        "ratio": row["seconds"] / max(read, arithmetic),
    }


def rows_with_floor(results: Results) -> list[Row]:
    """Every sweep beside its floor."""
    keys = sorted(k for k in results.cases if k.startswith(("entries/", "parameters/")))
    return [r for r in (with_floor(results, k) for k in keys) if r is not None]


def report(results: Results) -> Report:
    """Every sweep beside its floor, and the worst ratio."""
    out = Report("Seconds per sweep")
    rows = rows_with_floor(results)
    large = [r for r in rows if r["part"] == "entries" and r["entries"] >= LARGE]
    worst = max((r["ratio"] for r in large), default=None)
    out.summary = {
        "machine": {k.split("/")[1]: r for k, r in results.cases.items() if k.startswith("machine/")},
        "rows": rows,
        "worst_ratio_large": worst,
        "median_ratio_large": median(r["ratio"] for r in large),
        "claim": CLAIM,
        "claim_met": None if worst is None else worst <= CLAIM,
    }
    columns = ["series", "threads", "entries", "size", "seconds", "floor", "bound_by", "ratio"]
    out.tabulate("Sweeps and floors", columns, [[r[c] for c in columns] for r in rows])
    out.say(f"worst ratio to the floor from {LARGE:.0e} entries on: {worst} (claim {CLAIM})")
    return out


def draw(results: Results, settings: BenchmarkSettings) -> list[Path]:
    """Seconds per sweep and floors, log-log."""
    plt = pyplot()
    rows = rows_with_floor(results)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for axis, part, column in ((axes[0], "entries", "entries"), (axes[1], "parameters", "size")):
        chosen = [r for r in rows if r["part"] == part]
        for number, (series, threads) in enumerate(sorted({(r["series"], r["threads"]) for r in chosen})):
            line = sorted(
                (r[column], r["seconds"], r["floor"])
                for r in chosen
                if (r["series"], r["threads"]) == (series, threads)
            )
            x, seconds, floor = zip(*line)
            plural = "thread" if threads == 1 else "threads"
            axis.loglog(x, seconds, f"C{number}o-", label=f"{series}, {threads} {plural}")
            axis.loglog(x, floor, f"C{number}--", linewidth=1)
        axis.plot([], [], "k--", linewidth=1, label="floor")
        axis.set_ylabel("seconds per sweep")
        axis.grid(True, which="both", alpha=0.3)
        axis.legend()
    axes[0].set_xlabel(f"entries of the target (chains of rank {RANK})")
    axes[1].set_xlabel("parameters (target 4^8)")
    return save_figure(figure, settings.figures / "scaling.png")


BENCHMARK = Benchmark(
    "scaling",
    "seconds per sweep from 10^4 to 10^8 entries and 100 to 30,000 parameters beside the floor",
    cases,
    work,
    report,
    draw,
    parts=("entries", "parameters"),
    uses=("tasks.fit",),
    options=(
        Option("max_entries", 10**8, "largest target", quick=10**5),
        Option("max_parameters", 30_000, "largest network", quick=1_500),
        Option("matmul_side", 1500, "side of the matrices of the rate", quick=300),
        Option("budget", 2.0, "seconds per measurement, about", quick=0.1),
    ),
    default_threads=None,
)
