"""What is written to the terminal, and how."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape

__all__ = ["emit_json", "err", "fail", "note", "out"]

# Results, and everything else. Both look up the stream when they write.
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def fail(message: str, code: int) -> int:
    """One line that says what is wrong; returns the exit code."""
    err.print(f"[bold red]error:[/] {escape(_line(message))}", soft_wrap=True)
    return code


def note(message: str) -> None:
    """One line to know about."""
    err.print(f"[yellow]note:[/] {escape(_line(message))}", soft_wrap=True)


def emit_json(document: dict[str, Any]) -> None:
    """The result for programs: one JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def _line(message: str) -> str:
    return " ".join(message.split())
