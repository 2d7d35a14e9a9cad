"""Messages of dask that take longer: a network with latency, on one machine.

Every message between client, scheduler and workers waits before it is sent. Messages that come meanwhile wait
beside it and go out with the next batch, as they do on a slow network. Workers take this module as preload.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VARIABLE = "TENSORGROW_BENCHMARK_LATENCY"


def slow_down(seconds: float) -> Any:
    """Delay all messages that this process sends; returns what sent them before."""
    from distributed.comm.tcp import TCP

    plain = TCP.write

    async def write(self: Any, *args: Any, **keywords: Any) -> Any:
        await asyncio.sleep(seconds)
        return await plain(self, *args, **keywords)

    TCP.write = write
    return plain


def dask_setup(worker: Any) -> None:
    """Called by dask in every worker."""
    seconds = float(os.environ.get(VARIABLE, "0"))
    if seconds:
        slow_down(seconds)


@contextmanager
def latency(seconds: float) -> Iterator[list[str]]:
    """A context in which messages of this process and of workers started in it are slow; the preloads."""
    if not seconds:
        yield []
        return
    from distributed.comm.tcp import TCP

    os.environ[VARIABLE] = str(seconds)
    plain = slow_down(seconds)
    try:
        yield [__name__]
    finally:
        TCP.write = plain
        del os.environ[VARIABLE]
