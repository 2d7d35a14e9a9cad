"""What does a GPU bring, from which size on, and does `device="auto"` choose well?

Claims measured:

* sweeps: a sweep at ranks 8 on a 1024x1024x1024 float32 tensor takes at most 3x two streaming reads of the
  target on an H200; seconds per sweep on CPU and GPU from 7^5 to that size, chains and rings.
* runs: whole runs of `decompose` (fast, at most 10 steps) on low-rank tensors with noise, data on the CPU:
  where the GPU starts to win, and that `device="auto"` costs at most 1.5x the better one.

Needs torch, numpy, scipy, opt_einsum and safetensors only, and starts no new measurement after
`--budget-seconds`; called again, it goes on with the rest. Without a GPU it measures the CPU alone;
`--max-entries` makes it small.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TENSORGROW_THREADS", "0")  # the CPU may use all its cores

from _common import Case, Results, Row, make_parser, median, open_results, print_table, run_cases

# isort: split
import torch

import tensorgrow as tg
from _measure import clear_plans, low_rank_plus_noise, sweep_seconds, synchronize
from tensorgrow.data.devices import free_memory
from tensorgrow.objectives import DenseLeastSquares

PARTS = ("sweeps", "runs")
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
NOISE = 0.03
MAX_ERROR = 0.05
MAX_STEPS = 10
READS_CLAIM, AUTO_CLAIM = 3.0, 1.5
DOUBLE_ENTRIES = 256**3
RUN_ENTRIES = 512**3
# Above, a run is long beside its first calls, and a run that does not count would cost too much.
WARM_UP_ENTRIES = 10**7


def devices() -> list[str]:
    """CPU, and the GPU where there is one."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def make_target(shape: tuple[int, ...], dtype: str, device: str) -> torch.Tensor:
    """A ring of rank 4 with noise, made where random numbers are fast and brought to `device`."""
    maker = devices()[-1]
    ring = tg.Structure.tensor_ring(shape, 4)
    return low_rank_plus_noise(ring, noise=NOISE, dtype=getattr(torch, dtype), device=maker).to(device)


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
    for _ in range(2):
        action()
    synchronize(x.device)
    times = []
    for _ in range(repeats):
        if x.is_cuda:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            action()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        else:
            begin = time.perf_counter()
            action()
            times.append(time.perf_counter() - begin)
    found = median(times)
    assert found is not None
    return found


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
        timed_run(x, device, params["max_seconds"])  # first calls are not part of the measurement
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < params["repeats"] and (
            not times or time.perf_counter() - begin < params["budget"]
        ):
            seconds, result = timed_run(x, device, params["max_seconds"])
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


def timed_run(x: torch.Tensor, device: str, max_seconds: float) -> tuple[float, tg.Result]:
    """One run, with cold plans, until its result is there."""
    clear_plans()
    synchronize(devices()[-1])
    begin = time.perf_counter()
    result = tg.decompose(
        x,
        max_error=MAX_ERROR,
        max_steps=MAX_STEPS,
        max_seconds=max_seconds,
        effort="fast",
        random_state=0,
        device=device,
        progress=False,
    )
    synchronize(devices()[-1])
    return time.perf_counter() - begin, result


# -- cases ---------------------------------------------------------------------------------------------


def make_cases(args: argparse.Namespace, part: str) -> list[Case]:
    """Cases of one part from small to large; sweeps on the GPU before those on the CPU."""
    cases = []
    for device in reversed(devices()) if part == "sweeps" else [""]:
        for name, shape in SHAPES.items():
            entries = math.prod(shape)
            if entries > min(args.max_entries, 1 << 40 if part == "sweeps" else RUN_ENTRIES):
                continue
            for dtype in ("float32", "float64") if entries <= DOUBLE_ENTRIES else ("float32",):
                params: Row = {"shape": list(shape), "dtype": dtype, "budget": args.budget}
                if part == "sweeps":
                    params["device"] = device
                    cases.append(Case(f"sweeps/{device}/{dtype}/{name}", params))
                elif dtype == "float32" or entries <= 128**3:
                    params |= {"repeats": args.repeats, "max_seconds": args.max_seconds_per_run}
                    cases.append(Case(f"runs/{dtype}/{name}", params))
    return cases


def within_budget(worker: Callable[[Row], Row], deadline: float) -> Callable[[Row], Row]:
    """The same worker, which does nothing any more when the time is spent."""

    def guarded(params: Row) -> Row:
        if time.perf_counter() > deadline:
            return {"skipped": "the time of the whole script was spent"}
        return worker(params)

    return guarded


# -- report --------------------------------------------------------------------------------------------


def _measured(results: Results, prefix: str) -> dict[str, Row]:
    """Measured cases by what follows `prefix` in their key, small ones first."""
    found = {k.removeprefix(prefix): r for k, r in results.cases.items() if k.startswith(prefix)}
    done = {k: r for k, r in found.items() if "failed" not in r and "skipped" not in r}
    return dict(sorted(done.items(), key=lambda item: (item[0].split("/")[0], item[1]["entries"])))


def sweep_table(results: Results) -> list[Row]:
    """One row per tensor and form with the times on both devices."""
    on = {device: _measured(results, f"sweeps/{device}/") for device in ("cpu", "cuda")}
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
    for key, case in _measured(results, "runs/").items():
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


def report(results: Results) -> None:
    """Write the summary and print the tables."""
    sweeps, runs = sweep_table(results), run_table(results)
    chains = [r for r in sweeps if r["form"] == "chain"]
    largest = [r["cuda_over_two_reads"] for r in chains if r["tensor"] == "float32/1024^3"]
    ratios = [r["auto_over_best"] for r in runs]
    summary: Row = {
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
    results.summarise(summary)
    print()
    for table in (sweeps, runs):
        if table:
            print_table(list(table[0]), [list(r.values()) for r in table])
    print_table(["claim", "value"], [(k, v) for k, v in summary.items() if not isinstance(v, list)])


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "gpu", PARTS)
    parser.add_argument("--max-entries", type=int, default=1024**3, help="largest tensor")
    parser.add_argument("--repeats", type=int, default=3, help="whole runs per device")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds per measurement, about")
    parser.add_argument("--budget-seconds", type=float, default=290.0, help="start nothing new after this")
    parser.add_argument("--max-seconds-per-run", type=float, default=25.0, help="limit of one whole run")
    return parser.parse_args()


def main() -> None:
    """Measure the chosen parts and report."""
    args = arguments()
    deadline = time.perf_counter() + args.budget_seconds
    results = open_results(args, args.only)

    def line(row: Row) -> str:
        if "skipped" in row:
            return f"skipped: {row['skipped']}"
        return ", ".join(
            f"{k} {v['seconds']:.3g} s" for k, v in row.items() if isinstance(v, dict) and "seconds" in v
        )

    for part, worker in (("sweeps", measure_sweeps), ("runs", measure_runs)):
        if part in args.only:
            run_cases(results, make_cases(args, part), within_budget(worker, deadline), report=line)
    report(results)


if __name__ == "__main__":
    main()
