"""Part `entries`: seconds of completions, of the paper's picture and of a photograph.

The photograph by the library, ``complete(photo, mask)``: one network for the array as it is; by the command
four networks in other shapes, which stop by the clock.
"""

from __future__ import annotations

import numpy as np

from tensorgrow.experiments.harness import Case, Results, Row, mean
from tensorgrow.experiments.methods import random_mask

from ..benchmark import BenchmarkSettings
from ..completion import pictures
from ..completion.command import CORES, run_command
from ..completion.runs import at_most, claim, time_complete

__all__ = ["cases", "claims", "run", "table"]

SIZE, ERROR = 21_375, 0.0897
SECONDS = {"cpu": 180.0, "cuda": 6.0}
SIDE, PHOTO_SECONDS = 512, 12.0


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Masks of Einstein; a part of that picture by library and command, on the CPU."""
    label, device = settings["label"], settings["device"]
    size = 300 if settings.quick else SIZE
    common = {"source": "einstein", "rate": 10, "method": "ours", "view": "stored", "device": device}
    made = [
        Case(
            f"entries/{label}/{device}/einstein/mask{seed}",
            {**common, "seed": seed, "max_parameters": size},
            alone=True,
            threads=CORES,
        )
        for seed in range(settings["masks"])
    ]
    if device == "cpu":
        photo = {"side": 32 if settings.quick else SIDE, "rate": 10}
        for which in ("default", "library"):  # the first is the command
            key = f"entries/{label}/cpu/photo/{which}"
            made.append(Case(key, {**photo, "by": which}, alone=True, threads=CORES))
    return made


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """One completion."""
    if "side" not in params:
        return pictures.run(params, settings)
    side, share = params["side"], params["rate"] / 100
    picture = pictures.load(settings, "einstein")[:side, :side]
    if params.get("by", "default") == "default":
        return run_command(picture, share)
    mask = random_mask(picture.shape, share, 0)
    options = {"truth": picture, "random_state": 0}
    result, row = time_complete(np.where(mask, picture, 0.0), mask, device="cpu", **options)
    return {**row, "error": result.test_error}


def table(results: Results) -> list[Row]:
    """One line per run."""
    lines = []
    for key, row in results.finished("entries/").items():
        _, label, device, item, which = key.split("/")
        line = {"item": item, "which": which, "device": device, "source": label}
        lines.append({**line, **{c: row[c] for c in ("error", "size", "seconds")}})
    return lines


def claims(results: Results) -> list[Row]:
    """Mean error and the longest time of Einstein; the time of the photograph."""
    found = []
    for device, seconds in SECONDS.items():
        rows = results.rows(f"entries/after/{device}/einstein/")
        error = mean(r["error"] for r in rows)
        met = None if error is None else error <= ERROR
        found.append(claim(f"Einstein, {device}: mean error", ERROR, error, met, len(rows)))
        found.append(at_most(f"Einstein, {device}: seconds", seconds, (r["seconds"] for r in rows)))
    for which, who in (("library", "library"), ("default", "command")):
        photos = results.rows(f"entries/after/cpu/photo/{which}")
        text = f"photograph of {SIDE}x{SIDE} by the {who}, two cores: seconds"
        found.append(at_most(text, PHOTO_SECONDS, (r["seconds"] for r in photos)))
    return found
