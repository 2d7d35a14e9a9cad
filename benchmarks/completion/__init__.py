"""How well, how small and how fast are tensors inferred from some of their entries?

Claims measured, default options apart from what is named:

* einstein: 600x600x3 image as 6x10x10x6x10x10x3, 10 % of the entries, 6 masks: error on the whole image at
  most 9.0 % with 21,375 parameters and 10.3 % with 10,096; under 60 s on a GPU, 10 minutes on two CPU cores;
  at most 8.2 % by four members of the larger size.
* images: four test images as 4^8 x 3 and a video at 10, 20 and 30 %: error, PSNR, SSIM; house at 20 % at most
  0.064 with 20,000 parameters; a second tensorisation of each.
* photos: the four test images with tensorize="auto" beside interpolation, biharmonic functions, HaLRTC,
  TR-ALS and CP: ahead in every cell, by 1.5 dB on the mean.
* command: `tensorgrow complete` without options on pictures: below linear interpolation on hidden entries, in
  under 30 s on two cores at 128x128.
* traffic: parking and taxi counts, 30, 50 and 70 % more entries or whole days removed: MAPE and RMSE.
* update: a day more of these, by `Result.update` at least 10 times faster than from scratch and at most 2 %
  worse, medians over some days.
* scaling: seconds per sweep and memory against observations and ranks; linear in the observations.
* recovery: planted networks from 10 noiseless entries per parameter: below 1e-6 at the planted size in 18 of
  20 seeds; with 1 % noise within 20 % of that size.
* blind: planted networks of mean zero, of which a fit of rank one sees nothing, over 16^6 at rank 3 and
  smaller: recovered, or refused with the reason.
* degenerate: data that determines too little, or is spoilt: finite results, honest warnings.

Rivals on the same entries: TT-ALS, TR-ALS, CP and Tucker (see rivals.py), each at the rank with the smallest
true error, which a user could not know. Draws einstein.webp, completion_images.webp and
completion_scaling.png in docs/figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row

from ..benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from . import beside, blind, command, photos, pictures, planted, scaling, stream, traffic
from .rivals import USES
from .runs import report_claims

__all__ = ["BENCHMARK"]

Cases = Callable[[BenchmarkSettings], list[Case]]
Work = Callable[[Row, BenchmarkSettings], Row]
PARTS: dict[str, tuple[Cases, Work]] = {
    "recovery": (planted.recovery_cases, planted.recover),
    "blind": (blind.cases, blind.run),
    "degenerate": (planted.degenerate_cases, planted.endure),
    "einstein": (pictures.einstein_cases, pictures.run),
    "images": (pictures.image_cases, pictures.run),
    "photos": (photos.cases, pictures.run),
    "command": (command.cases, command.run),
    "traffic": (traffic.cases, traffic.run),
    "update": (stream.cases, stream.run),
    "scaling": (scaling.cases, scaling.run),
}
NEED_DATA = {
    "einstein": "einstein",
    "images": "testimages",
    "photos": "testimages",
    "command": "testimages",
    "traffic": "traffic",
    "update": "traffic",
}


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Cases of the chosen parts."""
    for part in NEED_DATA.keys() & set(settings.parts):
        settings.folder(NEED_DATA[part])  # refused before anything is run
    found = [c for part in settings.parts for c in PARTS[part][0](settings)]
    return [replace(c, uses=USES.get(c.params.get("method", ""), c.uses)) for c in found]


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Run one case. A rival whose package is missing leaves a note and is tried again next time."""
    try:
        return PARTS[case.part][1](case.params, settings)
    except tg.MissingPackageError as error:
        return {"skipped": str(error)}


def tables(results: Results) -> dict[str, list[Row]]:
    """Everything there is, by part."""
    return {
        "einstein": pictures.table(results, "einstein"),
        "images": pictures.table(results, "images"),
        "photos: PSNR": photos.table(results, "psnr_filled"),
        "photos: SSIM": photos.table(results, "ssim_filled"),
        "command": command.table(results),
        "traffic": traffic.table(results),
        "update": stream.table(results),
        "scaling": scaling.table(results),
        "scaling: exponents": scaling.slopes(results),
        "scaling: the whole run": scaling.whole_table(results),
        "recovery": planted.recovery_table(results),
        "blind": blind.table(results),
        "degenerate": planted.degenerate_table(results),
    }


def all_claims(results: Results) -> list[Row]:
    """Every claim that something was measured for."""
    claims = [
        *pictures.einstein_claims(results),
        *pictures.image_claims(results),
        *photos.claims(results),
        *command.claims(results),
        *traffic.claims(results),
        *stream.claims(results),
        *scaling.claims(results),
        *planted.recovery_claims(results),
        *blind.claims(results),
        *planted.degenerate_claims(results),
    ]
    return [c for c in claims if c["met"] is not None]


def report(results: Results) -> Report:
    """Tables of every part, and the claims."""
    out = Report("Completion")
    claims, parts = all_claims(results), tables(results)
    out.summary = {"claims": claims, **parts}
    for name, rows in (parts | beside.tables(results)).items():
        out.tabulate_rows(name, rows)
    out.judge(beside.paper(results))
    report_claims(out, claims)
    if without := [k for k, r in results.cases.items() if "failed" in r or "skipped" in r]:
        out.say(f"without a result: {', '.join(without)}")
    return out


def draw(results: Results, settings: BenchmarkSettings) -> list[Path]:
    """The figures of the chosen parts."""
    paths = []
    for part, name in (("einstein", "einstein.webp"), ("images", "completion_images.webp")):
        if part in settings.parts:
            paths += pictures.draw(results, settings, part, name)
    return [*paths, *(scaling.draw(results, settings) if "scaling" in settings.parts else [])]


BENCHMARK = Benchmark(
    "completion",
    "tensors inferred from some entries: pictures, a video, traffic, planted networks, bad data, scaling",
    cases,
    work,
    report,
    draw,
    parts=tuple(PARTS),
    options=(
        DEVICE,
        Option("workers", None, "processes that run the members of a committee", kind=int),
        Option("all_seeds", False, "einstein: rivals on all three masks"),
        Option("rival_seconds", 120.0, "limit of one run of a rival", quick=2.0),
        Option("video_seconds", 540.0, "limit of ours on the video"),
        Option("image_seconds", None, "limit of ours on an image", kind=float),
        Option("photo_seconds", 300.0, "photos: limit of one run of a rival", quick=2.0),
        Option("member_seconds", None, "photos: limit of each member of ours", kind=float, quick=1.0),
        Option("traffic_seconds", 300.0, "limit of ours on traffic"),
        Option("budget", 5.0, "scaling: seconds per measurement, about"),
        Option("pictures", None, "folder of the pictures the figures are made of", kind=Path),
    ),
)
