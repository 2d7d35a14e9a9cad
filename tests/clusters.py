"""A small dask cluster for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.warm import METHOD, forks

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def two_workers(*, default: bool) -> Iterator[Client]:
    """A client of two processes with a thread each; `default`: it is used where none is named."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    forks()  # before dask says what workers load
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": METHOD}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster, set_as_default=default) as client,
    ):
        yield client
