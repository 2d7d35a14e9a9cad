"""What an experiment is, how it runs, and what it reports."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import DataError
from .harness import (
    Case,
    Results,
    Row,
    Say,
    Work,
    can_measure,
    is_stale,
    outcome,
    run_cases,
    sample_of,
    stale_cases,
    stale_groups,
    table,
)
from .provenance import COMMIT_VARIABLE


@dataclass(frozen=True)
class Settings:
    """How an experiment runs.

    Attributes
    ----------
    quick
        A few minutes on two cores instead of everything.
    data
        Folder of the real data; by default TENSORGROW_DATA.
    figures
        Folder of the figures.
    threads
        BLAS and torch threads; None leaves them as they are.
    runs
        Seeds of each case, in experiments that repeat their cases; None: as many as the experiment says.
    """

    quick: bool = False
    data: Path | None = None
    figures: Path = Path()
    threads: int | None = None
    runs: int | None = None

    def folder(self, name: str) -> Path:
        """Path of a folder of the data; raises DataError where it does not exist."""
        home = self.data or os.environ.get("TENSORGROW_DATA")
        folder = None if home is None else Path(home) / name
        if folder is None or not folder.is_dir():
            raise DataError(
                f"this experiment needs the folder {name!r} of the data, looked for in "
                f"{'nothing' if home is None else home}: give data=FOLDER or set TENSORGROW_DATA"
            )
        return folder


@dataclass
class Report:
    """The measurements as Markdown; `summary` goes into the JSON of the results."""

    title: str
    parts: list[str] = field(default_factory=list)
    summary: Row | None = None

    def say(self, text: str) -> None:
        self.parts.append(text + "\n")

    def tabulate(self, title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self.parts.append(f"**{title}**\n\n{table(head, rows)}")

    def tabulate_rows(self, title: str, rows: Sequence[Row]) -> None:
        """Add a table of rows with the same keys, if there are any."""
        if rows:
            self.tabulate(title, list(rows[0]), [list(r.values()) for r in rows])

    def judge(self, claims: Iterable[tuple[str, str, float]]) -> None:
        """Add a table of claims of the paper: its words, what was measured, the share of it that holds."""
        rows = [
            [words, measured, "reproduced" if share >= 1 else "in part" if share > 0 else "**not**"]
            for words, measured, share in claims
        ]
        if rows:
            self.tabulate("What the paper says", ["the paper says", "measured", "reproduced?"], rows)

    @property
    def text(self) -> str:
        return "\n".join([f"# {self.title}\n", *self.parts])


@dataclass(frozen=True)
class Experiment:
    """Cases, the function that runs one, and how the results are reported and drawn.

    Attributes
    ----------
    title
        What it measures, in one line.
    work
        Runs a case. The results record the parameters of the case, not the settings.
    draw
        Writes figures to the folder in the settings and returns their paths.
    follow_up
        Cases that depend on the rows of the first ones.
    uses
        Modules of the library that the rows depend on, with all that these import; see `modules_hash`.
    """

    name: str
    title: str
    cases: Callable[[Settings], list[Case]]
    work: Callable[[Case, Settings], Row]
    report: Callable[[Results], Report]
    draw: Callable[[Results, Settings], list[Path]] | None = None
    follow_up: Callable[[Results, Sequence[Case]], list[Case]] | None = None
    uses: tuple[str, ...] = ("tasks",)


def run_experiment(
    experiment: Experiment,
    settings: Settings,
    path: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    refresh: bool = False,
    confirm: bool = False,
    match: Sequence[str] = (),
    report_only: bool = False,
    max_seconds: float = math.inf,
    say: Say = lambda text: None,
) -> tuple[Results, Report]:
    """Run the cases of an experiment that are not in a results file yet; return results and report.

    Parameters
    ----------
    fresh
        First discard the rows whose key shares its first two words with a case.
    refresh
        Measure again the rows of an earlier source, with the parameters they have, and no others but the
        follow-ups of rows that came out otherwise.
    confirm
        Measure again a sample of them; where it comes out the same, the others of its group hold.
    match
        Words that the key of a case must contain.
    max_seconds
        Start no case after this many seconds.
    """
    deadline = time.perf_counter() + max_seconds
    cases = [] if report_only or confirm else experiment.cases(settings)
    chosen = _with_words(cases, match)
    if cases and not chosen:
        raise DataError(f"no case has all of the words {' '.join(match)}; a key is such as {cases[0].key}")
    forget = ["/".join(c.key.split("/")[:2]) for c in chosen] if fresh else []
    results = Results(path, jobs=jobs, threads=settings.threads, uses=experiment.uses, forget=forget, say=say)
    work = partial(_work, experiment.work, settings)
    if confirm and COMMIT_VARIABLE not in os.environ:
        raise DataError("rows are confirmed for a commit: commit the library's source first")
    if confirm:
        cases = []
        stale = stale_groups(results, experiment.cases(settings))
        for group in filter(None, (_with_words(g, match) for g in stale)):
            if time.perf_counter() < deadline:
                cases += _confirm(results, group, work, deadline)
    elif refresh:
        cases = _with_words(stale_cases(results, cases), match)
        run_cases(results, cases, work, refresh=True, deadline=deadline)
    if confirm or refresh:
        cases += (more := _with_words(_outdated(experiment, results, settings), match))
        run_cases(results, more, work, deadline=deadline)
    else:
        run_cases(results, cases := chosen, work, deadline=deadline)
        if experiment.follow_up is not None:
            cases += (more := experiment.follow_up(results, cases))
            run_cases(results, more, work, deadline=deadline)
    report = experiment.report(results)
    if failures := sum("failed" in results.cases.get(c.key, {}) for c in cases):
        report.say(f"{failures} of {len(cases)} cases failed; see {path.name}.")
    if report.summary is not None:
        results.summarise(report.summary)
    return results, report


def _outdated(experiment: Experiment, results: Results, settings: Settings) -> list[Case]:
    """Follow-ups that have a row, which was measured after first cases that came out otherwise."""
    if experiment.follow_up is None:
        return []
    cases = experiment.follow_up(results, experiment.cases(settings))
    known = [(c, results.cases[c.key]) for c in cases if c.key in results.cases]
    return [c for c, row in known if not c.is_done(row) and can_measure(row)]


def _confirm(results: Results, group: Sequence[Case], work: Work, deadline: float) -> list[Case]:
    """Measure a sample of a group of stale rows again; the others hold if all of it comes out the same."""
    sample = sample_of(group)
    before = {c.key: outcome(results.cases[c.key]) for c in sample}
    run_cases(results, sample, work, refresh=True, deadline=deadline)
    other = [c.key for c in sample if outcome(results.cases[c.key]) != before[c.key]]
    waiting = [c.key for c in sample if is_stale(results.cases[c.key])]
    if not other and not waiting:
        done = set(before)
        results.confirm([c.key for c in group if c.key not in done], len(sample))
    words = f"another outcome: {', '.join(other)}" if other else "not finished" if waiting else "the same"
    results.say(f"{len(sample)} of {len(group)} rows such as {group[0].key} measured again: {words}")
    return sample


def _with_words(cases: Iterable[Case], words: Sequence[str]) -> list[Case]:
    return [c for c in cases if set(words) <= set(c.key.split("/"))]


def _work(work: Callable[[Case, Settings], Row], settings: Settings, case: Case) -> Row:
    return work(case, settings)


def draw_figures(experiment: Experiment, results: Results, settings: Settings) -> list[Path]:
    """Draw the figures of an experiment; none without rows or without matplotlib."""
    if experiment.draw is None or not results.finished() or find_spec("matplotlib") is None:
        return []
    return experiment.draw(results, settings)
