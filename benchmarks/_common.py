"""What the benchmark scripts share: threads, environment record, resumable results, parallel cases, data.

Import this module before NumPy or torch: it tells their BLAS how many threads to use, which only works before
they are loaded. The number comes from ``--threads`` (0: all cores), else from TENSORGROW_THREADS, else 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def _wanted_threads() -> int:
    """Number of threads asked for on the command line or by the environment; 0 and `all` mean every core."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--threads", default=os.environ.get("TENSORGROW_THREADS", "1"))
    asked = parser.parse_known_args()[0].threads
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


THREADS = _wanted_threads()
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(THREADS)))

import torch  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
if importlib.util.find_spec("tensorgrow") is None:  # not installed: use the source beside this folder
    sys.path.insert(0, str(ROOT / "src"))

from tensorgrow.experiments import harness as runner  # noqa: E402
from tensorgrow.experiments.harness import (  # noqa: E402
    Case,
    Row,
    Stopwatch,
    Worker,
    environment,
    geometric_mean,
    mean,
    median,
    run_cases,
    stopwatch,
    table,
    tidy,
)

__all__ = [
    "FIGURES",
    "RESULTS",
    "ROOT",
    "THREADS",
    "Case",
    "Results",
    "Row",
    "Stopwatch",
    "Worker",
    "data_folder",
    "environment",
    "geometric_mean",
    "make_parser",
    "mean",
    "median",
    "open_results",
    "print_table",
    "pyplot",
    "run_cases",
    "stopwatch",
    "tidy",
]

torch.set_num_threads(THREADS)

RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "docs" / "figures"


class Results(runner.Results):
    """A JSON file of finished cases that says on the terminal what happens."""

    def __init__(self, path: Path, *, jobs: int = 1, forget: Sequence[str] = ()) -> None:
        super().__init__(path, jobs=jobs, forget=forget, say=lambda text: print(text, flush=True))


# -- command line and data -----------------------------------------------------------------------------


def make_parser(description: str | None, name: str, parts: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Options that every script has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json", help="JSON file of the results")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results of the chosen parts")
    parser.add_argument("--threads", default=str(THREADS), help="BLAS and torch threads; 0: all cores")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="parts to run")
    return parser


def open_results(args: argparse.Namespace, parts: Sequence[str], jobs: int = 1) -> Results:
    """The results file of a script; cases are named ``part/...``."""
    return Results(args.out, jobs=jobs, forget=[f"{p}/" for p in parts] if args.fresh else ())


def data_folder(asked: str | None) -> Path:
    """Folder of the data: as asked, else TENSORGROW_DATA, else ``../shared/data`` beside the repository."""
    folder = Path(asked or os.environ.get("TENSORGROW_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        raise SystemExit(
            f"the data folder {folder} does not exist; give --data FOLDER or set TENSORGROW_DATA "
            "(it holds bsd_tnga4/ and live10/)"
        )
    return folder


def pyplot() -> Any:
    """Matplotlib without a display; None, with a message, where it is not installed."""
    plt = runner.pyplot()
    if plt is None:
        print("matplotlib is not installed: no figure is drawn (pip install matplotlib)")
    return plt


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table in Markdown, ready for the docs."""
    print(table(head, rows))
