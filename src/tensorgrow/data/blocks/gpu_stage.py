"""Blocks on their way from files or host memory to a GPU.

A GPU copies page-locked memory by itself, several times faster than ordinary memory, which the CPU has to
copy piece by piece. So threads read blocks ahead into page-locked memory and start their copies, while the
GPU computes with the block before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from .grid import Box
from .reducer import Form, Kernel, Partial, as_tensor, computed, groups_of
from .sources import BlockSource

__all__ = ["StagedReducer", "read_ahead"]

Item = TypeVar("Item")
Found = TypeVar("Found")

# Copies of a block that its computation takes, to compare blocks that wait on the GPU with.
COPIES_AT_WORK = 4


def read_ahead(
    items: Sequence[Item], work: Callable[[int, Item], Found], slots: int
) -> Generator[Found, None, None]:
    """What ``work(slot, item)`` gives, in the order of the items, computed ahead by a thread per slot.

    A slot goes to another item once the next result is asked for: then the one it gave is no longer in use.
    """
    waiting: deque[Future[Found]] = deque()
    with ThreadPoolExecutor(slots) as pool:
        try:
            for number, item in enumerate(items):
                if len(waiting) == slots:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(work, number % slots, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def page_locked(size: int) -> torch.Tensor:
    """So many bytes of host memory that a GPU can copy by itself."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


@dataclass(frozen=True)
class Sent:
    """A block on the GPU, and what tells that all of it has arrived."""

    block: torch.Tensor
    arrived: Any


class Stage:
    """Page-locked memory for a few blocks, and the stream in which they are copied.

    Where the system gives no such memory, blocks are copied as they are.

    Parameters
    ----------
    slots
        Blocks on their way at the same time.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, slots: int) -> None:
        self.device, self.dtype = device, dtype
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._memory: list[torch.Tensor | None] = [None] * slots
        self._arrived: list[Any] = [None] * slots
        self.locks = True

    def send(self, slot: int, block: Any) -> Sent:
        """Start the copy of a block to the GPU; the block itself may change afterwards."""
        if self._arrived[slot] is not None:
            self._arrived[slot].synchronize()  # the memory of the slot is still being copied from
        host = self._filled(slot, block)
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            moved = torch.empty(host.shape, dtype=self.dtype, device=self.device)
            moved.copy_(host, non_blocking=self.locks)
            arrived = None if self._stream is None else self._stream.record_event()
        self._arrived[slot] = arrived
        return Sent(moved, arrived)

    def receive(self, sent: Sent) -> torch.Tensor:
        """The block, for what this thread starts on the GPU from now on."""
        if sent.arrived is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_event(sent.arrived)
            sent.block.record_stream(here)  # its memory is not given away before that is done
        return sent.block

    def _filled(self, slot: int, block: Any) -> torch.Tensor:
        """A block in the memory of a slot; as it is where there is none."""
        shape = tuple(block.shape)
        memory = self._room(slot, math.prod(shape) * self.dtype.itemsize)
        if memory is None:
            return as_tensor(block).detach()
        host = memory.view(self.dtype).view(shape)
        if isinstance(block, torch.Tensor):
            if block.dtype != self.dtype or block.is_conj() or block.is_neg():
                return host.copy_(block.detach())
            block = block.detach().numpy()
        np.copyto(host.numpy(), np.asarray(block), casting="unsafe")  # other threads run meanwhile
        return host

    def _room(self, slot: int, size: int) -> torch.Tensor | None:
        """So many bytes of the memory of a slot."""
        memory = self._memory[slot]
        if self.locks and (memory is None or memory.numel() < size):
            self._memory[slot] = None  # given back before more is taken
            try:
                memory = self._memory[slot] = page_locked(size)
            except RuntimeError:  # no such memory is left, or none may be taken
                self.locks = False
        return memory[:size] if self.locks and memory is not None else None


class StagedReducer:
    """Blocks read ahead by threads of this process, and computed one after the other on a GPU.

    Parameters
    ----------
    threads
        Blocks that are read and copied at the same time.
    """

    def __init__(self, source: BlockSource, boxes: Sequence[Box], form: Form, threads: int) -> None:
        self.source, self.boxes, self.form, self.threads = source, boxes, form, threads
        self._count = [0]  # shared with other forms of the same data

    @cached_property
    def _stage(self) -> Stage:
        return Stage(torch.device(self.form.device or "cpu"), getattr(torch, self.form.dtype), self.threads)

    @property
    def at_once(self) -> int:
        """Blocks at work at the same time: one, and those on their way, which take one copy each."""
        return 1 + -(-self.threads // COPIES_AT_WORK)

    @property
    def passes(self) -> int:
        """How often the data was read."""
        return self._count[0]

    def with_form(self, form: Form) -> StagedReducer:
        """The same with blocks in another form."""
        other = StagedReducer(self.source, self.boxes, form, self.threads)
        other._count = self._count
        return other

    def reduce(self, kernel: Kernel) -> Partial:
        """One pass over the data."""
        self._count[0] += 1
        total = Partial()
        stage = self._stage  # made here, not by several threads at once
        with closing(read_ahead(self.boxes, self._send, self.threads)) as blocks:
            for group in groups_of(self.boxes):
                found = Partial()
                for box in group:
                    block = self.form(stage.receive(next(blocks)))
                    found.add(computed(kernel, block, box))
                    del block  # its memory is free for one of the next
                total.add(found)
        return total

    def _send(self, slot: int, box: Box) -> Sent:
        return self._stage.send(slot, self.source.read(box))
