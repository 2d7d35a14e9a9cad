"""Exceptions, warnings, and one check per kind of argument.

A message says what was passed, what is needed and what to do.
"""

from __future__ import annotations

import importlib
import math
import sys
import warnings
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard


class TensorgrowError(Exception):
    """Base class of every error raised on purpose by tensorgrow."""


class StructureError(TensorgrowError, ValueError):
    """A structure, edge, node or rank that does not make sense."""


class DataError(TensorgrowError, ValueError):
    """Data that cannot be decomposed: wrong dtype, NaN, empty, wrong shape."""


class PositionError(DataError, IndexError):
    """A position outside a mode."""


class OptionError(TensorgrowError, ValueError):
    """An option with an invalid value, or options that contradict each other."""


class FileFormatError(TensorgrowError, ValueError):
    """A file that is not ours, is damaged, or was written by a newer version."""


class WriteError(TensorgrowError, OSError):
    """A file that cannot be written: the disk is full, or the folder is not ours."""


class MemoryLimitError(TensorgrowError, MemoryError):
    """The estimated memory is above the limit; nothing was allocated yet."""


class MissingPackageError(TensorgrowError, ImportError):
    """An optional package is not installed; the text names the extra that brings it."""


class ClusterError(TensorgrowError, RuntimeError):
    """A cluster that cannot continue: the scheduler is gone, or workers keep dying."""


class DataWarning(UserWarning):
    """Data that can be used, with a caveat the user should know."""


def warn(message: str, category: type[Warning] = DataWarning) -> None:
    """Warn, pointing to the line outside this package that called into it."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def counted(number: int, noun: str) -> str:
    """Return a number and its noun: "1 step", "1,200 steps"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `OptionError` unless `value` is one of `choices`."""
    if value not in choices:
        raise OptionError(f"{name}={value!r} is not known; choose one of {', '.join(map(repr, choices))}")


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raise `OptionError` unless `value` is an instance of `kind`."""
    if not isinstance(value, kind):
        article = "" if kind.__name__.endswith("Options") else "a "
        raise OptionError(f"{name} must be {article}{kind.__name__}, not {type(value).__name__}")


def is_whole(value: object, least: float = -math.inf, below: float = math.inf) -> TypeGuard[int]:
    """Whether something is a whole number from `least` on and below another; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) < below


def check_whole(name: str, value: Any, least: int = 1, *, more: str = "") -> int:
    """Return a whole number of at least `least` as an int, or raise `OptionError`.

    `more` is what else the message allows, for example ", or None".
    """
    if not is_whole(value, least):
        raise OptionError(f"{name}={value!r} must be a whole number of at least {least}{more}")
    return int(value)


def check_positive(name: str, value: Any, *, finite: bool = False, more: str = "") -> float:
    """Return a number above zero, and below infinity if `finite`, as a float, or raise `OptionError`.

    `more` is what the message says of the number, for example " of bytes".
    """
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not number > 0 or (finite and number == math.inf):
        raise OptionError(f"{name}={value!r} must be a positive number{more}")
    return number


def check_bounds(bounds: Any) -> tuple[float | None, float | None] | None:
    """Return the least and the largest value that is allowed, either None, or raise `OptionError`."""
    if bounds is None:
        return None
    pair = tuple(bounds) if isinstance(bounds, tuple | list) else ()
    numbers = [float(v) for v in pair if isinstance(v, Real) and not isinstance(v, bool)]
    is_pair = len(pair) == 2 and len(numbers) + pair.count(None) == 2
    if (
        not is_pair
        or not numbers
        or not all(a < b for a, b in pairwise(numbers))
        or any(map(math.isnan, numbers))
    ):
        raise OptionError(
            f"bounds={bounds!r} must be the least and the largest value, either of them None: (0, None) for "
            "counts, (0, 1) for shares"
        )
    low, high = (None if v is None else float(v) for v in pair)
    return low, high


def needs(what: str, extra: str) -> str:
    """Return a message that says what needs a package, and how to install the extra that brings it.

    In a clone that is an editable installation: before the first release no index knows the name. An
    installed copy needs no index either, since pip takes its extras from what is installed.
    """
    is_clone = (Path(__file__).parents[2] / "pyproject.toml").is_file()
    command = f'-e ".[{extra}]" in the clone' if is_clone else f'"tensorgrow[{extra}]"'
    return f"{what}: pip install {command}"


def import_package(name: str, what: str, extra: str) -> Any:
    """Import a module of an optional package.

    `what` needs it and `extra` brings it; the error says so where it is missing.
    """
    try:
        importlib.import_module(name.split(".")[0])
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(needs(what, extra)) from error
