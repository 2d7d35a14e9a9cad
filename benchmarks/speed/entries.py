"""Part `entries`: seconds of completions, of the paper's picture and of a photograph by the command."""

from __future__ import annotations

from tensorgrow.experiments.harness import Case, Results, Row, mean

from ..benchmark import BenchmarkSettings
from ..completion import pictures
from ..completion.command import CORES, run_command
from ..completion.runs import at_most, claim

__all__ = ["cases", "claims", "run", "table"]

SIZE, ERROR = 21_375, 0.0897
SECONDS = {"cpu": 180.0, "cuda": 6.0}
SIDE, PHOTO_SECONDS = 512, 12.0


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Masks of Einstein; a part of that picture by the command, on the CPU."""
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
        made.append(Case(f"entries/{label}/cpu/photo/default", photo, alone=True, threads=CORES))
    return made


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """One completion."""
    if "side" not in params:
        return pictures.run(params, settings)
    side = params["side"]
    return run_command(pictures.load(settings, "einstein")[:side, :side], params["rate"] / 100)


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
    photos = results.rows("entries/after/cpu/photo/")
    text = f"photograph of {SIDE}x{SIDE} by the command, two cores: seconds"
    found.append(at_most(text, PHOTO_SECONDS, (r["seconds"] for r in photos)))
    return found
