"""From a result to files, a table and JSON."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.markup import escape

from .._version import __version__
from ..callbacks.signals import Interrupts
from ..data.array_files import NETCDF, WRITABLE
from ..data.devices import one_thread
from ..data.sizes import bytes_text, stored_bytes
from ..data.tensorization import Tensorization
from ..errors import FileFormatError, OptionError, WriteError, counted
from ..report import write_report as write_page
from ..report.comparison import Comparison
from ..report.numbers import members_of
from ..results import Result
from ..steps import StopReason
from ..structure import Structure
from . import ExitCode
from .console import emit_json, err, note, print_facts
from .inputs import Input
from .options import OutputOptions
from .phrases import describe_comparison, describe_size, describe_structure
from .stored import NETWORK_SUFFIX, Stored, StoredNetwork
from .tables import Table


def check_outputs(
    outputs: Sequence[Path],
    writable: Sequence[str] = WRITABLE,
    *,
    report: Path | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Refuse paths that cannot be written, before any time is spent."""
    endings = (NETWORK_SUFFIX, *writable)
    for path in outputs:
        if path.suffix.lower() not in endings:
            raise FileFormatError(f"cannot write {path}: give a name that ends in {', '.join(endings)}")
    if report is not None:
        from ..report.markup import check_page_name

        check_page_name(report)
    for path in [*outputs, *(p for p in (report, checkpoint) if p is not None)]:
        folder = path.parent
        if not folder.is_dir():
            raise OptionError(f"cannot write {path}: the folder {folder} does not exist")
        if path.is_dir() and path.suffix.lower() != ".zarr":
            raise OptionError(f"cannot write {path}: it is a folder")
        # A file is replaced, which needs the right to write to its folder; so does one behind a link.
        if not os.access(Path(os.path.realpath(path)).parent, os.W_OK):
            raise OptionError(f"cannot write {path}: permission denied")
        if path.exists() and not os.access(path, os.W_OK):
            raise OptionError(f"cannot write {path}: permission denied")


def prepare_outputs(
    output: OutputOptions,
    default: Sequence[Path],
    inputs: Mapping[str, Path | None],
    writable: Sequence[str] = WRITABLE,
) -> OutputOptions:
    """Fill in `default` where no files were named, and check that all files can be written.

    Nothing that the command reads (`inputs`, by what they are) or resumes from is ever replaced: a name of
    the user's is refused then, and of our own another is taken.
    `writable` are the endings of files that hold the data itself.
    """
    kept = {"checkpoint": output.checkpoint, **inputs}
    files = list(output.output or ())
    for path in default if not files else ():
        chosen = path
        while what := _taken(chosen, kept):
            chosen = chosen.with_stem(f"{chosen.stem}-result")
            note(f"{path} is the {what}; the result goes to {chosen}")
        files.append(chosen)
    for path in files:
        if what := _taken(path, kept):
            raise OptionError(f"-o {path} would replace the {what}; choose another name")
    check_outputs(files, writable, report=output.report, checkpoint=output.checkpoint)
    return replace(output, output=files)


def _taken(path: Path, kept: Mapping[str, Path | None]) -> str | None:
    """What this file is that must be kept, if it is any."""
    for what, other in kept.items():
        if other is not None and path.resolve() == other.resolve():
            return what
    return None


def make_folder(path: Path) -> None:
    """Make sure that a folder exists and can be written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise OptionError(f"cannot write to {path}: it is a file, a folder is needed") from error
    if not os.access(path, os.W_OK):
        raise OptionError(f"cannot write to {path}: permission denied")


def with_source(result: Result, data: Input | Stored | StoredNetwork | Table, seed: int) -> Result:
    """Return the result with what is known of the file it came from."""
    info = {**result.info, "source": data.source.to_dict(), "seed": seed}
    if Path(data.source.name).suffix.lower() in NETCDF:
        info["container"] = "xarray"
    return replace(result, tensorization=data.how, axes=data.axes, info=info)


def finish(
    command: str,
    result: Result,
    data: Input | Stored | StoredNetwork | Table,
    output: OutputOptions,
    *,
    seed: int,
    keep_observed: bool = True,
) -> None:
    """Save everything, print the result, and exit with 130 if the run was interrupted, or is now."""
    result = with_source(result, data, seed)
    # Over a small array two threads that wait for each other take longer than one.
    is_small = result.structure.num_entries <= 1_000_000
    with Interrupts() as interrupts, one_thread() if is_small else nullcontext():
        interrupts.hold()  # until everything is written
        comparison = data.compare(result)
        if comparison is not None:
            result = replace(result, info={**result.info, "interpolation": comparison.to_dict()})
        files = output.output or []
        for path in files:
            if path.suffix.lower() == NETWORK_SUFFIX:
                _save(result, path, whole=output.history)
            else:
                data.write(path, result, keep_observed)
        if output.report is not None:
            networks = [p.name for p in files if p.suffix.lower() == NETWORK_SUFFIX]
            saved_as = networks[0] if networks else None
            write_report(result, output.report, data, saved_as=saved_as, comparison=comparison)
    written = [str(p) for p in (*files, output.report) if p is not None]
    quality = data.measure(result, keep_observed)
    document = describe_result(command, result, data, quality, written, output.checkpoint)
    if output.as_json:
        emit_json(document)
    else:
        print_facts(_facts(document))
    if result.stop is StopReason.INTERRUPTED or interrupts.count:
        saved = escape(", ".join(written))
        err.print(f"[bold yellow]interrupted:[/] the best network so far is saved ({saved})", soft_wrap=True)
        raise typer.Exit(ExitCode.INTERRUPTED)


def _save(result: Result, path: Path, *, whole: bool) -> None:
    """Save a network; where there is no room for it, elsewhere: it may have taken hours."""
    try:
        result.save(path, whole=whole)
    except WriteError as error:
        try:
            rescued = Path(tempfile.mkdtemp(prefix="tensorgrow-")) / path.name
            result.save(rescued, whole=whole)
        except OSError:
            raise error from None
        raise WriteError(f"{error}. The network is saved as {rescued} instead") from error


def write_report(
    result: Result,
    path: Path,
    data: Input | Stored | StoredNetwork | Table | None = None,
    *,
    saved_as: str | None = None,
    rivals: Mapping[str, Result] | None = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the page about a run, with images where the data is a picture."""
    how = result.tensorization
    source = result.info.get("source") or {}
    options: dict[str, Any] = {"title": source.get("name"), "saved_as": saved_as, "rivals": rivals}
    if isinstance(data, Input) and np.isfinite(data.array).all():
        options["truth"] = data.array
    if isinstance(data, Input) and data.known is not None:
        options |= {"observed": np.where(data.known, data.array, np.nan), "comparison": comparison}
    if source.get("kind") == "picture":
        options["image"] = result.structure.dims if how is None else how.shape
    write_page(result, path, **options)


def describe_result(
    command: str,
    result: Result,
    data: Input | Stored | StoredNetwork | Table | None = None,
    quality: dict[str, float] | None = None,
    files: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """The document behind ``--json``; docs/command-line.md describes its fields."""
    how = result.tensorization
    return {
        "schema": "tensorgrow.result/1",
        "command": command,
        "version": __version__,
        "input": None if data is None else data.description,
        "source": result.info.get("source"),
        "shape": list(result.structure.dims if how is None else how.shape),
        "tensorization": None if how is None else how.to_dict(),
        "names": None if result.axes is None else list(result.axes.names),
        "leg_names": None if result.leg_names is None else list(result.leg_names),
        "num_parameters": result.num_parameters,
        "compression_ratio": result.compression_ratio,
        "num_bytes": result.num_bytes,
        "data_bytes": result.data_bytes,
        "relative_error": result.errors.total,
        "error_name": result.errors.name,
        "validation_error": result.validation_error,
        "test_error": result.test_error,
        "gaps": result.info.get("gaps"),
        "array_error": (quality or {}).get("array_error"),
        "psnr": (quality or {}).get("psnr"),
        "interpolation": result.info.get("interpolation"),
        "observed": None if data is None else data.num_known,
        "members": members_of(result) or None,
        "structure": result.structure.to_dict(),
        "steps": len(result.history),
        "stop": {"name": result.stop.name, "text": result.stop.text},
        "seconds": result.info.get("seconds"),
        "seed": result.info.get("seed"),
        "device": result.info.get("device"),
        "files": list(files),
        "file_bytes": [stored_bytes(Path(f)) for f in files],
        "checkpoint": None if checkpoint is None else str(checkpoint),
    }


def _facts(d: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What to print of a document: first the error to judge a completion by, and what it is worth."""
    errors = dict(_errors(d))
    if d["observed"] is not None:
        yield from errors.items()
    if d["input"]:
        yield "data", escape(d["input"])
    if d["observed"] is not None:
        entries = int(np.prod(d["shape"]))
        yield "known", f"{d['observed']:,} of {entries:,} entries ({d['observed'] / entries:.1%})"
    if d["members"]:
        yield "members", f"{len(d['members'])}; tensor and edges are those of the best"
    if d["gaps"] is not None:
        yield "gaps", escape(d["gaps"]) + ("" if d["gaps"] == "random" else "; held out alike")
    if d["tensorization"]:
        yield "tensor", str(Tensorization.from_dict(d["tensorization"]))
    yield (
        "parameters",
        describe_size(d["num_parameters"], d["compression_ratio"], d["num_bytes"], d["data_bytes"]),
    )
    if d["observed"] is None:
        yield from errors.items()
    yield "edges", describe_structure(Structure.from_dict(d["structure"]))
    yield "stopped", f"{d['stop']['name']}. {d['stop']['text']}"
    if d["seconds"] is not None:
        yield "time", f"{d['seconds']:.1f} s, {counted(d['steps'], 'step')}"
    for path, size in zip(d["files"], d["file_bytes"]):
        yield "written", f"[green]{escape(path)}[/], {bytes_text(size)}"
    if d["checkpoint"]:
        yield "checkpoint", escape(d["checkpoint"])


def _errors(d: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if d["test_error"] is not None:
        yield "hidden entries", f"[bold]{d['test_error']:.4g}[/] {d['error_name']}"
    held_out = None if d["validation_error"] is None else f"[bold]{d['validation_error']:.4g}[/]"
    comparison = Comparison.from_dict(d["interpolation"])
    if held_out is not None and d["test_error"] is None:
        yield "held-out error", held_out
    if comparison is not None:
        yield "interpolation", describe_comparison(comparison)
    if d["psnr"] is not None:
        yield "picture", f"PSNR {d['psnr']:.1f} dB"
    if held_out is not None and d["test_error"] is not None:
        yield "held-out error", held_out
    known = " on known entries" if d["observed"] is not None else ""
    yield d["error_name"], f"[bold]{d['relative_error']:.4g}[/]{known}"
