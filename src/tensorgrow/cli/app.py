"""All commands, put together."""

from __future__ import annotations

from typing import Any

import typer

from . import compare, complete, decompose, demo, fit, reconstruct, report, reproduce, show, version

__all__ = ["app", "command"]

app = typer.Typer(
    name="tensorgrow",
    help="Learn the structure of a tensor network from data: graph, ranks and weights.",
    epilog="Start with: tensorgrow demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (demo, decompose, complete, fit, reconstruct, show, compare, report, reproduce, version):
    app.command(_module.NAME)(_module.run)


def command() -> Any:
    """The click command behind the app."""
    return typer.main.get_command(app)
