"""Options that several commands share, with one name and one meaning."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import OptionError

if TYPE_CHECKING:
    from ..data.tensorization import Order as Layout


class Effort(StrEnum):
    """How hard to search."""

    fast = "fast"
    balanced = "balanced"
    thorough = "thorough"


class ModeOrder(StrEnum):
    """How digits of axes become modes."""

    C = "C"
    F = "F"
    interleaved = "interleaved"
    grouped = "grouped"

    @property
    def literal(self) -> Layout:
        """The value as the library's type."""
        return self.value


_data, _search, _output = (partial(typer.Option, rich_help_panel=p) for p in ("Data", "Search", "Output"))

NetworkFile = Annotated[Path, typer.Argument(metavar="NETWORK", help="A .safetensors file.")]
Seed = Annotated[int, _search("--seed", help="Seed of all random numbers.", min=0, max=2**63 - 1)]
MaxError = Annotated[float | None, _search("--max-error", "-e", help="Relative error to reach.")]
MaxParameters = Annotated[int | None, _search("--max-parameters", "-p", help="Largest size of the network.")]
MaxSeconds = Annotated[float | None, _search("--max-seconds", help="Longest time of the search.")]
Edges = Annotated[
    str,
    _search(
        "--edges", help="Modes that may be joined: all, chain, ring, or pairs such as [cyan]0-1,1-2,0-3[/]."
    ),
]
EffortOption = Annotated[Effort, _search("--effort", help="How hard to search.")]
Device = Annotated[str, _search("--device", help="auto, cpu, cuda or cuda:1.")]
Outputs = Annotated[
    list[Path] | None,
    _output(
        "--output",
        "-o",
        metavar="PATH",
        help="What to write, by its ending: the network (.safetensors), or the array it stands for (.npy, "
        ".png, ...). May be given several times.",
    ),
]
Report = Annotated[Path | None, _output("--report", help="Write a page about the run (.html).")]
KeepObserved = Annotated[
    bool,
    _output("--keep-observed/--predict-all", help="Whether known entries keep their values in the output."),
]
JsonOutput = Annotated[bool, _output("--json", help="Print the result as JSON instead of a table.")]
Quiet = Annotated[bool, _output("--quiet", "-q", help="No live progress line, and no lines in its place.")]


@dataclass(frozen=True)
class DataOptions:
    """Which array to read, and how it becomes a tensor."""

    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The data: .npy, .npz, .mat, a picture, HDF5, zarr or netCDF."),
    ]
    key: Annotated[
        str | None,
        _data(
            "--key", "-k", help="Which array of a file that holds several, or the value column of a table."
        ),
    ] = None
    tensorize: Annotated[
        str | None,
        _data(
            "--tensorize",
            "-t",
            metavar="SHAPE",
            help="Shape of the tensor: [cyan]4x4x4x4[/], digits of each axis [cyan]8x8x8,8x8x8,3[/], "
            "[cyan]auto[/] or [cyan]none[/]. By default auto for pictures, matrices and vectors, none for "
            "the rest.",
        ),
    ] = None
    order: Annotated[
        ModeOrder | None,
        _data(
            "--order", help="How axes become modes: row-major, column-major, by scale, or one mode per scale."
        ),
    ] = None
    names: Annotated[
        str | None,
        _data(
            "--names",
            metavar="NAMES",
            help="Names of the axes, such as [cyan]x,y,z,t[/]; by default those of the file.",
        ),
    ] = None

    @property
    def inputs(self) -> dict[str, Path | None]:
        """Files that are read, by what they are."""
        return {"data": self.file}


@dataclass(frozen=True)
class KnownOptions(DataOptions):
    """An array of which some entries may be missing."""

    mask: Annotated[
        Path | None,
        _data(
            "--mask",
            help="File of the same shape: not zero (white) where entries are known. NaN is missing anyway.",
        ),
    ] = None
    observed: Annotated[
        float | None,
        _data(
            "--observed",
            metavar="SHARE",
            help="Try it out: keep this share of the entries, drawn with --seed, and hide the others.",
        ),
    ] = None

    @property
    def inputs(self) -> dict[str, Path | None]:
        return {**super().inputs, "mask": self.mask}


@dataclass(frozen=True)
class SearchOptions:
    """Limits of a search and how it runs."""

    max_error: MaxError = None
    max_parameters: MaxParameters = None
    max_seconds: MaxSeconds = None
    edges: Edges = "all"
    effort: EffortOption = Effort.balanced
    seed: Seed = 0
    device: Device = "auto"

    def keywords(self) -> dict[str, Any]:
        """Keywords for `tensorgrow.decompose` and `tensorgrow.complete`."""
        return {
            "max_error": self.max_error,
            "max_parameters": self.max_parameters,
            "max_seconds": self.max_seconds,
            "edges": parse_edges(self.edges),
            "effort": self.effort.value,
            "random_state": self.seed,
            "device": self.device,
        }


@dataclass(frozen=True)
class OutputOptions:
    """What a run writes and prints."""

    output: Outputs = None
    report: Report = None
    checkpoint: Annotated[
        Path | None,
        _output(
            "--checkpoint", help="Keep the state of the run in this file, and resume from it where it exists."
        ),
    ] = None
    bounds: Annotated[
        str | None,
        _output(
            "--bounds",
            metavar="LOW,HIGH",
            help="Least and largest value of what is written, such as [cyan]0,[/] for counts, [cyan]0,1[/].",
        ),
    ] = None
    history: Annotated[
        bool,
        _output(
            "--history", help="Keep the whole run in the file of the network: all networks on the way, too."
        ),
    ] = False
    as_json: JsonOutput = False
    quiet: Quiet = False

    def keywords(self) -> dict[str, Any]:
        """Progress, checkpoint and bounds as keywords for the library."""
        return {
            "progress": False if self.quiet else None,
            "callbacks": None if self.quiet else log_lines(),
            "checkpoint": self.checkpoint,
            "bounds": parse_bounds(self.bounds),
        }


def parse_bounds(text: str | None) -> tuple[float | None, ...] | None:
    """The least and the largest value; either may be left out."""
    if text is None:
        return None
    try:
        bounds = tuple(float(part) if part.strip() else None for part in text.split(","))
    except ValueError:
        bounds = ()
    if len(bounds) != 2:
        raise OptionError(f"--bounds {text!r} is not known; give LOW,HIGH such as 0,1, or 0, for counts")
    return bounds


def log_lines() -> list[Any]:
    """What tells of a run where there is no terminal for a live line: plain lines on standard error."""
    if sys.stderr.isatty():
        return []
    from ..callbacks.progress import LogLines

    return [LogLines(lambda line: sys.stderr.write(line + "\n"))]


def parse_edges(text: str) -> str | list[tuple[int, ...]]:
    """The name of a set of edges, or a list of pairs."""
    if text in ("all", "chain", "ring"):
        return text
    if not re.fullmatch(r"\d+-\d+(,\d+-\d+)*", text):
        raise OptionError(
            f"--edges {text!r} is not known; give all, chain, ring, or pairs such as 0-1,1-2,0-3"
        )
    return [tuple(int(k) for k in pair.split("-")) for pair in text.split(",")]


def spread(run: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter of `run` that is one of the dataclasses above by its fields, for Typer."""
    groups: dict[str, tuple[Any, list[str]]] = {}
    options: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(run, eval_str=True).parameters.items():
        group: Any = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            members = inspect.signature(group, eval_str=True).parameters
            groups[name] = group, list(members)
            options |= members
        else:
            options[name] = parameter

    @wraps(run)
    def wrapper(**values: Any) -> None:
        grouped = {name: kind(**{n: values.pop(n) for n in names}) for name, (kind, names) in groups.items()}
        run(**values, **grouped)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options.values()]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
