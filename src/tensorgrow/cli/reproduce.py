"""``tensorgrow reproduce``: the experiments of the paper, measured results beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import DataError, OptionError
from . import ExitCode
from . import options as opt
from .console import emit_json, err, note, out

NAME = "reproduce"
ALL = "all"
# The keys of `tensorgrow.experiments.EXPERIMENTS`, which takes torch to import.
EXPERIMENTS = ("decomposition", "ablation", "timing", "high-order", "demos", "images", "completion", "mnist")


def run(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(EXPERIMENTS)}, or {ALL}.", metavar="NAME")],
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes on two cores.")] = False,
    folder: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of JSON, report and figures.", metavar="FOLDER")
    ] = Path("reproduction"),
    processes: Annotated[int, typer.Option(help="Cases run at the same time.", min=1)] = 1,
    runs: Annotated[int | None, typer.Option(help="Seeds of each case, where cases repeat.", min=1)] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of real data; default: TENSORGROW_DATA.", metavar="FOLDER")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard earlier results.")] = False,
    as_json: opt.JsonOutput = False,
) -> None:
    """Run an experiment of the paper again, or resume one that was stopped.

    Cases that are already in the folder are not run again. "all" skips experiments without their data. The
    exit code is 1 if cases failed or experiments were skipped.
    """
    from ..experiments import reproduce

    names = list(EXPERIMENTS) if name == ALL else [name]
    if unknown := [n for n in names if n not in EXPERIMENTS]:
        raise OptionError(
            f"there is no experiment {unknown[0]!r}; choose one of {', '.join(EXPERIMENTS)}, {ALL}"
        )
    written: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for each in names:
        try:
            done = reproduce(
                each,
                quick=quick,
                folder=folder,
                processes=processes,
                runs=runs,
                data=data,
                fresh=fresh,
                say=lambda text: err.print(text, markup=False, soft_wrap=True),
            )
        except DataError as error:
            if name != ALL:
                raise
            skipped.append({"name": each, "reason": str(error)})
            note(f"{each} is left out: {error}")
            continue
        written.append(
            {
                "name": done.name,
                "results": str(done.results),
                "report": str(done.report),
                "figures": [str(f) for f in done.figures],
                "failures": done.failures,
            }
        )
        if not as_json:
            out.print(done.text, markup=False, soft_wrap=True)
            for path in (done.results, done.report, *done.figures):
                out.print(f"wrote {path}", markup=False, soft_wrap=True)
    if as_json:
        emit_json({"schema": "tensorgrow.reproduce/1", "experiments": written, "skipped": skipped})
    elif skipped:
        # Repeated at the end, where it cannot be missed.
        note(f"left out for lack of data: {', '.join(s['name'] for s in skipped)}")
    if skipped or any(w["failures"] for w in written):
        raise typer.Exit(ExitCode.INCOMPLETE)
