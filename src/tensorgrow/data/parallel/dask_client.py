"""Talking to a dask cluster: results in order, workers that are lost, a scheduler that is gone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError
from dataclasses import fields, is_dataclass
from typing import Any

from ...errors import ClusterError, DataError, TensorgrowError

# How often a task is tried again after an error of its own; dask itself replaces lost workers.
RETRIES = 2
# Seconds between two looks at the workers while waiting, and without any worker before giving up.
LOOK_EVERY = 5.0
PATIENCE = 60.0
# Bytes of results that are fetched at once.
FETCH_BYTES = 1 << 25


def active_client() -> Any:
    """Return the active ``dask.distributed`` client; None when there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


class Opaque:
    """Keeps dask from looking for its own objects inside an argument."""

    def __init__(self, value: Any) -> None:
        self.value = value


def unwrap(argument: Opaque) -> Any:
    """Return the value; as a task, so that it is sent once to each worker."""
    return argument.value


class _TaskError(Exception):
    """An error of a task: the one to raise, and as it came; never taken for one of the connection."""


def gather_in_order(
    client: Any, submit: Callable[[], list[Any]], explain: Callable[[int, Exception], Exception]
) -> Generator[Any, None, None]:
    """Yield the results of the futures that `submit` returns, in their order; the cluster forgets each then.

    Every message has a latency, however short it is: as many results are fetched at once as `FETCH_BYTES`
    allow. `explain` turns the error of future number ``k`` into the one to raise. An error of a
    task is its own, whatever its type: the scheduler is gone where a future has neither result nor error.
    """
    futures: list[Any] = []
    try:
        futures = submit()
        first, together = 0, 1
        while first < len(futures):
            last = min(first + together, len(futures))
            results = _gather(client, futures, range(first, last), explain)
            futures[first:last] = [None] * (last - first)  # their memory on the workers is free now
            yield from results
            first, together = last, int(max(1, FETCH_BYTES // max(map(count_bytes, results))))
    except _TaskError as failed:
        explained, error = failed.args
        raise explained from (None if explained is error else error)
    except Exception as error:
        if not isinstance(error, CancelledError | OSError) and client.status == "running":
            raise
        raise ClusterError(
            f"the scheduler at {_address(client)} is gone ({type(error).__name__}: {error}). Start "
            "it again, connect a new client and run again; a checkpoint resumes at the last step"
        ) from error
    finally:
        if any(f is not None for f in futures) and client.status == "running":
            client.cancel([f for f in futures if f is not None])


def explain_error(error: Exception, name: str, advice: str) -> Exception:
    """Turn an error of a task that worked on `name` into the one to raise.

    `advice` is what to do where workers lack memory, besides giving them more.
    """
    if type(error).__name__ == "KilledWorker":
        return ClusterError(
            f"workers died again and again while they worked on {name}: {error}. Give them more memory, or "
            f"{advice}"
        )
    return DataError(f"{name} cannot be computed ({type(error).__name__}: {error})")


def _gather(
    client: Any, futures: Sequence[Any], numbers: range, explain: Callable[[int, Exception], Exception]
) -> list[Any]:
    """Wait for some of the futures; raise the first error among them."""
    from distributed import wait

    some = [futures[k] for k in numbers]
    lonely_since: float | None = None
    while True:
        try:
            with client.as_current():  # `wait` asks the current client
                wait(some, timeout=LOOK_EVERY)  # type: ignore[no-untyped-call]
            # A result that was there is lost when its worker dies; the scheduler has it computed again.
            if not any(future.status == "lost" for future in some):
                break
        except TimeoutError:
            lonely_since = _check_workers(client, lonely_since)
    for k, future in zip(numbers, some):
        if future.status == "finished":
            continue
        if future.status != "error":  # cancelled: nobody knows of it any more
            raise CancelledError(f"task {k} is {future.status}")
        error = future.exception(timeout=LOOK_EVERY)
        raise _TaskError(error if isinstance(error, TensorgrowError) else explain(k, error), error)
    return list(client.gather(some))


def count_bytes(result: Any) -> int:
    """Bytes of the arrays in a result, at least one."""
    if is_dataclass(result):
        result = [getattr(result, f.name) for f in fields(result)]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return 1 + sum(map(count_bytes, result))
    return int(getattr(result, "nbytes", 1))


def _check_workers(client: Any, lonely_since: float | None) -> float | None:
    if workers_of(client):
        return None
    now = time.monotonic()
    if lonely_since is not None and now - lonely_since > PATIENCE:
        raise ClusterError(
            f"the scheduler at {_address(client)} has had no worker for {PATIENCE:.0f} s. Start "
            "workers and run again; a checkpoint resumes at the last step"
        )
    return now if lonely_since is None else lonely_since


def workers_of(client: Any) -> dict[str, Any]:
    """Return what the scheduler knows of its workers; raise `ClusterError` where the client is closed."""
    if client.status != "running":
        raise ClusterError(
            f"the client of the scheduler at {_address(client)} is {client.status}. Connect a new one "
            "and run again"
        )
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def most_threads(client: Any) -> int:
    """Threads of the worker that has the most."""
    return max((w["nthreads"] for w in workers_of(client).values()), default=1)


def least_memory(client: Any) -> float:
    """Memory of the worker that has the least."""
    limits = [w.get("memory_limit") for w in workers_of(client).values()]
    return min((float(m) for m in limits if m), default=float("inf"))


def ask_scheduler(client: Any, call: Callable[[], Any]) -> Any:
    """Call something that asks the scheduler; raise `ClusterError` where it does not answer."""
    try:
        return call()
    except (CancelledError, OSError, TimeoutError) as error:
        raise ClusterError(f"the scheduler at {_address(client)} does not answer: {error}") from error


def _address(client: Any) -> str:
    return str(getattr(getattr(client, "scheduler", None), "address", "?"))
