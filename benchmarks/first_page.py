"""Numbers of README, measured again: ``make bench``, within an hour on two quiet cores.

Each step runs the cases that numbers of README come from, into `.bench/first_page`, so that the committed
results stay as they are. A run that was stopped goes on, and rows of an earlier source are measured again. At
the end every number of README that has new rows stands beside the new one. Where README has rows of a GPU or
of more masks and pictures than an hour allows, the step says what it runs instead; the whole is measured by
``python -m benchmarks NAME``.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tensorgrow.experiments.experiment import Settings, run_experiment
from tensorgrow.experiments.harness import Case, Results, Row, table

from . import ROOT
from .__main__ import SCRATCH, data_folder, note_commit
from .benchmark import Benchmark
from .pages import MARK, PageError, number
from .registry import find_benchmark

FOLDER = SCRATCH / "first_page"


@dataclass(frozen=True)
class Step:
    """Cases of a benchmark whose key has one of the patterns; `minutes` is what they took on two cores."""

    name: str
    part: str
    patterns: tuple[str, ...]
    minutes: int
    what: str
    jobs: int = 2
    threads: int = 1
    options: dict[str, Any] = field(default_factory=dict)


STEPS = (
    Step("speed", "hidden", ("hidden/*/balanced/*",), 2, "hidden structures, all 80"),
    Step("speed", "images", ("images/*/A@0.105/balanced/seed00",), 4, "photograph A, the seed of README"),
    Step("functions", "", ("*/tensorgrow", "*/TT-cross"), 6, "functions, all 52 runs of ours and TT-cross"),
    Step("calculus", "copies", ("*",), 8, "sums of copies, all 60"),
    Step(
        "completion",
        "einstein",
        ("einstein/*/seed[01]/ours/21375",),
        20,
        "Einstein on two of six masks, one network, on the CPU",
        jobs=1,
        threads=2,
    ),
    Step(
        "completion",
        "photos",
        ("photos/*/*@20/ours/members7", "photos/*/*@20/linear/*", "photos/*/*@20/biharmonic/*"),
        15,
        "photographs from 20 % of their pixels, four of twelve cells, beside interpolation",
        options={"member_seconds": 46.0},
    ),
)


def chosen(step: Step, benchmark: Benchmark) -> Benchmark:
    """A benchmark that has only the cases of a step."""

    def cases(settings: Settings) -> list[Case]:
        return [c for c in benchmark.cases(settings) if any(fnmatchcase(c.key, p) for p in step.patterns)]

    return replace(benchmark, cases=cases, follow_up=None)


def run(step: Step, data: Path | None, max_seconds: float) -> None:
    """Measure what a step has not measured yet, or with an earlier source."""
    deadline = time.perf_counter() + max_seconds
    benchmark = find_benchmark(step.name)
    parts = (step.part,) if step.part else benchmark.parts
    settings = benchmark.settings(
        options=step.options, data=data, parts=parts, threads=step.threads, scratch=SCRATCH, figures=FOLDER
    )
    for refresh in (True, False):  # rows of an earlier source, then what is missing
        run_experiment(
            chosen(step, benchmark),
            settings,
            FOLDER / f"{step.name}.json",
            jobs=step.jobs,
            refresh=refresh,
            max_seconds=max(0.0, deadline - time.perf_counter()),
            say=lambda text: print(f"  {text}", flush=True),
        )


def compare(text: str, documents: dict[str, Row]) -> list[list[Any]]:
    """Every number of a page that new results have: where it is from, as it is there, as it is now."""
    found = []
    for mark in MARK.finditer(text):
        words = [word.strip() for word in mark[2].split(";")]
        if len(words) != 4 or words[0] not in documents:
            continue
        name, keys, path, form = words
        here = keys.replace("/cuda/", "/cpu/")  # README has rows of a GPU where there is one
        try:
            value = number(documents[name], name, here, path)
        except PageError:
            continue
        if path != "count" or value:
            found.append([name, here, path, mark[3], format(value, form)])
    return found


def main(argv: Sequence[str]) -> int:
    """Run every step, then compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_page", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--summary", action="store_true", help="run nothing: compare what there is")
    parser.add_argument("--stop-after", type=float, default=math.inf, metavar="SECONDS", help="for each step")
    args = parser.parse_args(argv)
    note_commit()
    for step in () if args.summary else STEPS:
        print(f"{step.name}: {step.what}, about {step.minutes} minutes", flush=True)
        run(step, data_folder(args.data), args.stop_after)
    paths = {step.name: FOLDER / f"{step.name}.json" for step in STEPS}
    documents = {name: Results(path).document for name, path in paths.items() if path.exists()}
    rows = compare((ROOT / "README.md").read_text(encoding="utf-8"), documents)
    print(table(["benchmark", "rows", "number", "README", "now"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
