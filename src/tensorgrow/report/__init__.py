"""One self-contained HTML page about a run, which asks the network for nothing; and what notebooks show."""

from .notebook import network_html, result_html
from .page import write_report

__all__ = ["network_html", "result_html", "write_report"]
