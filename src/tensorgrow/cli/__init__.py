"""The command line `tensorgrow`: thin commands over the library.

Bad input ends with exit code 2 and one line on standard error. Ctrl-C ends with 130, after saving the best
network so far; SIGTERM with 143 and SIGHUP with 129 likewise. Results go to standard output, progress and
notes to standard error.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ..errors import DataWarning, MissingPackageError, TensorgrowError, import_package
from .interruption import Interruption

__all__ = ["ExitCode", "main", "run"]


class ExitCode(IntEnum):
    """Exit codes other than 0."""

    INCOMPLETE = 1
    """Cases of an experiment failed, or experiments were left out."""
    BAD_INPUT = 2
    INTERRUPTED = 130
    """Ctrl-C, as shells number it: 128 plus the signal; other signals have numbers of their own."""


def main() -> None:
    """Entry point of the script."""
    with Interruption() as interruption:
        code = run(sys.argv[1:])
        if code == ExitCode.INTERRUPTED:
            code = interruption.exit_code
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # Python would try again at its exit, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Ctrl-C inside code that a library runs from a string leaves a flag in CPython that makes `python -m` die
    # by the signal although it was caught here; running another string clears the flag (run_eval_code_obj).
    exec("")
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        for package in ("rich", "typer"):
            import_package(package, "the command line needs typer and rich", "cli")
    except MissingPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        return ExitCode.BAD_INPUT
    import typer

    from .app import command
    from .console import fail, note

    # Newer versions of Typer contain a copy of click: this finds the usage error of either.
    usage_error: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    with warnings.catch_warnings():
        warnings.simplefilter("default", DataWarning)
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        try:
            code = command().main(list(arguments), prog_name="tensorgrow", standalone_mode=False)
        except SystemExit as error:
            # Nobody reads on: `tensorgrow show x.safetensors | head -3`. Rich and click exit with 1 then.
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            code = 0
        except usage_error as error:
            return fail(error.format_message(), ExitCode.BAD_INPUT)
        except (TensorgrowError, OSError) as error:
            return fail(str(error), ExitCode.BAD_INPUT)
        except MemoryError as error:
            return fail(f"not enough memory: {error}", ExitCode.BAD_INPUT)
    return code if isinstance(code, int) else 0
