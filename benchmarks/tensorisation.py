"""Which tensorisation suits a photograph: sizes of networks at an error, and errors of completions.

The photograph ships with matplotlib. Every case is one tensorisation:

* decomposition: grey, 256x256, parameters at a relative error of 0.1;
* completion: colour, 512x512x3, from 10 % of its entries: error and PSNR on the whole picture.

Runs end at a limit of CPU seconds, so that a busy machine does not change them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.data.tensorization import plan, train_size
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option
from .completion.quality import psnr, relative_error

__all__ = ["BENCHMARK"]

MAX_ERROR = 0.1
# Arrangements and the digits of both long axes.
RECIPES: dict[str, list[tuple[str, tuple[int, ...]]]] = {
    "decomposition": [
        ("interleaved", (4, 4, 4, 4)),
        ("interleaved", (16, 16)),
        ("grouped", (2,) * 8),
        ("grouped", (4, 4, 4, 4)),
    ],
    "completion": [
        ("grouped", (8, 8, 8)),
        ("grouped", (32, 16)),
        ("interleaved", (16, 32)),
        ("interleaved", (8, 8, 8)),
    ],
}


def photograph(part: str) -> np.ndarray:
    """The largest square at the top, from 0 to 1: 512x512x3, or block means of its grey, 256x256."""
    from matplotlib.cbook import get_sample_data
    from PIL import Image

    with Image.open(str(get_sample_data("grace_hopper.jpg", asfileobj=False))) as file:
        picture = np.asarray(file)[:512, :512] / 255.0
    return picture if part == "completion" else picture.mean(2).reshape(256, 2, 256, 2).mean((1, 3))


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One tensorisation of one task."""
    params = case.params
    part, x = params["part"], photograph(params["part"])
    how = plan(x.shape, (params["digits"],) * 2 + ((3,),) * (x.ndim - 2), order=params["order"])
    tensor = how.apply(x)
    begin = time.process_time()

    def late(_: tg.Step) -> bool:
        return time.process_time() - begin > params["cpu_seconds"]

    options: dict[str, Any] = {"random_state": 0, "callbacks": late, "progress": False}
    with stopwatch() as watch:
        if part == "completion":
            known = how.apply(np.random.default_rng(0).random(x.shape) < 0.1)
            result = tg.complete(tensor, known, truth=tensor, **options)
        else:
            result = tg.decompose(tensor, max_error=MAX_ERROR, **options)
    found = tg.detensorize(result.network, how).numpy()
    return {
        "dims": how.dims,
        "size": result.num_parameters,
        "error": relative_error(found, x),
        "psnr": psnr(found, x),
        "test_error": result.test_error,
        "train": None if part == "completion" else train_size(torch.from_numpy(tensor), MAX_ERROR),
        "stop": result.stop.name,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
    }


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every tensorisation of the chosen tasks."""
    return [
        Case(
            f"{part}/{order}-{'x'.join(map(str, digits))}",
            {"part": part, "order": order, "digits": digits, "cpu_seconds": settings[f"{part}_seconds"]},
        )
        for part in settings.parts
        for order, digits in RECIPES[part]
    ]


def report(results: Results) -> Report:
    """One table per task."""
    out = Report("Tensorisations of a photograph")
    for (part,), rows in results.groups("part").items():
        out.tabulate(
            part,
            ("order", "tensor", "train", "parameters", "error", "PSNR", "CPU s", "ended"),
            [
                (
                    r["params"]["order"],
                    "x".join(map(str, r["dims"])),
                    f"{r['train']:,}" if r["train"] else None,
                    f"{r['size']:,}",
                    r["error"],
                    r["psnr"],
                    r["cpu_seconds"],
                    "by the limit" if r["stop"] == tg.StopReason.CALLBACK.name else "by itself",
                )
                for r in sorted(rows, key=lambda r: r["size"])
            ],
        )
    return out


BENCHMARK = Benchmark(
    "tensorisation",
    "networks of one photograph under different tensorisations: size at an error, error of completions",
    cases,
    work,
    report,
    parts=tuple(RECIPES),
    uses=("tasks.decompose", "tasks.complete"),
    options=(
        Option("decomposition_seconds", 30.0, "limit of CPU seconds of a decomposition", quick=1.0),
        Option("completion_seconds", 60.0, "limit of CPU seconds of a completion", quick=1.0),
    ),
)
