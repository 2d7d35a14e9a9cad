"""``tensorgrow report``: the page about a saved run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from . import options as opt
from .console import emit_json, out

NAME = "report"


def run(
    network: opt.NetworkFile,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; by default NETWORK.html.")
    ] = None,
    as_json: opt.JsonOutput = False,
) -> None:
    """Write a page about a saved run that opens in any browser, without a network connection.

    Example: [cyan]tensorgrow report photo.safetensors -o photo.html[/]
    """
    from .inputs import load_result
    from .outputs import check_outputs, write_report

    path = Path(f"{network.stem}.html") if output is None else output
    check_outputs([], report=path)
    write_report(load_result(network, with_history=True), path, saved_as=network.name)
    if as_json:
        emit_json(
            {"schema": "tensorgrow.page/1", "command": NAME, "network": str(network), "file": str(path)}
        )
        return
    out.print(f"report: [green]{escape(str(path))}[/]", soft_wrap=True)
