"""Processes of our own on this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from typing import Any

from ...errors import ClusterError


@contextmanager
def process_pool(
    count: int,
    context: BaseContext | None = None,
    initializer: Callable[..., object] | None = None,
    initargs: tuple[Any, ...] = (),
) -> Iterator[ProcessPoolExecutor]:
    """Begin processes that share nothing with this one; if one ends at once, the error says what to do.

    Parameters
    ----------
    context
        What begins them; by default one that begins anew, since a fork would inherit the threads of torch.
    initializer, initargs
        What every process calls first.
    """
    context = multiprocessing.get_context("spawn") if context is None else context
    try:
        with ProcessPoolExecutor(count, context, initializer, initargs) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise ClusterError(
            "a process ended before it had an answer. Processes read the script that begins them again: what "
            'it calls must stand below `if __name__ == "__main__":`. Where it does, memory may be short: use '
            "fewer processes"
        ) from error
