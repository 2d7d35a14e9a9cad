"""Processes of our own on this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
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
    """Begin processes that share nothing with this one, and end when it does, even where it is killed.

    If one of them ends before it has an answer, the error says what to do.

    Parameters
    ----------
    context
        What begins them; by default one that begins anew, since a fork would inherit the threads of torch.
    initializer, initargs
        What every process calls first.
    """
    context = multiprocessing.get_context("spawn") if context is None else context
    try:
        with ProcessPoolExecutor(count, context, _begin, (initializer, initargs)) as pool:
            yield pool
    except BrokenProcessPool as error:
        raise ClusterError(
            "a process ended before it had an answer. Processes read the script that begins them again: what "
            'it calls must stand below `if __name__ == "__main__":`. Where it does, memory may be short: use '
            "fewer processes"
        ) from error


def _begin(initializer: Callable[..., object] | None, initargs: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    """End this process once the one that began it is gone: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
