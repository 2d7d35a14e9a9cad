"""Output to the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text


class PlainConsole(Console):
    """A console on which text from files cannot act on the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(text.translate(_CONTROLS), **options)


# Escapes and other control characters, and those that turn the direction of writing: what a name in a file
# must not do to a terminal. Line ends and tabs are layout.
_CONTROLS = {
    code: "\N{REPLACEMENT CHARACTER}"
    for codes in (range(32), range(127, 160), range(0x202A, 0x202F), range(0x2066, 0x206A))
    for code in codes
    if chr(code) not in "\n\t"
}

# Results go to `out`, everything else to `err`. Both look up the stream when they write.
out = PlainConsole(highlight=False)
err = PlainConsole(stderr=True, highlight=False)


def fail(message: str, code: int) -> int:
    """Print an error as one line; returns the exit code."""
    err.print(f"[bold red]error:[/] {escape(_line(message))}", soft_wrap=True)
    return code


def note(message: str) -> None:
    """Print a note as one line."""
    err.print(f"[yellow]note:[/] {escape(_line(message))}", soft_wrap=True)


def emit_json(document: dict[str, Any]) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_facts(facts: Iterable[tuple[str, str]], *, title: str | None = None) -> None:
    """Print names and values in two columns."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    out.print(table)


def _line(message: str) -> str:
    return " ".join(message.split())
