"""The experiments of the paper: resumable, in parallel, reported beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..data.atomic_file import replacing
from ..errors import OptionError, check_whole
from . import ablation, completion, decomposition, demos, high_order, images, iteration_time, mnist
from .experiment import Experiment, Settings, draw_figures, run_experiment
from .harness import Say

__all__ = ["EXPERIMENTS", "Reproduction", "reproduce"]

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        module.EXPERIMENT.name: module.EXPERIMENT
        for module in (decomposition, ablation, iteration_time, high_order, demos, images, completion, mnist)
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
        Cases that raised an exception; the next run tries them again.
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
    runs: int | None = None,
    data: str | Path | None = None,
    fresh: bool = False,
    say: Say = lambda text: None,
) -> Reproduction:
    """Run an experiment of the paper, or resume it.

    Parameters
    ----------
    name
        A key of `EXPERIMENTS`.
    quick
        A few minutes on two cores.
    folder
        Where JSON, report and figures go. Cases that are already there are not run again.
    processes
        Cases to run at the same time, each in its own process.
    runs
        Seeds of each case, in experiments that repeat their cases; by default as many as in the paper, or
        what the experiment can afford.
    data
        Folder of the real data that some experiments need; by default TENSORGROW_DATA.
    fresh
        Discard earlier results.
    say
        Called with each line of the log.
    """
    if name not in EXPERIMENTS:
        raise OptionError(f"there is no experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    if processes < 1:
        raise OptionError(f"processes={processes} must be at least 1")
    if runs is not None:
        check_whole("runs", runs)
    experiment, home = EXPERIMENTS[name], Path(folder)
    settings = Settings(quick, None if data is None else Path(data), figures=home, runs=runs)
    stem = f"{name}-quick" if quick else name
    results, report = run_experiment(
        experiment, settings, home / f"{stem}.json", jobs=processes, fresh=fresh, say=say
    )
    page = home / f"{stem}.md"
    with replacing(page) as temporary:
        temporary.write_text(report.text, encoding="utf-8")
    figures = tuple(draw_figures(experiment, results, settings))
    return Reproduction(name, report.text, results.path, page, figures, results.failures())
