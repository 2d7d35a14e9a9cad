"""What the benchmark scripts share: threads, environment record, resumable results, parallel cases, data.

Import this module before NumPy or torch: it tells their BLAS how many threads to use, which only works before
they are loaded. The number comes from ``--threads`` (0: all cores), else from TENSORGROW_THREADS, else 1.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
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

import numpy as np  # noqa: E402
import torch  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
if importlib.util.find_spec("tensorgrow") is None:  # not installed: use the source beside this folder
    sys.path.insert(0, str(ROOT / "src"))

import tensorgrow as tg  # noqa: E402

torch.set_num_threads(THREADS)

RESULTS = ROOT / "benchmarks" / "results"
FIGURES = ROOT / "docs" / "figures"

Row = dict[str, Any]
Worker = Callable[[Row], Row]


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
    folder = Path(tg.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def environment(jobs: int = 1) -> Row:
    """Hardware and versions; no paths or host names."""
    cuda = torch.cuda.is_available()
    optional = ("scipy", "threadpoolctl", "opt_einsum", "cotengrust", "tensorly", "tensorly-torch")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": THREADS,
        "jobs": jobs,
        "gpu": torch.cuda.get_device_name(0) if cuda else None,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "tensorgrow": tg.__version__,
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

    def __init__(self, path: Path, *, jobs: int = 1, forget: Sequence[str] = ()) -> None:
        self.path = path
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
            print(f"note: {path.name} holds cases of another version of the library; --fresh redoes them")

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
        print(f"{len(cases) - len(todo)} of {len(cases)} cases are already in {results.path.name}")

    def finished(case: Case, row: Row) -> None:
        results.put(case, row)
        print(f"{case.key}: {row['failed'] if 'failed' in row else report(row)}", flush=True)

    if results.jobs == 1:
        for case in todo:
            finished(case, _guarded(worker, case.params))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(results.jobs, mp_context=context) as pool:
        waiting = {pool.submit(_guarded, worker, c.params): c for c in todo}
        for future in as_completed(waiting):
            finished(waiting[future], future.result())


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
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no figure is drawn (pip install matplotlib)")
        return None
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table in Markdown, ready for the docs."""

    def cell(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(cell(v) for v in row) + " |")
    print()
