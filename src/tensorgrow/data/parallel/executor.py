"""An ordered map: work done ahead by threads, results in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import lru_cache
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def map_in_order(
    work: Callable[[Item], Answer], items: Iterable[Item], threads: int, *, lasting: bool = False
) -> Generator[Answer, None, None]:
    """Yield ``work(item)`` for all items, in their order.

    The first error ends the map when its turn comes, as do closing the generator and Ctrl-C: items that have
    not begun are cancelled, items in progress are waited for.

    Parameters
    ----------
    threads
        Threads that work ahead: item ``k + threads`` begins only after result ``k`` was used. 0: the calling
        thread does the work.
    lasting
        Use a pool that all such calls share, for many short calls; it works ahead twice as far. The work must
        not use it itself.
    """
    if threads == 0:
        yield from map(work, items)
        return
    ahead = 2 * threads if lasting else threads
    waiting: deque[Future[Answer]] = deque()
    with nullcontext(_lasting_pool(threads)) if lasting else ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                if len(waiting) == ahead:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@lru_cache(maxsize=1)
def _lasting_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
