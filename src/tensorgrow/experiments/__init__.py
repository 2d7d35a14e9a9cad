"""Every experiment of the paper by one call: resumable, in parallel, with what the paper says beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ..errors import OptionError
from . import ablation, completion, decomposition, demos, high_order, images, mnist, timing
from .experiment import Experiment, Settings
from .harness import Results, Row, Say, run_cases

__all__ = ["EXPERIMENTS", "Reproduction", "reproduce"]

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        module.EXPERIMENT.name: module.EXPERIMENT
        for module in (decomposition, ablation, timing, high_order, demos, images, completion, mnist)
    }
)


@dataclass(frozen=True)
class Reproduction:
    """Where an experiment left its results.

    Attributes
    ----------
    text
        The report, in Markdown; also in `report`.
    failures
        Cases that raised an exception; they are tried again next time.
    """

    name: str
    text: str
    results: Path
    report: Path
    figures: tuple[Path, ...]
    failures: int


def reproduce(
    name: str,
    *,
    quick: bool = False,
    folder: str | Path = "reproduction",
    processes: int = 1,
    data: str | Path | None = None,
    fresh: bool = False,
    say: Say = lambda text: None,
) -> Reproduction:
    """Run an experiment of the paper, or go on with one.

    Parameters
    ----------
    name
        A key of `EXPERIMENTS`.
    quick
        A few minutes on two cores.
    folder
        Where JSON, report and figures go. Cases that are there already are not run again.
    processes
        Cases run at the same time, each in a process of its own.
    data
        Folder of real data, for the experiments that need it; by default TENSORGROW_DATA.
    fresh
        Forget what is there.
    say
        Told what happens, line by line.
    """
    if name not in EXPERIMENTS:
        raise OptionError(f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    if processes < 1:
        raise OptionError(f"processes={processes} must be at least 1")
    experiment = EXPERIMENTS[name]
    home = Path(folder)
    settings = Settings(quick, None if data is None else Path(data))
    cases = experiment.cases(settings)
    stem = f"{name}-quick" if quick else name
    results = Results(home / f"{stem}.json", jobs=processes, forget=("",) if fresh else (), say=say)
    run_cases(results, cases, partial(_work, name, settings), report=_line)
    found = experiment.report(results)
    failures = results.failures("")
    if failures:
        found.say(f"{failures} of {len(cases)} cases failed; see {stem}.json.")
    page = home / f"{stem}.md"
    page.write_text(found.text, encoding="utf-8")
    figures = () if experiment.draw is None else tuple(experiment.draw(results, home))
    return Reproduction(name, found.text, results.path, page, figures, failures)


def _work(name: str, settings: Settings, params: Row) -> Row:
    """A case, found by name: functions of modules can be sent to other processes."""
    return EXPERIMENTS[name].work(params, settings)


def _line(row: Row) -> str:
    seconds = row.get("seconds")
    time = "" if seconds is None else f", {seconds:.1f} s"
    return f"{row['size']:,} parameters, error {row['error']:.3g}{time}"
