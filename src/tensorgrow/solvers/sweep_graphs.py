"""Sweeps on a GPU that the host does not watch: plain, or recorded once as a CUDA graph and replayed.

A sweep over a small network is hundreds of kernels of a few microseconds each, and most of its time goes into
launching them one by one and into waiting for every factorisation. Here the host looks once per sweep; and a
structure that is swept several times is launched as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import torch

from ..objectives.base import Recording
from .cuda_graphs import waiting_is_an_error

# Sweeps that must follow for a recording to pay: it takes the host as long as one plain sweep.
WORTH_RECORDING = 2
# Recordings kept: a search returns to the structures of its last few refits only.
MOST_GRAPHS = 12
# Share of a GPU's memory that all recorded sweeps may take, each for itself. They take less: intermediate
# results of all of them lie at the same place. Not a share of what is free: that would not repeat.
MOST_MEMORY = 0.25
# Recordings that may fail before no more are tried.
MOST_FAILURES = 2


class SweepGraphs:
    """Sweeps of one run, and recordings of those that were made last.

    A recording is of one structure on one set of data. Ridges, and cores, are copied to where it reads them.

    Parameters
    ----------
    memory_limit
        Bytes that the run may take at a time: recordings take what one more sweep beside them leaves.
    """

    def __init__(self, memory_limit: float = math.inf) -> None:
        self.memory_limit = memory_limit
        self.failures = 0
        self._graphs: dict[Hashable, _Graph] = {}
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def __len__(self) -> int:
        return len(self._graphs)

    def sweep(self, recording: Recording, cores: list[torch.Tensor], *, size: int, more: int) -> float:
        """Solve for every core once, in place; by how much the last one lowers the squared loss.

        NaN where a factorisation failed.

        Parameters
        ----------
        size
            Bytes that the sweep takes.
        more
            Sweeps that may follow.
        """
        graph = self._graphs.pop(recording.key, None)
        if graph is None and more >= WORTH_RECORDING and self._may_record(cores[0], size):
            graph = self._record(recording, cores, size)
        if graph is None:
            return float(recording.solve(cores, recording.numbers))
        self._graphs[recording.key] = graph  # now the last one used
        return float(graph.replay(cores, recording.numbers))

    def _may_record(self, core: torch.Tensor, size: int) -> bool:
        """Whether there is room for another recording, once the oldest ones have made some."""
        if self.failures >= MOST_FAILURES or not core.is_cuda:
            return False
        total = torch.cuda.get_device_properties(core.device).total_memory
        most = min(MOST_MEMORY * total, self.memory_limit - size)
        while self._graphs and (
            len(self._graphs) >= MOST_GRAPHS or size + sum(g.size for g in self._graphs.values()) > most
        ):
            del self._graphs[next(iter(self._graphs))]
        return size <= most

    def _record(self, recording: Recording, cores: list[torch.Tensor], size: int) -> _Graph | None:
        """Record a sweep, of which nothing is computed; None where that fails."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(cores[0].device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()
            with _Aside(self._stream):  # libraries set themselves up for the stream
                recording.solve(list(cores), recording.numbers)
        try:
            return _Graph(recording, cores, size, self._stream, self._pool)
        except RuntimeError:
            self._graphs.clear()
            self.failures += 1
            return None


class _Aside:
    """Context on another stream, which waits for the present one and is then waited for."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream, self.present = stream, torch.cuda.current_stream(stream.device)
        self.inside = torch.cuda.stream(stream)

    def __enter__(self) -> None:
        self.stream.wait_stream(self.present)
        self.inside.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        self.inside.__exit__(*error)
        self.present.wait_stream(self.stream)


class _Graph:
    """One recorded sweep."""

    def __init__(
        self, recording: Recording, cores: list[torch.Tensor], size: int, stream: torch.cuda.Stream, pool: Any
    ) -> None:
        self.recording, self.size = recording, size
        self.held = recording.prepare()
        self.inputs = [c.clone(memory_format=torch.contiguous_format) for c in cores]
        self.last = recording.numbers
        self.numbers = torch.tensor(self.last, dtype=torch.float64, device=cores[0].device)
        self.outputs = list(self.inputs)
        self.graph = torch.cuda.CUDAGraph()
        with (
            _Aside(stream),
            waiting_is_an_error(),
        ):  # an error of ours leaves the recording in order, CUDA's not
            # Not `torch.cuda.graph`: that empties the cache of the allocator each time.
            self.graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self.explained = recording.solve(self.outputs, self.numbers.unbind())
            finally:
                self.graph.capture_end()

    def replay(self, cores: list[torch.Tensor], numbers: tuple[float, ...]) -> torch.Tensor:
        torch._foreach_copy_(self.inputs, cores)
        if numbers != self.last:
            self.numbers.copy_(torch.tensor(numbers, dtype=torch.float64))
            self.last = numbers
        self.graph.replay()
        # Another recording may write its intermediate results where these lie. One launch copies all.
        cores[:] = [torch.empty_like(c) for c in self.outputs]
        torch._foreach_copy_(cores, self.outputs)
        return self.explained
