"""Which tensorisation suits a photograph: sizes of networks at an error, and errors of completions.

The photograph ships with matplotlib. Every case is one tensorisation:

* decomposition: grey, 256x256, parameters at a relative error of 0.1;
* completion: colour, 512x512x3, from 10 % of its entries: error and PSNR on the whole picture.

Runs end at a limit of CPU seconds, so that a busy machine does not change them.
"""

from __future__ import annotations

import time
from typing import Any

from _common import Case, Row, make_parser, open_results, print_table, run_cases, stopwatch

# isort: split
import numpy as np

import tensorgrow as tg
from tensorgrow.cli.outputs import peak_signal_to_noise
from tensorgrow.data.tensorization import plan, train_size

PARTS = ("decomposition", "completion")
MAX_ERROR = 0.1
OBSERVED = 0.1
CPU_SECONDS = {"decomposition": 30.0, "completion": 60.0}
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


def run(params: Row) -> Row:
    """One tensorisation of one task."""
    part, x = params["part"], photograph(params["part"])
    how = plan(x.shape, (params["digits"],) * 2 + ((3,),) * (x.ndim - 2), order=params["order"])
    tensor = how.apply(x)
    begin = time.process_time()

    def late(_: tg.Step) -> bool:
        return time.process_time() - begin > params["cpu_seconds"]

    options: dict[str, Any] = {"random_state": 0, "callbacks": late, "progress": False}
    with stopwatch() as watch:
        if part == "completion":
            known = how.apply(np.random.default_rng(0).random(x.shape) < OBSERVED)
            result = tg.complete(tensor, known, truth=tensor, **options)
        else:
            result = tg.decompose(tensor, max_error=MAX_ERROR, **options)
    found = tg.detensorize(result.network, how).numpy()
    return {
        "dims": how.dims,
        "size": result.num_parameters,
        "error": float(np.linalg.norm(found - x) / np.linalg.norm(x)),
        "psnr": peak_signal_to_noise(found, x),
        "test_error": result.test_error,
        "train": None if part == "completion" else train_size(_tensor(tensor), MAX_ERROR),
        "stop": result.stop.name,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
    }


def _tensor(x: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(x)


def main() -> None:
    """Run what is not finished yet and print the tables."""
    args = make_parser(__doc__, "tensorisation", PARTS).parse_args()
    results = open_results(args, args.only)
    cases = [
        Case(
            f"{part}/{order}-{'x'.join(map(str, digits))}",
            {"part": part, "order": order, "digits": digits, "cpu_seconds": CPU_SECONDS[part]},
        )
        for part in args.only
        for order, digits in RECIPES[part]
    ]
    run_cases(results, cases, run, report=lambda r: f"{r['size']:,} parameters, error {r['error']:.4f}")
    for part in args.only:
        rows = [results.cases[c.key] for c in cases if c.params["part"] == part]
        shown = [
            (
                r["params"]["order"],
                "x".join(map(str, r["dims"])),
                r["size"],
                r["error"],
                r["psnr"],
                r["cpu_seconds"],
                r["stop"],
            )
            for r in rows
            if "failed" not in r
        ]
        print_table(("order", "tensor", "parameters", "error", "PSNR", "CPU s", "stop"), shown)


if __name__ == "__main__":
    main()
