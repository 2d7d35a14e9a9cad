"""Sums over blocks on a dask cluster: cores travel out with the tasks, small sums travel back."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from ...errors import ClusterError, DataError
from ..blocks import BlockSource, Box, Form, Kernel, Partial, computed, groups_of, run_group
from ..blocks.sources import DaskSource

__all__ = ["ClientReducer", "active_client"]

# How often a task is tried again after an error of its own; lost workers are dask's business.
RETRIES = 2
# Seconds between two looks at the workers while waiting, and without any worker before giving up.
LOOK_EVERY = 5.0
PATIENCE = 60.0
# Bytes of results that are fetched at once.
FETCH_BYTES = 1 << 25


def active_client() -> Any:
    """The active ``dask.distributed`` client; None when there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class ClientReducer:
    """Blocks read and computed by the workers of a ``dask.distributed`` client."""

    def __init__(self, source: BlockSource, boxes: Sequence[Box], form: Form, client: Any) -> None:
        self.source, self.boxes, self.form, self.client = source, boxes, form, client
        self._count = [0]  # shared with other forms of the same data

    @property
    def at_once(self) -> int:
        """Blocks that one worker holds at the same time: its threads."""
        return most_threads(self.client)

    @property
    def passes(self) -> int:
        """How often the data was read."""
        return self._count[0]

    def with_form(self, form: Form) -> ClientReducer:
        """The same with blocks in another form."""
        other = ClientReducer(self.source, self.boxes, form, self.client)
        other._count = self._count
        return other

    def reduce(self, kernel: Kernel) -> Partial:
        """One pass over the data."""
        self._count[0] += 1
        groups = groups_of(self.boxes)
        total = Partial()
        found = results_of(
            self.client,
            lambda: self._submit(groups, kernel),
            lambda k, error: self._explained(error, groups[k]),
        )
        for one in found:
            total.add(one)
        return total

    def _submit(self, groups: Sequence[Sequence[Box]], kernel: Kernel) -> list[Any]:
        from dask.delayed import delayed

        # Kernel and source are tasks themselves: sent once to each worker, and again to one that replaces it.
        shared = delayed(same, pure=False)(Opaque(kernel))
        if isinstance(self.source, DaskSource):
            tasks = self._chains(self.source, groups, shared)
        else:
            source = delayed(same, pure=False)(Opaque(self.source))
            task = delayed(_run, pure=False)
            tasks = [task(source, Opaque((boxes, self.form)), shared) for boxes in groups]
        found: list[Any] = self.client.compute(tasks, retries=RETRIES)
        return found

    def _chains(self, source: DaskSource, groups: Sequence[Sequence[Box]], shared: Any) -> list[Any]:
        """One chain of tasks per group, so that a worker holds one chunk of it at a time."""
        from dask.delayed import delayed

        step = delayed(_step, pure=False)
        chunks = source.delayed_chunks()
        ends = []
        for boxes in groups:
            total = None
            for box in boxes:
                total = step(total, chunks[box], Opaque((box, self.form)), shared)
            ends.append(total)
        return ends

    def _explained(self, error: Exception, boxes: Sequence[Box]) -> Exception:
        """What to raise for an error of a task."""
        if type(error).__name__ == "KilledWorker":
            return ClusterError(
                f"workers died again and again while they computed {self.source.name(boxes[0])} of "
                f"{self.source.label}: {error}. Give them more memory, or store smaller chunks"
            )
        if isinstance(self.source, DaskSource):
            names = ", ".join(self.source.name(box) for box in boxes)
            return DataError(
                f"{names} of {self.source.label} cannot be computed ({type(error).__name__}: {error})"
            )
        return error


class Opaque:
    """Keeps dask from looking for its own objects inside an argument."""

    def __init__(self, value: Any) -> None:
        self.value = value


def same(argument: Opaque) -> Any:
    return argument.value


def _run(source: BlockSource, argument: Opaque, kernel: Kernel) -> Partial:
    boxes, form = argument.value
    return run_group(source, boxes, form, kernel).to_numpy()


def _step(total: Partial | None, chunk: Any, argument: Opaque, kernel: Kernel) -> Partial:
    box, form = argument.value
    found = Partial()
    if total is not None:
        found.add(Partial({k: _copied(v) for k, v in total.sums.items()}, total.largest))
    found.add(computed(kernel, form(chunk), box))
    return found.to_numpy()


def _copied(value: Any) -> Any:
    """A copy: dask keeps the results of tasks and may hand them out again."""
    return value.copy() if hasattr(value, "copy") else value


def results_of(
    client: Any,
    submit: Callable[[], list[Any]],
    explain: Callable[[int, Exception], Exception],
) -> Iterator[Any]:
    """Results of futures in their order, forgotten on the cluster once they are here.

    A message takes a while, however short it is: so many are fetched at once as `FETCH_BYTES` allow.

    Parameters
    ----------
    submit
        Gives the futures.
    explain
        What to raise for an error of the future with a number.
    """
    futures: list[Any] = []
    try:
        futures = submit()
        first, together = 0, 1
        while first < len(futures):
            some = range(first, min(first + together, len(futures)))
            found = _results(client, [futures[k] for k in some], [partial(explain, k) for k in some])
            for k in some:
                futures[k] = None  # its memory on the worker is free now
            yield from found
            first, together = some.stop, int(max(1, FETCH_BYTES // max(map(_size, found))))
    except Exception as error:
        if not isinstance(error, CancelledError | OSError) and client.status == "running":
            raise
        raise ClusterError(
            f"the scheduler at {_address(client)} is gone ({type(error).__name__}: {error}). Start "
            "it again, connect a new client and run again; a checkpoint goes on from the last step"
        ) from error
    finally:
        if any(f is not None for f in futures) and client.status == "running":
            client.cancel([f for f in futures if f is not None])


def _results(
    client: Any, futures: Sequence[Any], explain: Sequence[Callable[[Exception], Exception]]
) -> list[Any]:
    """Results of some futures; the first error among them is raised."""
    from distributed import wait

    lonely_since: float | None = None
    while True:
        try:
            with client.as_current():  # that is whom `wait` asks
                wait(list(futures), timeout=LOOK_EVERY)  # type: ignore[no-untyped-call]
            break
        except TimeoutError:
            lonely_since = _check_workers(client, lonely_since)
    for future, explained in zip(futures, explain):
        if future.status == "finished":
            continue
        try:
            future.result(timeout=LOOK_EVERY)
        except (DataError, CancelledError, OSError):
            raise
        except Exception as error:
            raise explained(error) from error
    return list(client.gather(list(futures)))


def _size(found: Any) -> int:
    """Bytes of arrays in a result, at least one."""
    if isinstance(found, Partial):
        found = found.sums
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return 1 + sum(map(_size, found))
    return int(getattr(found, "nbytes", 1))


def _check_workers(client: Any, lonely_since: float | None) -> float | None:
    if workers_of(client):
        return None
    now = time.monotonic()
    if lonely_since is not None and now - lonely_since > PATIENCE:
        raise ClusterError(
            f"the scheduler at {_address(client)} has had no worker for {PATIENCE:.0f} s. Start "
            "workers and run again; a checkpoint goes on from the last step"
        )
    return now if lonely_since is None else lonely_since


def workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler knows of its workers."""
    found: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return found


def most_threads(client: Any) -> int:
    """Threads of the worker that has most."""
    return max((w["nthreads"] for w in workers_of(client).values()), default=1)


def least_memory(client: Any) -> float:
    """Memory of the worker that has least."""
    limits = [w.get("memory_limit") for w in workers_of(client).values()]
    return min((float(m) for m in limits if m), default=float("inf"))


def checked(client: Any, call: Callable[[], Any]) -> Any:
    """A call to the scheduler, with our error where it does not answer."""
    try:
        return call()
    except (CancelledError, OSError, TimeoutError) as error:
        raise ClusterError(f"the scheduler at {_address(client)} does not answer: {error}") from error


def _address(client: Any) -> str:
    return str(getattr(getattr(client, "scheduler", None), "address", "?"))
