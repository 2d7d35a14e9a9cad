"""What comes back: the network, its errors, what it says of entries, and the error-size path."""

from .accuracy import ErrorKind, Errors
from .outcome import INTERPOLATION, RESULT_KIND, Result, best_network, networks_among
from .path import PathPoint, add_to_path, best_on_path

__all__ = [
    "INTERPOLATION",
    "RESULT_KIND",
    "ErrorKind",
    "Errors",
    "PathPoint",
    "Result",
    "add_to_path",
    "best_network",
    "best_on_path",
    "networks_among",
]
