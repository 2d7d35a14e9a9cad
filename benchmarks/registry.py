"""Every benchmark by name, where its results are, and what is known about them."""

from __future__ import annotations

import importlib
import json
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from tensorgrow.experiments import EXPERIMENTS
from tensorgrow.experiments.experiment import Experiment
from tensorgrow.experiments.harness import Row, is_stale

from . import ROOT, reproduction
from .benchmark import Benchmark

__all__ = [
    "RESULTS",
    "State",
    "benchmark_names",
    "commit_exists",
    "commit_of_source",
    "find_benchmark",
    "read_rows",
    "read_state",
    "results_file",
    "stale_rows",
]

RESULTS = ROOT / "benchmarks" / "results"
MODULES = (
    "decomposition",
    "images",
    "anchors",
    "functions",
    "scaling",
    "completion",
    "traffic",
    "uncertainty",
    "losses",
    "imputation",
    "regression",
    "density",
    "classification",
    "tensorisation",
    "mnist",
    "layers",
    "compress",
    "transformer",
    "adapters",
    "gpu",
    "scale",
    "speed",
    "calculus",
)
# The experiments of the paper, which `tensorgrow reproduce` runs too.
REPRODUCTION = "reproduction/"


def benchmark_names() -> list[str]:
    """Names of all benchmarks, those of the paper's experiments last."""
    return [*MODULES, *(f"{REPRODUCTION}{name}" for name in EXPERIMENTS)]


def find_benchmark(name: str) -> Benchmark:
    """A benchmark by its name."""
    if name.startswith(REPRODUCTION):
        experiment = EXPERIMENTS[name.removeprefix(REPRODUCTION)]
        values = {f.name: getattr(experiment, f.name) for f in fields(Experiment)}
        if experiment.name == "images":
            values["report"] = reproduction.with_limits(experiment.report)
        return Benchmark(**values, default_threads=None)
    benchmark: Benchmark = importlib.import_module(f"benchmarks.{name}").BENCHMARK
    return benchmark


def results_file(name: str) -> Path:
    """Where the results of a full run are."""
    return RESULTS / f"{name}.json"


def read_rows(path: Path) -> dict[str, Row]:
    """Rows of a results file by key; none where there is no file."""
    rows: dict[str, Row] = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else {}
    return rows


def stale_rows(path: Path) -> dict[str, list[str]]:
    """Keys of the rows of an earlier source, by the reason that makes them so; few reasons for many rows."""
    rows = read_rows(path)
    places = json.loads(path.read_text(encoding="utf-8"))["environments"] if rows else []
    found: dict[str, list[str]] = {}
    for key, row in rows.items():
        if is_stale(row):
            commit = places[row["environment"]].get("commit")
            since = f"at {commit[:7]}" if commit else "at a source that no commit has"
            reason = f"measured {since}; its modules have changed"
            if "modules" not in row:
                reason = "measured before rows named their modules"
            found.setdefault(reason, []).append(key)
    return found


class State(NamedTuple):
    """What a results file holds: rows, the day of the last one and the source it was made with."""

    rows: int
    day: str
    source: str


def read_state(path: Path) -> State:
    """The state of a results file. Rows from before days were noted have the day of git's last commit."""
    if not path.exists():
        return State(0, "-", "-")
    document = json.loads(path.read_text(encoding="utf-8"))
    # Environments are numbered as they come.
    rows = [(r.get("date", ""), r["environment"]) for r in document["cases"].values()]
    day, number = max(rows)
    return State(len(rows), day or _commit_day(path), document["environments"][number]["tensorgrow_source"])


def _commit_day(path: Path) -> str:
    return git("log", "-1", "--format=%cs", "--", path.name, folder=path.parent) or "unknown"


def commit_of_source() -> str | None:
    """The commit that the library's source is of; None where it was changed since, or nothing tells."""
    return None if git("status", "--porcelain", "--", "src") else git("rev-parse", "HEAD")


def commit_exists(name: str) -> bool:
    """Whether the repository has a commit of that name."""
    return git("cat-file", "-t", name) == "commit"


def git(*words: str, folder: Path = ROOT) -> str | None:
    """What git answers; None where it cannot."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
