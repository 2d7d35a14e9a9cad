"""Options that several commands share: same name, same meaning."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..data.tensorization import Order as Layout

__all__ = [
    "Checkpoint",
    "Device",
    "Edges",
    "Effort",
    "EffortOption",
    "InputFile",
    "JsonOutput",
    "Key",
    "MaxError",
    "MaxParameters",
    "MaxSeconds",
    "ModeOrder",
    "Order",
    "Outputs",
    "Quiet",
    "Report",
    "Seed",
    "Tensorize",
]


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
        """The name as the library takes it."""
        return self.value


_DATA, _SEARCH, _FILES = "Data", "Search", "Output"

InputFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The data: .npy, .npz, .mat, a picture, HDF5, zarr or netCDF.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", "-k", help="Which array of a file that holds several.", rich_help_panel=_DATA),
]
Tensorize = Annotated[
    str | None,
    typer.Option(
        "--tensorize",
        "-t",
        metavar="SHAPE",
        help="Shape of the tensor: [cyan]4x4x4x4[/], digits of each axis [cyan]8x8x8,8x8x8,3[/], "
        "[cyan]auto[/] or [cyan]none[/]. By default "
        "auto for pictures, matrices and vectors, none for the rest.",
        rich_help_panel=_DATA,
        show_default=False,
    ),
]
Order = Annotated[
    ModeOrder | None,
    typer.Option(
        "--order",
        help="How axes become modes: row-major, column-major, by scale, or one mode per scale.",
        rich_help_panel=_DATA,
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", help="Seed of all random numbers.", rich_help_panel=_SEARCH, min=0, max=2**63 - 1),
]
MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error", "-e", help="Relative error to reach.", rich_help_panel=_SEARCH, show_default=False
    ),
]
MaxParameters = Annotated[
    int | None,
    typer.Option(
        "--max-parameters",
        "-p",
        help="Largest size of the network.",
        rich_help_panel=_SEARCH,
        show_default=False,
    ),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds", help="Longest time of the search.", rich_help_panel=_SEARCH, show_default=False
    ),
]
Edges = Annotated[
    str,
    typer.Option(
        "--edges",
        help="Modes that may be joined: all, chain, ring, or pairs such as [cyan]0-1,1-2,0-3[/].",
        rich_help_panel=_SEARCH,
    ),
]
EffortOption = Annotated[
    Effort, typer.Option("--effort", help="How hard to search.", rich_help_panel=_SEARCH)
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.", rich_help_panel=_SEARCH)]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Keep the state of the run in this file, and go on from it where it exists.",
        rich_help_panel=_FILES,
        show_default=False,
    ),
]
Outputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="What to write, by its ending: the network (.safetensors), or the array it stands for (.npy, "
        ".png, ...). May be given several times.",
        rich_help_panel=_FILES,
        show_default=False,
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report", help="Write a page about the run (.html).", rich_help_panel=_FILES, show_default=False
    ),
]
JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON instead of a table.", rich_help_panel=_FILES)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No live progress line.", rich_help_panel=_FILES)]
