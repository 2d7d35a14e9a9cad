"""What comes back: the network, its errors, what it says of entries, and the error-size path."""

from .accuracy import ERROR_NAMES, ErrorKind, Errors
from .outcome import RESULT_KIND, Result
from .path import PathPoint, add_to_path, best_on_path, pack_path, unpack_path

__all__ = [
    "ERROR_NAMES",
    "RESULT_KIND",
    "ErrorKind",
    "Errors",
    "PathPoint",
    "Result",
    "add_to_path",
    "best_on_path",
    "pack_path",
    "unpack_path",
]
