"""What the parts of the completion benchmark share: timed runs, masks, memory, claims."""

from __future__ import annotations

import functools
import resource
import sys
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import tensorgrow as tg
from tensorgrow.contraction import clear_plans
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Results, Row, stopwatch

from ..timing import synchronize
from .rivals import LABELS

__all__ = [
    "at_most",
    "best_rows",
    "claim",
    "compare",
    "count_wins",
    "in_fresh_process",
    "items_of",
    "peak_bytes",
    "report_claims",
    "time_complete",
    "time_rival",
]

# -- runs ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def warm_up(device: str) -> None:
    """One small run per process and device: lazy imports and first calls are not part of any measurement."""
    x = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 4, 4, 4), 2), random_state=0).to_dense()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.9
    tg.complete(x, mask, random_state=0, device=device, max_steps=2, progress=False)


def _time(device: str, action: Callable[[], Any], max_seconds: float | None) -> tuple[Any, Row]:
    """What `action` returns, with cold plans; its wall and CPU seconds, and whether the limit ended it."""
    warm_up(device)
    clear_plans()
    synchronize(device)
    with stopwatch() as watch:
        value = action()
        synchronize(device)
    return value, {
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
        "hit_limit": max_seconds is not None and watch.wall >= max_seconds,
    }


def time_rival(
    device: str, predict: Callable[[], tuple[Any, Row]], max_seconds: float | None
) -> tuple[Any, Row]:
    """What a rival predicts, and its row; a rival whose package is missing raises `MissingPackageError`."""
    (estimate, row), times = _time(device, predict, max_seconds)
    return estimate, {**row, **times}


def time_complete(x: Any, mask: Any = None, *, device: str, **options: Any) -> tuple[tg.Result, Row]:
    """`tensorgrow.complete` and the values that every part reports about it."""
    limit = options.get("max_seconds")
    warm_up(device)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result, times = _time(
            device, lambda: tg.complete(x, mask, device=device, progress=False, **options), limit
        )
    return result, {
        "size": result.num_parameters,
        "observed_error": result.relative_error,
        "train_error": result.train_error,
        "validation_error": result.validation_error,
        **times,
        "steps": len(result.history),
        "stop": result.stop.name,
        "ridge": result.info.get("ridge"),
        "ranks": result.structure.to_dict()["ranks"],
        "warnings": [f"{w.category.__name__}: {w.message}" for w in raised],
    }


# -- memory --------------------------------------------------------------------------------------------


def peak_bytes() -> int:
    """Most memory this process has held.

    Linux counts what the parent held into `getrusage` of a child, so that the kernel's own mark is preferred.
    """
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        marks = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
        return int(marks[0]) * 1024
    except (OSError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def in_fresh_process(worker: Callable[[Row], Row], params: Row) -> Row:
    """Run one case in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(worker, params).result()


# -- summaries -----------------------------------------------------------------------------------------


def best_rows(results: Results, part: str, item: str, metric: str) -> dict[tuple[str, str], tuple[str, Row]]:
    """Best case per device and method of an item; keys are ``part/device/item/method/variant``."""
    best: dict[tuple[str, str], tuple[str, Row]] = {}
    for key, row in results.finished(f"{part}/").items():
        _, device, of, method, _ = key.split("/")
        group = device, method
        if of == item and (group not in best or row[metric] < best[group][1][metric]):
            best[group] = key, row
    return best


def items_of(results: Results, part: str) -> list[str]:
    """Items of a part that have a row."""
    return sorted({k.split("/")[2] for k in results.finished(f"{part}/")})


def claim(text: str, limit: Any, measured: Any, met: bool | None, cases: int) -> Row:
    """A line of the list of claims; None where nothing was measured."""
    return {"claim": text, "limit": limit, "measured": measured, "cases": cases, "met": met}


def report_claims(report: Report, claims: Iterable[Row]) -> None:
    """Add the list of claims to a report."""
    columns = ("claim", "limit", "measured", "cases")
    rows = [[*(c[n] for n in columns), "met" if c["met"] else "NOT MET"] for c in claims]
    report.tabulate("claims", (*columns, ""), rows)


def at_most(text: str, limit: float, values: Iterable[float]) -> Row:
    """The claim that the largest of some values stays within a limit."""
    numbers = list(values)
    worst = max(numbers, default=None)
    return claim(text, limit, worst, None if worst is None else worst <= limit, len(numbers))


def count_wins(results: Results, part: str, metric: str, device: str) -> list[bool]:
    """For every item with rivals, whether ours has a smaller value than the best of them."""
    wins = []
    for item in items_of(results, part):
        best = best_rows(results, part, item, metric)
        theirs = [row[metric] for (_, method), (_, row) in best.items() if method != "ours"]
        if (device, "ours") in best and theirs:
            wins.append(bool(best[device, "ours"][1][metric] < min(theirs)))
    return wins


def compare(results: Results, part: str, metric: str, name: str, columns: Iterable[str]) -> list[Row]:
    """Every run of ours, and each rival at the rank with the smallest value of a metric."""
    rows = []
    for item in items_of(results, part):
        runs = {k: r for k, r in results.finished(f"{part}/").items() if f"/{item}/ours/" in k}
        best = best_rows(results, part, item, metric)
        runs |= dict(pair for (_, method), pair in best.items() if method != "ours")
        for key, row in runs.items():
            _, device, _, method, variant = key.split("/")
            labels = {name: item, "method": LABELS[method], "variant": variant, "device": device}
            rows.append({**labels, **{c: row[c] for c in columns}})
    return rows
