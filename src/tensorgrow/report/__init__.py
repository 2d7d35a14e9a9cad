"""One self-contained HTML page about a run: works offline, asks the network for nothing."""

from .writing import write_report

__all__ = ["write_report"]
