"""All commands, put together."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from . import compare, complete, decompose, demo, fit, reconstruct, report, show, version

__all__ = ["GROUPS", "app", "command"]

# Groups of commands that live elsewhere: name -> module that has a Typer called `app`.
GROUPS: dict[str, str] = {}

app = typer.Typer(
    name="tensorgrow",
    help="Learn the structure of a tensor network from data: graph, ranks and weights.",
    epilog="Start with: tensorgrow demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (demo, decompose, complete, fit, reconstruct, show, compare, report, version):
    app.command(_module.NAME)(_module.run)
for _name, _path in GROUPS.items():
    app.add_typer(importlib.import_module(_path).app, name=_name)


def command() -> Any:
    """The click command behind the app."""
    return typer.main.get_command(app)
