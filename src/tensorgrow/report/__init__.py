"""One self-contained HTML page about a run: works offline, asks the network for nothing."""

from .page import write_report

__all__ = ["write_report"]
