"""What the parts of the completion benchmark share: timed runs, masks, memory, claims."""

from __future__ import annotations

import argparse
import functools
import math
import resource
import sys
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _common import ROOT, Results, Row, Stopwatch, stopwatch

# isort: split
import numpy as np
import torch

import tensorgrow as tg
from _measure import clear_plans, synchronize
from _rivals import NotInstalledError

SCRATCH = ROOT / ".bench"
LABELS = {
    "ours": "tensorgrow",
    "tt": "TT-ALS",
    "tr": "TR-ALS",
    "cp": "CP",
    "tucker": "Tucker",
    "means": "means",
}


@dataclass(frozen=True)
class Folders:
    """Where data is read, and where pictures and figures go."""

    data: Path
    pictures: Path
    figures: Path


def folders(args: argparse.Namespace, data: Path) -> Folders:
    """Pictures are scratch files; those of different result files are kept apart."""
    return Folders(data, args.pictures or SCRATCH / args.out.stem, args.figures)


# -- runs ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def warm_up(device: str) -> None:
    """One small run per process and device: lazy imports and first calls are not part of any measurement."""
    x = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 4, 4, 4), 2), random_state=0).to_dense()
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.9
    tg.complete(x, mask, random_state=0, device=device, max_steps=2, progress=False)


def timed(device: str, action: Callable[[], Any]) -> tuple[Any, Stopwatch]:
    """What `action` gives, with cold plans, and its time; the GPU is waited for."""
    warm_up(device)
    clear_plans()
    synchronize(device)
    with stopwatch() as watch:
        found = action()
        synchronize(device)
    return found, watch


def timing_row(watch: Stopwatch, max_seconds: float | None) -> Row:
    """Wall and CPU seconds, and whether the limit ended the run."""
    return {
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
        "hit_limit": bool(max_seconds is not None and watch.wall >= max_seconds),
    }


def timed_complete(x: Any, mask: Any = None, *, device: str, **options: Any) -> tuple[tg.Result, Row]:
    """`tensorgrow.complete` and the values that every part reports about it."""
    warm_up(device)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result, watch = timed(device, lambda: tg.complete(x, mask, device=device, progress=False, **options))
    return result, {
        "size": result.num_parameters,
        "observed_error": result.relative_error,
        "train_error": result.train_error,
        "validation_error": result.validation_error,
        **timing_row(watch, options.get("max_seconds")),
        "steps": len(result.history),
        "stop": result.stop.name,
        "ridge": result.info.get("ridge"),
        "ranks": result.structure.to_dict()["ranks"],
        "warnings": [f"{w.category.__name__}: {w.message}" for w in raised],
    }


def skippable(worker: Callable[..., Row]) -> Callable[..., Row]:
    """A rival whose package is missing leaves a note; the case is tried again next time."""

    @functools.wraps(worker)
    def run(*args: Any, **keywords: Any) -> Row:
        try:
            return worker(*args, **keywords)
        except NotInstalledError as error:
            return {"skipped": str(error)}

    return run


def observed_mask(shape: tuple[int, ...], rate: float, seed: int) -> np.ndarray:
    """Exactly this share of the entries, uniformly at random."""
    size = math.prod(shape)
    mask = np.zeros(size, dtype=bool)
    mask[np.random.default_rng(seed).permutation(size)[: round(rate * size)]] = True
    return mask.reshape(shape)


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


def finished(results: Results, prefix: str) -> dict[str, Row]:
    """Rows under `prefix` that neither failed nor were skipped."""
    return {
        k: r
        for k, r in sorted(results.cases.items())
        if k.startswith(prefix) and "failed" not in r and "skipped" not in r
    }


def best_rows(results: Results, part: str, item: str, metric: str) -> dict[tuple[str, str], tuple[str, Row]]:
    """Best case per device and method of an item; keys are ``part/device/item/method/variant``."""
    best: dict[tuple[str, str], tuple[str, Row]] = {}
    for key, row in finished(results, f"{part}/").items():
        _, device, of, method, _ = key.split("/")
        group = device, method
        if of == item and (group not in best or row[metric] < best[group][1][metric]):
            best[group] = key, row
    return best


def items_of(results: Results, part: str) -> list[str]:
    """Items of a part that have a row."""
    return sorted({k.split("/")[2] for k in finished(results, f"{part}/")})


def claim(text: str, limit: Any, measured: Any, met: bool | None, cases: int) -> Row:
    """A line of the list of claims; None where nothing was measured."""
    return {"claim": text, "limit": limit, "measured": measured, "cases": cases, "met": met}


def at_most(text: str, limit: float, values: Iterable[float]) -> Row:
    """The claim that the largest of some values stays within a limit."""
    found = list(values)
    worst = max(found, default=None)
    return claim(text, limit, worst, None if worst is None else worst <= limit, len(found))
