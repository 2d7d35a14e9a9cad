"""``tensorgrow report``: the page about a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ..errors import FileFormatError
from ..results import Result
from ..tasks.api import load
from .console import out
from .outputs import check_outputs, write_report
from .reconstruct import NetworkFile

__all__ = ["NAME", "run"]

NAME = "report"


def run(
    network: NetworkFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page; by default NETWORK.html.", show_default=False),
    ] = None,
) -> None:
    """Write a page about a saved run that opens in any browser, without a network connection.

    Example: [cyan]tensorgrow report photo.safetensors -o photo.html[/]
    """
    path = Path(f"{network.stem}.html") if output is None else output
    check_outputs([], report=path)
    result = load(network)
    if not isinstance(result, Result):
        raise FileFormatError(f"{network} holds a {type(result).__name__}; the result of a run is needed")
    write_report(result, path, saved_as=network.name)
    out.print(f"report: [green]{escape(str(path))}[/]", soft_wrap=True)
