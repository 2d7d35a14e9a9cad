"""Partitions that stay where they are computed with: in threads of this process, or with the workers of a
cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ...errors import ClusterError, DataError
from ..parallel.dask_client import RETRIES, Opaque, results_of

__all__ = ["ClientParts", "ThreadParts"]

Load = Callable[[], Any]


class ThreadParts:
    """Partitions in this process.

    Parameters
    ----------
    loads
        What gives each partition.
    threads
        Partitions worked on at the same time.
    keep
        Whether partitions stay in memory; otherwise each is loaded again for every round.
    """

    def __init__(self, loads: Sequence[Load], threads: int, keep: bool) -> None:
        self._loads = list(loads)
        self._held: list[Any] = [None] * len(self._loads)
        self._threads = threads
        self._keep = keep
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._loads)

    def keep(self) -> None:
        """Keep partitions in memory from now on."""
        self._keep = True

    @property
    def at_once(self) -> int:
        """Partitions worked on at the same time."""
        return min(self._threads, len(self))

    def map(self, task: Callable[[Any], Any]) -> Iterator[Any]:
        """Results of a task for all partitions, in their order."""
        self.rounds += 1

        def run(k: int) -> Any:
            part = self._held[k]
            if part is None:
                part = self._loads[k]()
                if self._keep:
                    self._held[k] = part
            return task(part)

        if self.at_once <= 1:
            yield from map(run, range(len(self)))
            return
        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(self._threads) as pool:
            try:
                for k in range(len(self)):
                    # A short queue: what is done early waits in memory for its turn.
                    if len(waiting) == self._threads:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(run, k))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def made(self, make: Callable[[Any], Any], chosen: Sequence[int]) -> ThreadParts:
        """Some of the partitions in another form; this one is of no use afterwards."""

        def load(k: int) -> Load:
            held, plain = self._held[k], self._loads[k]
            return lambda: make(plain() if held is None else held)

        found = ThreadParts([load(k) for k in chosen], self._threads, self._keep)
        if self._keep:
            for n, k in enumerate(chosen):
                found._held[n], self._held[k] = found._loads[n](), None
            found._loads = [_lost] * len(chosen)  # the partition as it was read need not stay
        found.rounds = self.rounds
        return found


def _lost() -> Any:
    raise AssertionError("a partition that is kept is never loaded again")


class ClientParts:
    """Partitions with the workers of a ``dask.distributed`` client.

    A worker that dies takes its partitions along; dask loads them again elsewhere.

    Parameters
    ----------
    futures
        The partitions.
    names
        What to call them in messages.
    """

    def __init__(self, client: Any, futures: Sequence[Any], names: Sequence[str]) -> None:
        self._client = client
        self._futures = list(futures)
        self._names = list(names)
        self.rounds = 0

    @classmethod
    def load(cls, client: Any, loads: Sequence[Any], names: Sequence[str]) -> ClientParts:
        """From functions, or from what dask computes partitions from with a function for each."""
        return cls(client, client.compute(loads, retries=RETRIES), names)

    def __len__(self) -> int:
        return len(self._futures)

    @property
    def at_once(self) -> int:
        """Results that this process holds at the same time, where they are large."""
        return 1

    def map(self, task: Callable[[Any], Any]) -> Iterator[Any]:
        """Results of a task for all partitions, in their order."""
        self.rounds += 1
        return results_of(self._client, lambda: self._applied(task), self._explained)

    def _applied(self, task: Callable[[Any], Any], chosen: Sequence[int] | None = None) -> list[Any]:
        """Futures of a task for all partitions or some; it goes out with each, for cores are small."""
        parts = self._futures if chosen is None else [self._futures[k] for k in chosen]
        packed = [Opaque(task)] * len(parts)
        found: list[Any] = self._client.map(_apply, packed, parts, pure=False, retries=RETRIES)
        return found

    def made(self, make: Callable[[Any], Any], chosen: Sequence[int]) -> ClientParts:
        """Some of the partitions in another form."""
        names = [self._names[k] for k in chosen]
        found = ClientParts(self._client, self._applied(make, chosen), names)
        found.rounds = self.rounds
        return found

    def _explained(self, k: int, error: Exception) -> Exception:
        if type(error).__name__ == "KilledWorker":
            return ClusterError(
                f"workers died again and again while they worked on {self._names[k]}: {error}. Give them "
                "more memory, or make smaller partitions"
            )
        return DataError(f"{self._names[k]} cannot be computed ({type(error).__name__}: {error})")


def _apply(task: Opaque, part: Any) -> Any:
    return task.value(part)
