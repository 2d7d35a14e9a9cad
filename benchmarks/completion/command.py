"""Part `command`: ``tensorgrow complete FILE --observed SHARE`` as users call it, on colour pictures.

The four test images at 256x256 and as 2x2 block means at 128x128, rounded to 8 bits, at 10 and 30 %. A
process of its own on two cores, its start included in the time; errors on hidden entries are those of its
JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from ..benchmark import BenchmarkSettings
from .pictures import IMAGES, load
from .runs import at_most, claim

__all__ = ["block_means", "cases", "claims", "run", "run_command", "table"]

RATES = (10, 30)
SIDES = (128, 256)
CORES = 2
SECONDS = 30.0  # at 128x128


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Both sizes of every picture at both rates."""
    return [
        Case(
            f"command/cpu/{source}-{side}@{rate}/ours/default",
            {"source": source, "side": side, "rate": rate},
            alone=True,
            threads=CORES,
        )
        for source in (IMAGES[-1:] if settings.quick else IMAGES)
        for side in ((32,) if settings.quick else SIDES)
        for rate in (RATES[1:] if settings.quick else RATES)
    ]


def block_means(picture: np.ndarray, side: int) -> np.ndarray:
    """A picture of another size, each pixel the mean of a square of pixels, as whole 255ths."""
    block = picture.shape[0] // side
    squares = picture.reshape(side, block, side, block, -1)
    return np.asarray(np.round(255.0 * squares.mean((1, 3))) / 255.0)


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Run the command on one picture."""
    return run_command(block_means(load(settings, params["source"]), params["side"]), params["rate"] / 100)


def run_command(picture: np.ndarray, share: float) -> Row:
    """Run the command on values from 0 to 1, of which it sees a share."""
    from PIL import Image

    line = [sys.executable, "-m", "tensorgrow", "complete", "photo.png", "--observed", f"{share:g}", "--json"]
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    source = str(Path(tg.__file__).resolve().parents[1])
    environment = {**os.environ, **dict.fromkeys(names, str(CORES)), "PYTHONPATH": source}
    before = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as folder:
        Image.fromarray(np.round(255.0 * picture).astype(np.uint8)).save(Path(folder) / "photo.png")
        os.sched_setaffinity(0, sorted(before)[:CORES])  # the child inherits it
        try:
            with stopwatch() as watch:
                done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
        finally:
            os.sched_setaffinity(0, before)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    document = json.loads(done.stdout)
    others = {m["method"]: m["error"] for m in document["interpolation"]["methods"]}
    return {
        "error": document["test_error"],
        "linear": others["linear interpolation"],
        "cubic": others["cubic interpolation"],
        "psnr": document["psnr"],
        "size": document["num_parameters"],
        "members": len(document["members"] or [None]),
        "observed": document["observed"],
        "seconds": watch.wall,
        "stop": document["stop"]["name"],
    }


def claims(results: Results) -> list[Row]:
    """A smaller hidden error than linear interpolation everywhere; the time at 128x128."""
    rows = results.rows("command/")
    below, count = sum(r["error"] < r["linear"] for r in rows), len(rows)
    text = "command: pictures with a smaller hidden error than linear interpolation"
    small = (r["seconds"] for r in rows if r["params"]["side"] == SIDES[0])
    return [
        claim(text, count, below, below == count if rows else None, count),
        at_most(f"command, {SIDES[0]}x{SIDES[0]}, two cores: seconds", SECONDS, small),
    ]


def table(results: Results) -> list[Row]:
    """One line per picture."""
    columns = ("error", "linear", "cubic", "psnr", "members", "size", "seconds")
    return [
        {"picture": key.split("/")[2], **{c: row[c] for c in columns}}
        for key, row in results.finished("command/").items()
    ]
