"""How does the time of an ALS sweep grow with the tensor and with the network?

Claims measured: on large targets a sweep stays within 4x of the floor on the
CPU. The floor is the larger of

* the bytes of the target, read twice, at the measured bandwidth of a sum over a big array, and
* the flops of the compiled plan at the measured rate of a 1500^3 double matrix product,

measured with the same number of threads. Two series, float64: chains of rank 8 of order 3 and 4 with 10^4 to
10^8 entries, and a 4^8 tensor with a graph found on an image whose ranks grow. Each is run with one thread
and with all; every number of threads gets a process of its own. Draws docs/figures/scaling.png.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import (
    FIGURES,
    THREADS,
    Case,
    Results,
    Row,
    make_parser,
    median,
    open_results,
    print_table,
    pyplot,
    run_cases,
)

# isort: split
import torch

import tensorgrow as tg
from _measure import IMAGE_RANKS, low_rank_plus_noise, sweep_seconds
from tensorgrow.objectives import DenseLeastSquares

PARTS = ("entries", "parameters")
RANK = 8
NOISE = 0.1
CLAIM = 4.0
# Entries from which a target counts as large: it no longer fits into the caches.
LARGE = 10**7
# What the ranks of the graph found on an image are multiplied by.
SCALES = (0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0)


# -- floor ---------------------------------------------------------------------------------------------


def fastest(action: Callable[[], Any], repeats: int) -> float:
    """Shortest time of several calls after one that does not count."""
    action()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure_machine(params: Row) -> Row:
    """Bandwidth of reading and rate of multiplying: the best seen, so that the floor is a floor."""
    x = torch.ones(params["read_entries"], dtype=torch.float64)
    side = params["matmul_side"]
    a, b = (torch.randn(side, side, dtype=torch.float64) for _ in range(2))
    return {
        "bytes_per_second": x.numel() * x.element_size() / fastest(x.sum, 7),
        "flops_per_second": 2.0 * side**3 / fastest(lambda: a @ b, 5),
    }


def measure_sweep(params: Row) -> Row:
    """Seconds of a sweep and what its plan does."""
    structure = tg.Structure.from_dict(params["structure"])
    planted = tg.Structure.tensor_train(structure.dims, 4)
    x = low_rank_plus_noise(planted, noise=NOISE, dtype=torch.float64, device="cpu")
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


def make_cases(args: argparse.Namespace) -> list[Case]:
    """Both series for the present number of threads."""
    name = f"threads{THREADS}"
    cases = []
    if "entries" in args.only:
        for power in range(8, 17):  # half decades from 10^4 to 10^8
            for order in (3, 4):
                side = round(10 ** (power / 2 / order))
                if side**order <= args.max_entries * 1.05:
                    structure = tg.Structure.tensor_train((side,) * order, RANK)
                    params = {"structure": structure.to_dict(), "budget": args.budget}
                    cases.append(Case(f"entries/{name}/order{order}/{side**order:09}", params))
    if "parameters" in args.only:
        for scale in SCALES:
            ranks = {e: max(1, math.floor(scale * r + 0.5)) for e, r in IMAGE_RANKS.items()}
            structure = tg.Structure((4,) * 8, ranks)
            if structure.num_parameters <= args.max_parameters:
                params = {"structure": structure.to_dict(), "budget": args.budget}
                cases.append(Case(f"parameters/{name}/{structure.num_parameters:06}", params))
    return cases


def machine_case(args: argparse.Namespace) -> Case:
    """The machine with the present number of threads."""
    read = min(4 * 10**7, max(args.max_entries, 10**5))
    return Case(f"machine/threads{THREADS}", {"read_entries": read, "matmul_side": args.matmul_side})


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


def report(results: Results) -> list[Row]:
    """Write the summary, print the table, return its rows."""
    keys = sorted(k for k in results.cases if k.startswith(("entries/", "parameters/")))
    rows = [r for r in (with_floor(results, k) for k in keys) if r is not None]
    large = [r for r in rows if r["part"] == "entries" and r["entries"] >= LARGE]
    worst = max((r["ratio"] for r in large), default=None)
    results.summarise(
        {
            "machine": {k.split("/")[1]: r for k, r in results.cases.items() if k.startswith("machine/")},
            "rows": rows,
            "worst_ratio_large": worst,
            "median_ratio_large": median(r["ratio"] for r in large),
            "claim": CLAIM,
            "claim_met": None if worst is None else worst <= CLAIM,
        }
    )
    columns = ["series", "threads", "entries", "size", "seconds", "floor", "bound_by", "ratio"]
    print()
    print_table(columns, [[r[c] for c in columns] for r in rows])
    print(f"worst ratio to the floor from {LARGE:.0e} entries on: {worst} (claim {CLAIM})")
    return rows


def draw(rows: list[Row], path: Path) -> None:
    """Seconds per sweep and floors, log-log."""
    plt = pyplot()
    if plt is None:
        return
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"drew {path.name}")


# -- command line --------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "scaling", PARTS)
    parser.set_defaults(threads="both")
    parser.add_argument("--max-entries", type=int, default=10**8, help="largest target")
    parser.add_argument("--max-parameters", type=int, default=30_000, help="largest network")
    parser.add_argument("--matmul-side", type=int, default=1500, help="side of the matrices of the rate")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds per measurement, about")
    parser.add_argument("--figure", type=Path, default=FIGURES / "scaling.png", help="where the figure goes")
    return parser.parse_args()


def main() -> None:
    """With a number of threads: measure. Without: start one process for 1 and one for all, then report."""
    args = arguments()
    if args.threads == "both":
        arguments_of_child = [a for a in sys.argv[1:] if a != "both" and a != "--threads"]
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            command = [sys.executable, __file__, *arguments_of_child, "--threads", str(threads)]
            subprocess.run(command, check=True)
        draw(report(Results(args.out)), args.figure)
        return
    mine = [f"{p}/threads{THREADS}" for p in (*args.only, "machine")]
    results = open_results(args, mine)
    run_cases(results, [machine_case(args)], measure_machine)
    run_cases(results, make_cases(args), measure_sweep, report=lambda r: f"{r['seconds']:.3g} s per sweep")


if __name__ == "__main__":
    main()
