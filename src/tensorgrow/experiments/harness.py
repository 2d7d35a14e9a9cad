"""Cases that are run once, in parallel, and kept in a JSON file that can be gone on with.

Used by the experiments of `reproduce` and by the scripts in ``benchmarks/``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._version import __version__

__all__ = [
    "Case",
    "Results",
    "Row",
    "Say",
    "Stopwatch",
    "Worker",
    "environment",
    "geometric_mean",
    "mean",
    "median",
    "pyplot",
    "run_cases",
    "stopwatch",
    "table",
    "tidy",
]

Row = dict[str, Any]
Worker = Callable[[Row], Row]
Say = Callable[[str], None]


# -- numbers -------------------------------------------------------------------------------------------


def median(values: Iterable[float]) -> float | None:
    """Median, None of nothing."""
    found = list(values)
    return statistics.median(found) if found else None


def mean(values: Iterable[float]) -> float | None:
    """Mean, None of nothing."""
    found = list(values)
    return statistics.fmean(found) if found else None


def geometric_mean(values: Iterable[float]) -> float | None:
    """Geometric mean, None of nothing."""
    found = list(values)
    return statistics.geometric_mean(found) if found else None


@dataclass
class Stopwatch:
    """Wall and CPU seconds of a block; CPU time tells when the machine was busy with something else."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block."""
    watch = Stopwatch()
    wall, cpu = time.perf_counter(), time.process_time()
    yield watch
    watch.wall, watch.cpu = time.perf_counter() - wall, time.process_time() - cpu


def tidy(value: Any) -> Any:
    """JSON-friendly copy: NumPy numbers become Python's, floats keep six digits, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(k): tidy(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.6g}") if isinstance(value, float) else value


# -- environment ---------------------------------------------------------------------------------------


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _source_fingerprint() -> str:
    """Short hash of the library's source: results of different sources must not be mixed unnoticed."""
    digest = hashlib.sha256()
    folder = Path(__file__).resolve().parents[1]
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def environment(jobs: int = 1) -> Row:
    """Hardware and versions; no paths or host names."""
    cuda = torch.cuda.is_available()
    optional = ("scipy", "threadpoolctl", "opt_einsum", "cotengrust", "tensorly", "tensorly-torch", "pymoo")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "jobs": jobs,
        "gpu": torch.cuda.get_device_name(0) if cuda else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "tensorgrow": __version__,
        "tensorgrow_source": _source_fingerprint(),
        "optional": {name: _version(name) for name in optional},
    }


# -- results -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One measurement: a key that names it and the plain values its worker needs."""

    key: str
    params: Row

    def is_done(self, row: Row | None) -> bool:
        """Whether a stored row answers this case.

        A raised time limit does not invalidate a run that ended before the old one.
        """
        if row is None or "failed" in row or "skipped" in row:
            return False
        old, new = dict(row["params"]), tidy(self.params)
        limits = old.pop("max_seconds", None), new.pop("max_seconds", None)
        return old == new and (limits[0] == limits[1] or row.get("hit_limit") is False)


class Results:
    """A JSON file of finished cases, rewritten atomically after each one."""

    def __init__(
        self, path: Path, *, jobs: int = 1, forget: Sequence[str] = (), say: Say = lambda text: None
    ) -> None:
        self.path = path
        self.say = say
        self.jobs = jobs
        self.document: Row = {"environments": [], "summary": {}, "cases": {}}
        if path.exists():
            self.document = json.loads(path.read_text(encoding="utf-8"))
        forgotten = [k for k in self.cases if k.startswith(tuple(forget))]
        for key in forgotten:
            del self.cases[key]
        self._environment = tidy(environment(jobs))
        self._number_environments()
        if forgotten:
            self.write()
        mine = self._environment["tensorgrow_source"]
        if any(e["tensorgrow_source"] != mine for e in self.document["environments"]):
            say(f"note: {path.name} holds cases of another version of the library; --fresh redoes them")

    def _number_environments(self) -> None:
        """Drop the environments that no case names any more."""
        old: list[Row] = self.document["environments"]
        used = sorted({r["environment"] for r in self.cases.values()})
        self.document["environments"] = [old[k] for k in used]
        for row in self.cases.values():
            row["environment"] = used.index(row["environment"])

    @property
    def cases(self) -> dict[str, Row]:
        """Finished cases by key."""
        found: dict[str, Row] = self.document["cases"]
        return found

    def rows(self, prefix: str) -> list[Row]:
        """Finished rows whose key starts with `prefix`, failures left out."""
        return [r for k, r in self.cases.items() if k.startswith(prefix) and "failed" not in r]

    def failures(self, prefix: str) -> int:
        """How many cases under `prefix` raised an exception."""
        return sum(k.startswith(prefix) and "failed" in r for k, r in self.cases.items())

    def put(self, case: Case, row: Row) -> None:
        """Add a finished case and write the file."""
        known: list[Row] = self.document["environments"]
        if self._environment not in known:
            known.append(self._environment)
        number = known.index(self._environment)
        load = round(os.getloadavg()[0], 1)  # above the number of jobs, timings were disturbed
        self.cases[case.key] = tidy({"params": case.params, **row, "environment": number, "load": load})
        self.write()

    def summarise(self, summary: Row) -> None:
        """Replace the summary and write the file."""
        self.document["summary"] = tidy(summary)
        self.write()

    def write(self) -> None:
        """Write everything; a reader sees the old file or the new one, never half of it."""
        lines = [f"  {json.dumps(k)}: {json.dumps(self.cases[k])}" for k in sorted(self.cases)]
        head = {k: v for k, v in self.document.items() if k != "cases"}
        text = json.dumps(head, indent=1)[:-2] + ',\n "cases": {\n' + ",\n".join(lines) + "\n }\n}\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)


def _guarded(worker: Worker, params: Row) -> Row:
    """A case that raises is a result too: it is recorded, reported and tried again next time."""
    try:
        return worker(params)
    except Exception as error:  # noqa: BLE001
        return {"failed": f"{type(error).__name__}: {error}"}


def run_cases(
    results: Results, cases: Sequence[Case], worker: Worker, *, report: Callable[[Row], str] = str
) -> None:
    """Run the cases that are not finished yet, in ``results.jobs`` processes, and store each as it ends."""
    todo = [c for c in cases if not c.is_done(results.cases.get(c.key))]
    if len(todo) < len(cases):
        results.say(f"{len(cases) - len(todo)} of {len(cases)} cases are already in {results.path.name}")

    def finished(case: Case, row: Row) -> None:
        results.put(case, row)
        results.say(f"{case.key}: {row['failed'] if 'failed' in row else report(row)}")

    if results.jobs == 1:
        for case in todo:
            finished(case, _guarded(worker, case.params))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(results.jobs, mp_context=context) as pool:
        waiting = {pool.submit(_guarded, worker, c.params): c for c in todo}
        for future in as_completed(waiting):
            finished(waiting[future], future.result())


# -- output --------------------------------------------------------------------------------------------


def pyplot() -> Any:
    """Matplotlib without a display; None where it is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""

    def cell(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(cell(v) for v in row) + " |" for row in rows), ""])
