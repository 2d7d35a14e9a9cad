"""What the experiments share: settings, a table of cases, methods by name, what is reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import baselines
from ..errors import DataError
from ..results import Result
from ..search import Effort
from ..tasks.decompose import decompose
from .harness import Case, Results, Row, stopwatch, table

__all__ = [
    "LABELS",
    "Experiment",
    "Report",
    "Settings",
    "best_error",
    "groups",
    "mean_and_deviation",
    "run_method",
]

LABELS = {
    "default": "tensorgrow, default",
    "fast": "tensorgrow, fast",
    "thorough": "tensorgrow, thorough",
    "greedy": "Greedy (paper preset)",
    "greedy_int": "Greedy-int (paper preset)",
    "random_walk": "random walk",
    "cp": "CP",
    "tucker": "Tucker",
    "tt": "TT, uniform rank",
    "tt_svd": "TT-SVD",
    "tt_svd_interleaved": "TT-SVD, interleaved",
    "genetic": "TNGA",
    "genetic6": "TNGA, rank 6",
    "genetic7": "TNGA, rank 7",
    "tnls": "TNLS",
    "tnale": "TnALE",
    "svd_ins_tn": "SVDinsTN",
}
_OURS: dict[str, Effort] = {"default": "balanced", "fast": "fast", "thorough": "thorough"}
# What stands for a method beside its baseline: options that its name implies.
_IMPLIED: dict[str, tuple[str, Row]] = {
    "greedy": ("greedy", {"split_nodes": False}),
    "greedy_int": ("greedy", {"split_nodes": True}),
    "tt_svd_interleaved": ("tt_svd", {"order": "interleaved"}),
    "genetic6": ("genetic", {"rank": 6}),
    "genetic7": ("genetic", {"rank": 7}),
}


@dataclass(frozen=True)
class Settings:
    """How an experiment is run.

    Attributes
    ----------
    quick
        A few minutes on two cores instead of everything.
    data
        Folder of the real data.
    """

    quick: bool = False
    data: Path | None = None

    def folder(self, name: str) -> Path:
        """A folder of the data, which must exist."""
        given = self.data or os.environ.get("TENSORGROW_DATA")
        found = None if given is None else Path(given) / name
        if found is None or not found.is_dir():
            raise DataError(
                f"this experiment needs the folder {name!r} of the data, looked for in "
                f"{'nothing' if given is None else given}: give data=FOLDER or set TENSORGROW_DATA"
            )
        return found


@dataclass
class Report:
    """What was measured beside what the paper says, as Markdown."""

    title: str
    parts: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(text + "\n")

    def tabulate(self, title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add a table."""
        self.parts.append(f"**{title}**\n\n{table(head, rows)}")

    @property
    def text(self) -> str:
        """Everything."""
        return "\n".join([f"# {self.title}\n", *self.parts])


@dataclass(frozen=True)
class Experiment:
    """An experiment: its cases, the function that runs one, and what is made of the results.

    Attributes
    ----------
    work
        Of the parameters of a case, which are written to the results, and the settings, which are not.
    draw
        Writes figures to a folder and gives their paths.
    """

    name: str
    title: str
    cases: Callable[[Settings], list[Case]]
    work: Callable[[Row, Settings], Row]
    report: Callable[[Results], Report]
    draw: Callable[[Results, Path], list[Path]] | None = None


def run_method(method: str, x: Any, **options: Any) -> tuple[Result, Row]:
    """Run ours or a baseline on a dense tensor; the result and a row of plain numbers."""
    with stopwatch() as watch:
        if method in _OURS:
            result = decompose(x, effort=_OURS[method], progress=False, **options)
        else:
            name, implied = _IMPLIED.get(method, (method, {}))
            result = baselines.run(name, x, progress=False, **{**implied, **options})
    goal, limit = options.get("max_error"), options.get("max_seconds")
    seconds = result.info.get("seconds")
    row = {
        "size": result.num_parameters,
        "error": result.relative_error,
        "reached": None if goal is None else result.relative_error <= goal * (1 + 1e-9),
        # A search that had reached the error by then stops for that reason.
        "hit_limit": limit is not None and seconds is not None and seconds >= limit,
        "seconds": seconds,
        "cpu_seconds": watch.cpu,
        "evaluations": result.info.get("evaluations", len(result.history)),
        "fitness": result.info.get("fitness"),
        "stop": result.stop.name,
        "ranks": result.structure.to_dict()["ranks"],
        "curve": front((s.num_parameters, s.error) for s in result.history),
    }
    return result, row


def front(points: Iterable[tuple[int, float]]) -> list[list[float]]:
    """Sizes and errors that no other point beats in both, by size."""
    kept: list[list[float]] = []
    for size, error in sorted(points):
        if not kept or error < kept[-1][1]:
            kept.append([size, error])
    return kept


def best_error(row: Row, size: float) -> float | None:
    """Smallest error a run saw with at most this many parameters."""
    found = [e for n, e in row["curve"] if n <= size]
    return min(found) if found else None


def mean_and_deviation(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Mean and standard deviation of the values there are."""
    found = [v for v in values if v is not None]
    return (float(np.mean(found)), float(np.std(found))) if found else None


def groups(results: Results, *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Finished rows by some of their parameters."""
    out: dict[tuple[Any, ...], list[Row]] = {}
    for _, row in sorted(results.cases.items()):
        if "failed" not in row:
            out.setdefault(tuple(row["params"][n] for n in names), []).append(row)
    return out
