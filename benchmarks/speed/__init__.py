"""Where do users wait, and how much less than before?

Rows of two sources stand side by side: those of this checkout (`--label after`) and those of an earlier one,
made in the same session on the same machine (`--label before --earlier FOLDER`, its `src`). Claims:

* legs: a smooth field 40x40x40x30 at 1e-3, a hyperspectral cube and a video: at least 20 times faster at no
  more parameters; tensors without a small core take at most 1.2 times as long. Means over the seeds.
* images: photographs as 4^8: at least 2.5 times faster on one core, at no more parameters.
* hidden: the four 7^5 targets of the paper, exact on every seed; a median of at most a twentieth of the units
  of time that the authors' code was recorded to take (4.0, 5.2, 0.9 and 2.5 s at 1.95 ms a unit).
* entries: Einstein from 10 % with 21,375 parameters, six masks: mean error at most 8.97 %, two cores under
  180 s, an H200 under 6 s; a 512x512 colour photograph by the command in under 12 s on two cores.
* density: NLTCS at most 0.3768 nats per variable in 60 s, plants at most 0.215 in 300 s, on one core, with
  fewer than 5,000 parameters.
* fits: `tensorgrow.fit` at least 10 times faster than TensorLy at the same number of sweeps.

Part `efforts` claims nothing: seconds that users can expect of the efforts on one core.

Sweeps on a GPU are in the benchmark `gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row

from ..benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from ..completion.runs import report_claims
from . import decompositions, density, entries, fits

__all__ = ["BENCHMARK"]

Cases = Callable[[BenchmarkSettings], list[Case]]
Work = Callable[[Row, BenchmarkSettings], Row]
PARTS: dict[str, tuple[Cases, Work]] = {
    "legs": (decompositions.leg_cases, decompositions.run),
    "images": (decompositions.image_cases, decompositions.run),
    "hidden": (decompositions.hidden_cases, decompositions.run),
    "efforts": (decompositions.effort_cases, decompositions.run),
    "entries": (entries.cases, entries.run),
    "density": (density.cases, density.run),
    "fits": (fits.cases, fits.run),
}


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Cases of the chosen parts. Rows of the source before tell of its commit: this one does not age them."""
    found = [c for part in settings.parts for c in PARTS[part][0](settings)]
    return found if settings["label"] == "after" else [replace(c, uses=()) for c in found]


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Run one case."""
    return PARTS[case.part][1](case.params, settings)


def report(results: Results) -> Report:
    """Before and after, and the claims."""
    out = Report("Speed")
    tables = {
        "decompositions": decompositions.table(results),
        "efforts": decompositions.effort_table(results),
        "entries": entries.table(results),
        "density": density.table(results),
        "fits": fits.table(results),
    }
    claims = [
        *decompositions.claims(results),
        *entries.claims(results),
        *density.claims(results),
        *fits.claims(results),
    ]
    claims = [c for c in claims if c["met"] is not None]
    out.summary = {"claims": claims, **tables}
    for name, rows in tables.items():
        out.tabulate_rows(name, rows)
    report_claims(out, claims)
    return out


BENCHMARK = Benchmark(
    "speed",
    "seconds of whole runs before and after: large legs, photographs, planted targets, missing entries",
    cases,
    work,
    report,
    parts=tuple(PARTS),
    options=(
        DEVICE,
        Option("label", "after", "the source that runs", choices=("before", "after")),
        Option("earlier", None, "with --label before: the `src` of the earlier source", kind=Path),
        Option("seeds", 3, "seeds of every decomposition", quick=1),
        Option("hidden_seeds", 20, "seeds of every planted target", quick=1),
        Option("masks", 6, "masks of Einstein", quick=1),
        Option("max_seconds", 600.0, "limit of one run", quick=5.0),
        Option("pictures", None, "folder of the completed pictures", kind=Path),
    ),
)
