"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from .._version import __version__
from . import (
    ExitCode,
    compare,
    complete,
    decompose,
    demo,
    fit,
    reconstruct,
    report,
    reproduce,
    show,
    update,
    version,
)
from .console import fail, out
from .interruption import LOST
from .options import spread


def _interruptible(run: Callable[..., None]) -> Callable[..., None]:
    """Report a Ctrl-C that no search has caught; Typer would exit silently."""

    @wraps(run)
    def wrapper(*arguments: Any, **options: Any) -> None:
        try:
            run(*arguments, **options)
        except KeyboardInterrupt as error:
            code = fail(LOST, ExitCode.INTERRUPTED)
            raise typer.Exit(code) from error

    return wrapper


app = typer.Typer(
    name="tensorgrow",
    help="Learn the structure of a tensor network from data: graph, ranks and weights.",
    epilog="Start with: tensorgrow demo",
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (
    demo,
    decompose,
    complete,
    update,
    fit,
    reconstruct,
    show,
    compare,
    report,
    reproduce,
    version,
):
    app.command(_module.NAME)(_interruptible(spread(_module.run)))


@app.callback()
def start(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Show the version, or the help where nothing was asked for."""
    if show_version:
        out.print(f"tensorgrow {__version__}")
    elif context.invoked_subcommand is None:
        context.get_help()  # Typer prints it
    else:
        return
    raise typer.Exit


def command() -> Any:
    """The click command behind the app."""
    return typer.main.get_command(app)
