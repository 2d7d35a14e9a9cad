"""Who reads the blocks of a tensor, and how large they are."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from ...errors import check_choice, check_whole
from ..devices import usable_cores
from ..parallel.dask_client import active_client, ask_scheduler, least_memory, most_threads
from .cluster import ClientReducer
from .gpu_stage import StagedReducer
from .grid import Box
from .reducer import Form, Reducer, ThreadReducer
from .sources import ArraySource, BlockSource, as_source

Method = Literal["auto", "compress", "stream"]

# Share of the memory limit that blocks may fill.
BLOCK_SHARE = 0.5
# Entries of a block where chunks allow it: what is read is still in the cache when it is computed with.
BLOCK_ENTRIES = 1 << 21
# Bytes of a block on a GPU: there small blocks take less time than starting kernels, and offsets within a
# block must fit in 32 bits. Blocks sent to a GPU are smaller: work begins when the first has arrived.
DEVICE_BLOCK_BYTES = 1 << 30
SENT_BLOCK_BYTES = 1 << 27
# Threads that fill the memory that a GPU copies from: about as many as keep up with its bus.
SENDING_THREADS = 8


@dataclass(frozen=True, eq=False)
class Blocks:
    """A tensor that is read block by block, whether it fits in memory or not, and how it is read.

    Attributes
    ----------
    x
        A zarr, dask, h5py or xarray array, a `numpy.memmap`, a NumPy array or a torch tensor.
    method
        "compress": two passes find orthonormal bases of the modes and the tensor in them, the search runs on
        that small core, one pass verifies the error. "stream": every sweep makes two passes over the data.
        "auto": the first where the core is small enough, else the second.
    client
        A ``dask.distributed.Client``; by default the active one. Without any, threads of this process.
    threads
        Threads without a client; by default one per core, two at least. For a GPU, threads that read ahead
        and fill the memory it copies from: by default one per core, two to eight.

    Examples
    --------
    >>> blocks = Blocks(np.ones((30, 20, 10)), threads=2)
    >>> blocks.shape
    (30, 20, 10)
    """

    x: Any
    _: KW_ONLY
    method: Method = "auto"
    client: Any = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.method, ("auto", "compress", "stream"))
        if self.threads is not None:
            check_whole("threads", self.threads)
        _ = self.source  # refuses what cannot be read

    def __repr__(self) -> str:
        return f"Blocks({self.source.label} of shape {self.shape}, method={self.method!r})"

    @cached_property
    def source(self) -> BlockSource:
        return as_source(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.source.shape

    @property
    def device(self) -> torch.device:
        """Where the tensor is: the CPU, unless it is a torch tensor elsewhere."""
        array = self.source.array if isinstance(self.source, ArraySource) else None
        return array.device if isinstance(array, torch.Tensor) else torch.device("cpu")

    def open(self, form: Form, limit: float, copies: int) -> Reducer:
        """Choose who sums over the blocks, and how large these are.

        This process and every worker may use `limit` bytes; computing with a block takes `copies` of it,
        itself included.
        """
        source, client, threads = self.source, self.client, self.threads
        if client is None and threads is None and type(source) is not ArraySource:
            client = active_client()
        item = max(source.itemsize, np.dtype(form.dtype).itemsize)
        cores = max(2, usable_cores())
        is_sent = form.device is not None and self.device.type == "cpu"
        if form.device is None:
            wanted, usual = BLOCK_ENTRIES, cores
        elif is_sent:
            wanted, usual = SENT_BLOCK_BYTES // item, min(SENDING_THREADS, cores)
        else:
            wanted, usual = DEVICE_BLOCK_BYTES // item, 1

        def boxes(limit: float, at_once: int) -> list[Box]:
            return source.boxes(int(max(1.0, BLOCK_SHARE * limit / (at_once * copies * item))), wanted)

        if client is not None:
            limit = min(limit, ask_scheduler(client, lambda: least_memory(client)))
            at_once = ask_scheduler(client, lambda: most_threads(client))
            return ClientReducer(source, boxes(limit, at_once), form, client)
        threads = threads or usual
        kind = StagedReducer if is_sent else ThreadReducer
        return kind(source, boxes(limit, threads), form, threads)
