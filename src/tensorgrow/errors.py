"""Our exceptions: each says what was given, what is needed and what to do."""

from __future__ import annotations

__all__ = [
    "ClusterError",
    "DataError",
    "DataWarning",
    "FileFormatError",
    "MemoryLimitError",
    "MissingPackageError",
    "OptionError",
    "StructureError",
    "TensorgrowError",
]


class TensorgrowError(Exception):
    """Base class of every error raised on purpose by tensorgrow."""


class StructureError(TensorgrowError, ValueError):
    """A structure, edge, node or rank that does not make sense."""


class DataError(TensorgrowError, ValueError):
    """Data that cannot be decomposed: wrong dtype, NaN, empty, wrong shape."""


class OptionError(TensorgrowError, ValueError):
    """An option with an invalid value, or options that contradict each other."""


class FileFormatError(TensorgrowError, ValueError):
    """A file that is not ours, is damaged, or was written by a newer version."""


class MemoryLimitError(TensorgrowError, MemoryError):
    """The estimated memory is above the limit; nothing was allocated yet."""


class MissingPackageError(TensorgrowError, ImportError):
    """An optional package is not installed; the text names the extra that brings it."""


class ClusterError(TensorgrowError, RuntimeError):
    """A cluster that cannot go on: the scheduler is gone, or workers die again and again."""


class DataWarning(UserWarning):
    """Data that can be used, with a caveat the user should know."""


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `OptionError` unless `value` is one of `choices`."""
    if value not in choices:
        raise OptionError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, choices))}")
