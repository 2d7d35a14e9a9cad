"""``tensorgrow compare``: our search beside fixed formats at the same error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..errors import MissingPackageError, OptionError
from ..steps import StopReason
from . import ExitCode
from . import options as opt
from .console import emit_json, err, fail, note, out
from .phrases import describe_structure

if TYPE_CHECKING:
    from ..results import Result
    from .inputs import Input

NAME = "compare"
# Rivals of our search, in the order they run.
METHODS = ("TT-SVD, stored order", "TT-SVD, interleaved", "TT-SVD, axes uncut", "Tucker", "CP")


def run(
    data: opt.DataOptions,
    max_error: Annotated[
        float, typer.Option("--max-error", "-e", help="Relative error that every method must reach.")
    ] = 0.1,
    max_seconds: Annotated[
        float, typer.Option(help="Longest time for each method.", rich_help_panel="Search")
    ] = 60.0,
    edges: opt.Edges = "all",
    effort: opt.EffortOption = opt.Effort.balanced,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    report: opt.Report = None,
    as_json: opt.JsonOutput = False,
    quiet: opt.Quiet = False,
) -> None:
    """Compare our search with TT-SVD, Tucker and CP at the same error.

    Example: [cyan]tensorgrow compare photo.png --max-error 0.1 --report photo.html[/]
    """
    from ..tasks.decompose import decompose
    from .inputs import load
    from .outputs import check_outputs, with_source, write_report

    check_outputs([], report=report)
    if not 0.0 < max_error < 1.0:
        raise OptionError(f"--max-error {max_error:g} must lie between 0 and 1 to compare sizes")
    search = opt.SearchOptions(max_error, None, max_seconds, edges, effort, seed, device).keywords()
    source = load(data, max_error, search["edges"])
    begin = time.perf_counter()
    progress = False if quiet else None
    ours = decompose(source.tensor, **search, progress=progress)
    rows = [_row("tensorgrow", ours, time.perf_counter() - begin, max_error)]
    rivals: dict[str, Result] = {}
    interrupted = ours.stop is StopReason.INTERRUPTED
    for name in METHODS:
        if interrupted:
            break
        if not quiet:
            err.print(f"[dim]{name} ...[/]")
        begin = time.perf_counter()
        try:
            result = run_rival(name, source, max_error, max_seconds, seed, progress)
        except MissingPackageError as error:
            note(str(error))
            continue
        except KeyboardInterrupt:
            interrupted = True
            break
        if result is not None:
            rivals[name] = result
            rows.append(_row(name, result, time.perf_counter() - begin, max_error))
            interrupted = result.stop is StopReason.INTERRUPTED
    if report is not None:
        write_report(with_source(ours, source, seed), report, source, rivals=rivals)
    if as_json:
        emit_json(
            {
                "schema": "tensorgrow.comparison/1",
                "command": NAME,
                "input": source.description,
                "tensorization": source.how.to_dict(),
                "max_error": max_error,
                "methods": rows,
                "files": [] if report is None else [str(report)],
            }
        )
    else:
        _print(source, rows, max_error)
        out.print(f"our edges: {describe_structure(ours.structure)}")
        if report is not None:
            out.print(f"report: [green]{escape(str(report))}[/]", soft_wrap=True)
    if interrupted:
        raise typer.Exit(fail("interrupted; these are the results so far", ExitCode.INTERRUPTED))


def run_rival(
    name: str, data: Input, max_error: float, max_seconds: float, seed: int, progress: bool | None
) -> Result | None:
    """Run one of `METHODS`; None where it does not apply."""
    from ..baselines import cp, hosvd, tt_svd

    x = data.tensor
    if name == "Tucker":  # HOSVD: a rank for every mode; one rank for all would be far larger
        return hosvd(x, max_error=max_error, progress=progress)
    if name == "CP":
        if x.ndim < 2:  # a vector has no CP decomposition but itself
            return None
        return cp(x, max_error=max_error, max_seconds=max_seconds, random_state=seed, progress=progress)
    if name == "TT-SVD, axes uncut":  # of a matrix its SVD: digits suit our search, not always a train
        if len(data.how.modes) == data.array.ndim or data.array.ndim < 2:
            return None
        return tt_svd(data.array, max_error=max_error, progress=progress)
    stored, interleaved = _chains(data)
    if name != "TT-SVD, stored order" and interleaved == stored:
        return None
    order = stored if name == "TT-SVD, stored order" else interleaved
    return tt_svd(x, order=order, max_error=max_error, progress=progress)


def _chains(data: Input) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The modes axis by axis, and scale by scale; a mode of several axes is sorted by its first."""
    how = data.how
    modes = range(len(how.modes))
    stored = sorted(modes, key=lambda m: how.modes[m][0] if how.modes[m] else (-1, -1))

    def scale(m: int) -> tuple[int, int, int]:
        axis, place = how.modes[m][0] if how.modes[m] else (0, 0)
        places = len(how.digits[axis])
        return (1, 0, axis) if places == 1 else (0, place - places, axis)

    return tuple(stored), tuple(sorted(modes, key=scale))


def _row(name: str, result: Result, seconds: float, max_error: float) -> dict[str, Any]:
    return {
        "method": name,
        "num_parameters": result.num_parameters,
        "relative_error": result.relative_error,
        "reached": result.relative_error <= max_error * (1.0 + 1e-9),
        "seconds": seconds,
    }


def _print(data: Input, rows: list[dict[str, Any]], max_error: float) -> None:
    out.print(f"{escape(data.description)}\n{data.how}")
    failed = not all(row["reached"] for row in rows)
    table = Table(
        title=f"size at relative error {max_error:g}",
        title_justify="left",
        caption="! the error was not reached in time" if failed else None,
        caption_justify="left",
    )
    for name in ("method", "parameters", "times ours", "error", "seconds"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    ours = rows[0]
    smallest = min((r["num_parameters"] for r in rows if r["reached"]), default=None)
    for row in rows:
        size, error = f"{row['num_parameters']:,}", f"{row['relative_error']:.4g}"
        best = row["reached"] and row["num_parameters"] == smallest
        both = row["reached"] and ours["reached"]
        table.add_row(
            row["method"],
            f"[bold green]{size}[/]" if best else size,
            f"{row['num_parameters'] / ours['num_parameters']:.2f}" if both else "-",
            error if row["reached"] else f"[yellow]{error} ![/]",
            f"{row['seconds']:.1f}",
        )
    out.print(table)
