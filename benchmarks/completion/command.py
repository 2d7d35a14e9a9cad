"""Part `command`: ``tensorgrow complete FILE --observed SHARE`` as users call it, on colour pictures.

The four test images at 256x256 and as 2x2 block means at 128x128, rounded to 8 bits, at 10 and 30 %. A
process of its own on two cores, its start included in the time; errors on hidden entries are those of its
JSON. That pictures of which less than 15 % is known are smooth by default was chosen on these four, so that
eight others at 128x128 and 10 %, which come with scikit-image, scikit-learn and matplotlib, are completed
with that rule and without (`--prior none`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from ..benchmark import BenchmarkSettings
from .pictures import IMAGES, load
from .runs import at_most, claim

__all__ = ["block_means", "cases", "claims", "run", "run_command", "table"]

# Other pictures: the package they come with, and where in it. The largest square in the middle counts.
OTHERS = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "hopper": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
}
RATES = (10, 30)
SIDES = (128, 256)
CORES = 2
SECONDS = 30.0  # at 128x128


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Both sizes of every picture at both rates, and other pictures with and without the prior."""
    made = [
        (source, side, rate, "default", {})
        for source in (IMAGES[-1:] if settings.quick else IMAGES)
        for side in ((32,) if settings.quick else SIDES)
        for rate in (RATES[1:] if settings.quick else RATES)
    ]
    for source in () if settings.quick else OTHERS:
        for variant, options in (("default", {}), ("no-prior", {"prior": "none"})):
            made.append((source, SIDES[0], RATES[0], variant, options))
    return [
        Case(
            f"command/cpu/{source}-{side}@{rate}/ours/{variant}",
            {"source": source, "side": side, "rate": rate, **options},
            alone=True,
            threads=CORES,
        )
        for source, side, rate, variant, options in made
    ]


def load_other(name: str, side: int) -> np.ndarray:
    """The middle of another picture at a size, as whole 255ths."""
    from PIL import Image

    package, path = OTHERS[name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise tg.MissingPackageError(f"the picture {name} comes with {package}, which is missing")
    picture = Image.open(Path(spec.submodule_search_locations[0]) / path).convert("RGB")
    edge = min(picture.size)
    left, top = ((length - edge) // 2 for length in picture.size)
    square = picture.resize((side, side), Image.Resampling.BOX, (left, top, left + edge, top + edge))
    return np.asarray(square) / 255.0


def block_means(picture: np.ndarray, side: int) -> np.ndarray:
    """A picture of another size, each pixel the mean of a square of pixels, as whole 255ths."""
    block = picture.shape[0] // side
    squares = picture.reshape(side, block, side, block, -1)
    return np.asarray(np.round(255.0 * squares.mean((1, 3))) / 255.0)


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Run the command on one picture."""
    name, side = params["source"], params["side"]
    picture = load_other(name, side) if name in OTHERS else block_means(load(settings, name), side)
    return run_command(picture, params["rate"] / 100, params.get("prior"))


def run_command(picture: np.ndarray, share: float, prior: str | None = None) -> Row:
    """Run the command on values from 0 to 1, of which it sees a share."""
    from PIL import Image

    line = [sys.executable, "-m", "tensorgrow", "complete", "photo.png", "--observed", f"{share:g}", "--json"]
    line += [] if prior is None else ["--prior", prior]
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
    every = results.rows("command/")
    rows = [r for r in every if r["params"]["source"] in IMAGES]
    others = [r for r in every if r["params"]["source"] in OTHERS and "prior" not in r["params"]]
    small = (r["seconds"] for r in rows + others if r["params"]["side"] == SIDES[0])
    return [
        _below("command: pictures with a smaller hidden error than linear interpolation", rows),
        _below("command: other pictures with a smaller hidden error than linear interpolation", others),
        at_most(f"command, {SIDES[0]}x{SIDES[0]}, two cores: seconds", SECONDS, small),
    ]


def _below(text: str, rows: list[Row]) -> Row:
    below, count = sum(r["error"] < r["linear"] for r in rows), len(rows)
    return claim(text, count, below, below == count if rows else None, count)


def table(results: Results) -> list[Row]:
    """One line per picture."""
    columns = ("error", "linear", "cubic", "psnr", "members", "size", "seconds")
    return [
        {"picture": key.split("/")[2], "variant": key.split("/")[4], **{c: row[c] for c in columns}}
        for key, row in results.finished("command/").items()
    ]
