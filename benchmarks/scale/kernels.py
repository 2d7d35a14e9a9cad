"""What workers of the scale benchmark import: sources and kernels that note how long they took."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from tensorgrow.data.blocks import BlockSource, Box, Partial

_here = threading.local()


class TimedSource(BlockSource):
    """A source that notes how long its last read took."""

    def __init__(self, inner: BlockSource) -> None:
        super().__init__(inner.shape, inner.dtype, inner.chunks, inner.label)
        self.inner = inner

    def read(self, box: Box) -> Any:
        """The block."""
        begin = time.perf_counter()
        found = self.inner.read(box)
        _here.seconds = time.perf_counter() - begin
        return found


@dataclass(frozen=True)
class Timed:
    """A kernel with its seconds and those of the read before."""

    kernel: Any

    def __call__(self, block: Any, box: Box) -> Partial:
        """The kernel's sums, and the seconds under keys of their own."""
        begin = time.perf_counter()
        found: Partial = self.kernel(block, box)
        found.sums["kernel"] = time.perf_counter() - begin
        found.sums["read"] = _here.seconds
        return found
