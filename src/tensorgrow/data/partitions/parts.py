"""Partitions that stay where the work is done: in this process, or with the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..devices import usable_cores
from ..labels import merge_labels
from ..parallel.dask_client import RETRIES, Opaque, active_client, explain_error, gather_in_order, workers_of
from ..parallel.executor import map_in_order
from .rows import Columns, read_labels, read_partition
from .tables import PartitionedObservations

Load = Callable[[], Any]


class ThreadParts:
    """Partitions in this process.

    They stay in memory where `keep` says so; otherwise each is loaded again for every task.
    """

    def __init__(self, loads: Sequence[Load], threads: int, keep: bool) -> None:
        self._loads = list(loads)
        self._held: list[Any] = [None] * len(self._loads)
        self._threads = threads
        self._keep = keep
        self.rounds = 0  # tasks that were run on all partitions

    def __len__(self) -> int:
        return len(self._loads)

    def keep(self) -> None:
        """Keep partitions in memory from now on."""
        self._keep = True

    @property
    def at_once(self) -> int:
        """Results that are in memory at the same time."""
        return min(self._threads, len(self))

    @property
    def in_memory(self) -> int:
        """Partitions that are in the memory of this process at the same time."""
        return len(self) if self._keep else self.at_once

    def map(self, task: Callable[[Any], Any]) -> Iterator[Any]:
        """Yield the results of a task for all partitions, in their order."""
        self.rounds += 1

        def run(k: int) -> Any:
            part = self._held[k]
            if part is None:
                part = self._loads[k]()
                if self._keep:
                    self._held[k] = part
            return task(part)

        yield from map_in_order(run, range(len(self)), 0 if self.at_once <= 1 else self._threads)

    def transform(self, function: Callable[[Any], Any], numbers: Sequence[int]) -> ThreadParts:
        """Return some of the partitions in another form; this one must not be used afterwards."""

        def load(k: int) -> Load:
            held, plain = self._held[k], self._loads[k]
            return lambda: function(plain() if held is None else held)

        parts = ThreadParts([load(k) for k in numbers], self._threads, self._keep)
        if self._keep:
            for n, k in enumerate(numbers):
                parts._held[n], self._held[k] = parts._loads[n](), None
            parts._loads = [_refuse] * len(numbers)  # the partition as it was read need not stay
        parts.rounds = self.rounds
        return parts


def _refuse() -> Any:
    raise AssertionError("a partition in memory is never loaded again")


class ClientParts:
    """Partitions with the workers of a ``dask.distributed`` client.

    Where a worker dies, dask loads its partitions again elsewhere.
    """

    def __init__(self, client: Any, futures: Sequence[Any], names: Sequence[str]) -> None:
        self._client = client
        self._futures = list(futures)  # the partitions
        self._names = list(names)  # for messages
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._futures)

    @property
    def at_once(self) -> int:
        return 1

    @property
    def in_memory(self) -> int:
        return 0

    def map(self, task: Callable[[Any], Any]) -> Iterator[Any]:
        self.rounds += 1
        return gather_in_order(self._client, lambda: self._submit(task, self._futures), self._explain)

    def _submit(self, task: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
        """Send a task along with each partition: cores are small."""
        packed = [Opaque(task)] * len(parts)
        futures: list[Any] = self._client.map(_apply, packed, parts, pure=False, retries=RETRIES)
        return futures

    def transform(self, function: Callable[[Any], Any], numbers: Sequence[int]) -> ClientParts:
        futures = self._submit(function, [self._futures[k] for k in numbers])
        parts = ClientParts(self._client, futures, [self._names[k] for k in numbers])
        parts.rounds = self.rounds
        return parts

    def _explain(self, k: int, error: Exception) -> Exception:
        return explain_error(error, self._names[k], "make smaller partitions")


def _apply(task: Opaque, part: Any) -> Any:
    return task.value(part)


def find_labels(data: PartitionedObservations, columns: Columns) -> Columns:
    """Return the columns with the labels they hold, in a pass over the index columns of all partitions.

    Where the user says how large the tensor is, positions are expected, and nothing is read.
    """
    if data.shape is not None:
        return columns
    parts = [p for p in _open(data, read_labels, columns).map(_as_it_is) if p is not None]
    labels = tuple(merge_labels(name, [p[k] for p in parts]) for k, name in enumerate(columns.index))
    return replace(columns, labels=labels)


def _as_it_is(part: Any) -> Any:
    return part


def open_parts(data: PartitionedObservations, columns: Columns) -> ThreadParts | ClientParts:
    """Open the partitions as they are stored, in this process or with the workers of a client."""
    return _open(data, read_partition, columns, data.shape)


def _open(
    data: PartitionedObservations, read: Callable[..., Any], *arguments: Any
) -> ThreadParts | ClientParts:
    pieces = list(zip(data.pieces, data.names))
    client = active_client() if data.client is None and data.threads is None else data.client
    if client is None:
        loads = [partial(read, p, *arguments, name) for p, name in pieces]
        return ThreadParts(loads, data.threads or usable_cores(), keep=False)
    from dask.delayed import delayed

    workers_of(client)  # refuses a client that is closed
    later = delayed(read, pure=False)
    tasks = [later(p, *arguments, name) for p, name in pieces]
    return ClientParts(client, client.compute(tasks, retries=RETRIES), data.names)
