"""Many runs at once: seeds, structures, hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from ...errors import OptionError
from .processes import process_pool

T = TypeVar("T")


def map_runs(function: Callable[..., T], cases: Iterable[Mapping[str, Any]], *, map: Any = None) -> list[T]:
    """Call a function once per case, here, in local processes or on a cluster.

    Parameters
    ----------
    function
        What to call; for processes and clusters it must be importable there (not a lambda).
    cases
        Keyword arguments of every call.
    map
        None: one after the other. A number: in so many local processes. A ``dask.distributed.Client`` or any
        executor with ``submit``: there. Or a function like the built-in ``map``.

    Returns
    -------
    list
        Results in the order of the cases. The error of a case that fails is raised with the case as a note.

    Examples
    --------
    >>> map_runs(pow, [{"base": 2, "exp": 3}, {"base": 3, "exp": 2}])
    [8, 9]
    """
    listed = [dict(case) for case in cases]
    if map is None:
        return [_call_with_note(partial(_call, function, case), case) for case in listed]
    if isinstance(map, bool) or (isinstance(map, int) and map < 1):
        raise OptionError(f"map={map!r}: a number of processes must be at least 1")
    if isinstance(map, int):
        with process_pool(map) as pool:
            return map_runs(function, listed, map=pool)
    if hasattr(map, "submit"):
        keywords = {"pure": False} if hasattr(map, "scheduler_info") else {}
        futures = [map.submit(_call, function, case, **keywords) for case in listed]
        return [_call_with_note(f.result, case) for f, case in zip(futures, listed)]
    if callable(map):
        return list(map(partial(_call, function), listed))
    raise OptionError(f"map={map!r} is not None, a number, a client, an executor or a function like map")


def _call(function: Callable[..., T], case: Mapping[str, Any]) -> T:
    return function(**case)


def _call_with_note(result: Callable[[], T], case: Mapping[str, Any]) -> T:
    try:
        return result()
    except Exception as error:
        error.add_note(f"this was the case {case!r}")
        raise
