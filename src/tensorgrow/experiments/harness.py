"""Run each case once, in parallel, and store it in a JSON file from which a run can be resumed.

Used by the experiments of `reproduce` and by ``python -m benchmarks``.
"""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.atomic_file import replacing
from .provenance import environment, modules_hash

Row = dict[str, Any]
Say = Callable[[str], None]


# -- numbers -------------------------------------------------------------------------------------------


def median(values: Iterable[float]) -> float | None:
    """Median; None without values."""
    return _summarise(statistics.median, values)


def mean(values: Iterable[float]) -> float | None:
    """Mean; None without values."""
    return _summarise(statistics.fmean, values)


def geometric_mean(values: Iterable[float]) -> float | None:
    """Geometric mean; None without values."""
    return _summarise(statistics.geometric_mean, values)


def _summarise(function: Callable[[list[float]], float], values: Iterable[float]) -> float | None:
    numbers = list(values)
    return function(numbers) if numbers else None


@dataclass
class Stopwatch:
    """Wall and CPU seconds of a block of code; they differ where the machine was busy with other work."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block of code."""
    watch = Stopwatch()
    wall, cpu = time.perf_counter(), time.process_time()
    yield watch
    watch.wall, watch.cpu = time.perf_counter() - wall, time.process_time() - cpu


def tidy(value: Any) -> Any:
    """Copy for JSON: NumPy numbers become Python numbers, floats keep six digits, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(k): tidy(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.6g}") if isinstance(value, float) else value


# -- threads -------------------------------------------------------------------------------------------


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Limit BLAS (if threadpoolctl is installed) and torch to `threads` threads; None changes nothing."""
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        if importlib.util.find_spec("threadpoolctl") is None:
            yield
        else:
            from threadpoolctl import threadpool_limits

            with threadpool_limits(limits=threads):
                yield
    finally:
        torch.set_num_threads(before)


# -- results -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One measurement: a key of words separated by slashes, and the plain values its work needs.

    A stored row answers a case only if it has the same values. A case that is timed runs `alone`, never
    beside others. `threads` overrides the BLAS and torch threads of the run, `uses` the modules that the
    experiment depends on: a rival of another library uses none of ours.
    """

    key: str
    params: Row
    alone: bool = False
    threads: int | None = None
    uses: tuple[str, ...] | None = None

    @property
    def part(self) -> str:
        """First word of the key."""
        return self.key.partition("/")[0]

    def is_done(self, row: Row | None) -> bool:
        """Whether a stored row answers this case.

        A higher time limit does not invalidate a run that ended before the old limit.
        """
        if row is None or "failed" in row or "skipped" in row:
            return False
        old, new = dict(row["params"]), tidy(self.params)
        limits = old.pop("max_seconds", None), new.pop("max_seconds", None)
        return old == new and (limits[0] == limits[1] or row.get("hit_limit") is False)


Work = Callable[[Case], Row]


def is_stale(row: Row) -> bool:
    """Whether the modules that a row depends on have changed since, or it does not say which these are.

    A change after which rows like it came out the same does not count; see `Results.confirm`.
    """
    if "modules" not in row:
        return True
    known = (row["modules"], row.get("confirmed", {}).get("modules"))
    return modules_hash(tuple(row["uses"])) not in known


def needs_gpu(row: Row) -> bool:
    """Whether a row cannot be measured without a GPU: it was asked to run on one, or holds times of one."""
    return row.get("params", {}).get("device") == "cuda" or any(field.startswith("cuda") for field in row)


def can_measure(row: Row) -> bool:
    """Whether this machine can measure a row again."""
    return torch.cuda.is_available() or not needs_gpu(row)


def stale_cases(results: Results, cases: Sequence[Case]) -> list[Case]:
    """Rows of an earlier source as cases with the parameters they have, whatever the options are now.

    Of the parts that have cases; how they run is as today's case of the same key says. What was measured on
    a GPU is left out where there is none.
    """
    parts, by_key = {c.part for c in cases}, {c.key: c for c in cases}
    stale = [
        replace(by_key.get(key, Case(key, {})), params=row["params"])
        for key, row in sorted(results.cases.items())
        if is_stale(row) and can_measure(row)
    ]
    return [c for c in stale if c.part in parts]


# What a row says that the same source says again on the same machine: all but how long it took.
OUTCOMES = (
    *("size", "parameters", "error", "rmse", "mape", "psnr", "ssim", "nats", "accuracy", "evaluations"),
    *("exact", "reached", "stop", "ranks"),
)


def outcome(row: Row) -> Row:
    """What of a row does not depend on the time that it took; nothing where a limit of time ended it."""
    if row.get("hit_limit") or row.get("stop") == "MAX_SECONDS" or "failed" in row or "skipped" in row:
        return {}
    return {name: row[name] for name in OUTCOMES if row.get(name) is not None}


def stale_groups(results: Results, cases: Sequence[Case]) -> list[list[Case]]:
    """`stale_cases` with an outcome, those that one source measured by one method together."""
    groups: dict[tuple[Any, ...], list[Case]] = {}
    for case in stale_cases(results, cases):
        row = results.cases[case.key]
        if "modules" in row and outcome(row):
            group = (case.part, str(row["params"].get("method")), row["modules"])
            groups.setdefault(group, []).append(case)
    return list(groups.values())


def sample_of(cases: Sequence[Case]) -> list[Case]:
    """As many of some cases as the root of their number, three at least, drawn by their keys."""
    count = min(len(cases), max(3, math.isqrt(len(cases) - 1) + 1))
    ordered = sorted(cases, key=lambda c: c.key)
    drawn = random.Random("".join(c.key for c in ordered)).sample(ordered, count)
    return sorted(drawn, key=lambda c: c.key)


class Results:
    """A JSON file of finished cases, rewritten atomically after each; drops rows that start with `forget`."""

    def __init__(
        self,
        path: Path,
        *,
        jobs: int = 1,
        threads: int | None = None,
        uses: tuple[str, ...] = ("tasks",),
        forget: Sequence[str] = (),
        say: Say = lambda text: None,
    ) -> None:
        self.path = path
        self.uses = uses
        self.say = say
        self.jobs = jobs
        self.threads = threads
        self.document: Row = {"environments": [], "summary": {}, "cases": {}}
        if path.exists():
            self.document = json.loads(path.read_text(encoding="utf-8"))
        dropped = [k for k in self.cases if k.startswith(tuple(forget))]
        for key in dropped:
            del self.cases[key]
        self._environment = tidy(environment(jobs))
        self._number_environments()
        if dropped:
            self.write()
        if stale := sum(map(is_stale, self.cases.values())):
            say(f"note: {stale} rows of {path.name} are of an earlier source; --refresh measures them again")

    def _number_environments(self) -> None:
        """Drop the environments that no case refers to, and renumber the others."""
        old: list[Row] = self.document["environments"]
        used = sorted({r["environment"] for r in self.cases.values()})
        self.document["environments"] = [old[k] for k in used]
        for row in self.cases.values():
            row["environment"] = used.index(row["environment"])

    @property
    def cases(self) -> dict[str, Row]:
        """Rows by key, failures included."""
        rows: dict[str, Row] = self.document["cases"]
        return rows

    def finished(self, prefix: str = "") -> dict[str, Row]:
        """Rows whose key starts with `prefix`, sorted by key, without those that failed or were skipped."""
        return {
            k: r
            for k, r in sorted(self.cases.items())
            if k.startswith(prefix) and "failed" not in r and "skipped" not in r
        }

    def rows(self, prefix: str = "") -> list[Row]:
        """Finished rows without their keys."""
        return list(self.finished(prefix).values())

    def groups(self, *names: str) -> dict[tuple[Any, ...], list[Row]]:
        """Finished rows by some of their parameters."""
        out: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows():
            out.setdefault(tuple(row["params"][n] for n in names), []).append(row)
        return out

    def failures(self, prefix: str = "") -> int:
        """Number of cases whose key starts with `prefix` and that raised an exception."""
        return sum(k.startswith(prefix) and "failed" in r for k, r in self.cases.items())

    def put(self, case: Case, row: Row) -> None:
        """Add a finished case and write the file."""
        threads = case.threads or self.threads or torch.get_num_threads()
        here = {**self._environment, "threads": threads, "jobs": 1 if case.alone else self.jobs}
        known: list[Row] = self.document["environments"]
        if here not in known:
            known.append(here)
        uses = self.uses if case.uses is None else case.uses
        self.cases[case.key] = tidy(
            {
                "params": case.params,
                **row,
                "uses": uses,
                "modules": modules_hash(uses),
                "environment": known.index(here),
                "load": round(os.getloadavg()[0], 1),  # above `jobs`, other work disturbed the timings
                "date": datetime.now(UTC).date().isoformat(),
            }
        )
        self.write()

    def add(self, path: Path) -> int:
        """Take the finished rows of another results file, such as one from another machine; their number."""
        other = json.loads(path.read_text(encoding="utf-8"))
        known: list[Row] = self.document["environments"]
        rows = {k: r for k, r in other["cases"].items() if "failed" not in r and "skipped" not in r}
        for key, row in rows.items():
            there = other["environments"][row["environment"]]
            if there not in known:
                known.append(there)
            self.cases[key] = {**row, "environment": known.index(there)}
        self._number_environments()
        self.write()
        return len(rows)

    def confirm(self, keys: Sequence[str], checked: int) -> None:
        """Note that rows hold for today's source, since `checked` others of their group came out the same."""
        for key in keys:
            row = self.cases[key]
            row["confirmed"] = {
                "modules": modules_hash(tuple(row["uses"])),
                "commit": self._environment["commit"],
                "checked": checked,
                "of": checked + len(keys),
            }
        self.write()

    def summarise(self, summary: Row) -> None:
        """Replace the summary and write the file."""
        self.document["summary"] = tidy(summary)
        self.write()

    def write(self) -> None:
        """Write the file; a reader sees the old one or the new one, never a part."""
        lines = [f"  {json.dumps(k)}: {json.dumps(self.cases[k])}" for k in sorted(self.cases)]
        head = {k: v for k, v in self.document.items() if k != "cases"}
        text = json.dumps(head, indent=1)[:-2] + ',\n "cases": {\n' + ",\n".join(lines) + "\n }\n}\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _attempt(work: Work, case: Case, threads: int | None) -> Row:
    """Run a case; an exception becomes a row too, which is reported, and tried again by the next run."""
    try:
        with limit_threads(case.threads or threads):
            return work(case)
    except Exception as error:  # noqa: BLE001
        return {"failed": f"{type(error).__name__}: {error}"}


def run_cases(
    results: Results, cases: Sequence[Case], work: Work, *, refresh: bool = False, deadline: float = math.inf
) -> None:
    """Run the cases that are not finished yet, in ``results.jobs`` processes, and store each as it ends.

    With `refresh`, those whose row is stale run again; one that fails then keeps its row. No case
    starts after `deadline`, in seconds of `time.perf_counter`.
    """
    rows = {k: r for k, r in results.cases.items() if not (refresh and is_stale(r))}
    todo = [c for c in cases if not c.is_done(rows.get(c.key))]
    if len(todo) < len(cases):
        results.say(f"{len(cases) - len(todo)} of {len(cases)} cases are already in {results.path.name}")

    def store(case: Case, row: Row) -> None:
        keeps = refresh and case.key in results.cases and ("failed" in row or "skipped" in row)
        if not keeps:
            results.put(case, row)
        results.say(f"{case.key}: {describe_row(row)}{', its earlier row stays' if keeps else ''}")

    beside = [c for c in todo if not c.alone] if results.jobs > 1 else []
    if beside:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(results.jobs, mp_context=context) as pool:
            waiting = {pool.submit(_attempt, work, c, results.threads): c for c in beside}
            for future in as_completed(waiting):
                store(waiting[future], future.result())
                if time.perf_counter() > deadline:
                    pool.shutdown(wait=True, cancel_futures=True)
                    break
    single = [c for c in todo if c not in beside]
    for number, case in enumerate(single):
        if time.perf_counter() > deadline:
            results.say(f"the time is spent; {len(single) - number} cases are left for the next run")
            return
        store(case, _attempt(work, case, results.threads))


# -- output --------------------------------------------------------------------------------------------

# Values of a row that are logged when its case ends, where it has them.
_LOGGED = (
    "size",
    "parameters",
    "observations",
    "rank",
    "error",
    "rmse",
    "mape",
    "psnr",
    "nats",
    "accuracy",
    "stop",
)


def describe_row(row: Row) -> str:
    """One line with the values of a row that most experiments have."""
    if reason := row.get("failed") or row.get("skipped"):
        return str(reason)
    shown = [f"{n} {_cell(row[n])}" for n in _LOGGED if row.get(n) is not None]
    shown += [f"{row['seconds']:.3g} s"] if row.get("seconds") is not None else []
    shown += [f"{k} ({describe_row(v)})" for k, v in row.items() if isinstance(v, dict) and "seconds" in v]
    shown += ["NOT REACHED"] if row.get("reached") is False else []
    shown += ["TIME LIMIT"] if row.get("hit_limit") else []
    return ", ".join(shown) or "done"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and 1e4 <= abs(value) < 1e9:  # sizes, not powers of ten
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(_cell(v) for v in row) + " |" for row in rows), ""])
