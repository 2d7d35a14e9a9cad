"""Sums over blocks on a dask cluster: cores travel out with the tasks, small sums travel back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..parallel.dask_client import RETRIES, Opaque, explain_error, gather_in_order, most_threads, unwrap
from .grid import Box
from .reducer import Kernel, Partial, Reducer, Sums, run_group, run_kernel
from .sources import BlockSource, DaskSource


@dataclass(eq=False)
class ClientReducer(Reducer):
    """Blocks read and computed by the workers of a ``dask.distributed`` client."""

    client: Any

    @property
    def at_once(self) -> int:
        return most_threads(self.client)

    def _reduce_groups(self, kernel: Kernel, groups: list[Sequence[Box]]) -> Sums:
        return gather_in_order(
            self.client,
            lambda: self._submit(groups, kernel),
            lambda k, error: self._explain(error, groups[k]),
        )

    def _submit(self, groups: Sequence[Sequence[Box]], kernel: Kernel) -> list[Any]:
        from dask.delayed import delayed

        # Kernel and source are tasks themselves: sent once to each worker, and again to one that replaces it.
        shared = delayed(unwrap, pure=False)(Opaque(kernel))
        if isinstance(self.source, DaskSource):
            tasks = self._chain(self.source, groups, shared)
        else:
            source = delayed(unwrap, pure=False)(Opaque(self.source))
            task = delayed(_run, pure=False)
            tasks = [task(source, Opaque((boxes, self.form)), shared) for boxes in groups]
        futures: list[Any] = self.client.compute(tasks, retries=RETRIES)
        return futures

    def _chain(self, source: DaskSource, groups: Sequence[Sequence[Box]], shared: Any) -> list[Any]:
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

    def _explain(self, error: Exception, boxes: Sequence[Box]) -> Exception:
        is_killed = type(error).__name__ == "KilledWorker"
        if not is_killed and not isinstance(self.source, DaskSource):
            return error  # the source names the chunk that it could not read
        names = ", ".join(self.source.name(box) for box in (boxes[:1] if is_killed else boxes))
        return explain_error(error, f"{names} of {self.source.label}", "store smaller chunks")


def _run(source: BlockSource, argument: Opaque, kernel: Kernel) -> Partial:
    boxes, form = argument.value
    return run_group(source, boxes, form, kernel).to_numpy()


def _step(total: Partial | None, chunk: Any, argument: Opaque, kernel: Kernel) -> Partial:
    box, form = argument.value
    sums = Partial()
    if total is not None:  # a copy: dask keeps the results of tasks and may hand them out again
        copies = {k: v.copy() if hasattr(v, "copy") else v for k, v in total.sums.items()}
        sums.add(Partial(copies, total.largest))
    sums.add(run_kernel(kernel, form(chunk), box))
    return sums.to_numpy()
