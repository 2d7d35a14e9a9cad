"""Blocks on their way from files or host memory to a GPU.

A GPU copies page-locked memory by itself, several times faster than ordinary memory, which the CPU has to
copy piece by piece. So threads read blocks ahead into page-locked memory and start their copies, while the
GPU computes with the block before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np
import torch

from ..parallel.executor import map_in_order
from .grid import Box
from .reducer import Kernel, Partial, Reducer, Sums, block_tensor, check_is_real, run_kernel


def lock_pages(size: int) -> torch.Tensor:
    """Allocate bytes of host memory that a GPU can copy by itself."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


@dataclass(frozen=True)
class Sent:
    """A block on the GPU, and the event that says that all of it has arrived."""

    block: torch.Tensor
    arrived: Any


class Stage:
    """Page-locked memory for a few blocks, one per slot, and the stream in which they are copied.

    Where the system has no such memory, blocks are copied as they are.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, slots: int) -> None:
        self.device, self.dtype = device, dtype
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._memory: list[torch.Tensor | None] = [None] * slots
        # For each slot the event after which its memory may be written to again.
        self.arrived: list[Any] = [None] * slots
        self.locks = True

    def send(self, slot: int, block: Any) -> Sent:
        """Start the copy of a block to the GPU; the block itself may change afterwards."""
        check_is_real(block, str(self.dtype))
        if self.arrived[slot] is not None:
            self.arrived[slot].synchronize()  # the memory of the slot is still being copied from
        host = self._fill(slot, block)
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            moved = torch.empty(host.shape, dtype=self.dtype, device=self.device)
            moved.copy_(host, non_blocking=self.locks)
            arrived = None if self._stream is None else self._stream.record_event()
        self.arrived[slot] = arrived
        return Sent(moved, arrived)

    def receive(self, sent: Sent) -> torch.Tensor:
        """Return the block, for what this thread starts on the GPU from now on."""
        if sent.arrived is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_event(sent.arrived)
            sent.block.record_stream(here)  # its memory is not used again before that is done
        return sent.block

    def _fill(self, slot: int, block: Any) -> torch.Tensor:
        """Copy a block into the memory of a slot; where there is none, return it as it is."""
        shape = tuple(block.shape)
        memory = self._room(slot, math.prod(shape) * self.dtype.itemsize)
        if memory is None:
            return block_tensor(block).detach()
        host = memory.view(self.dtype).view(shape)
        if isinstance(block, torch.Tensor):
            if block.dtype != self.dtype or block.is_conj() or block.is_neg():
                return host.copy_(block.detach())
            block = block.detach().numpy()
        np.copyto(host.numpy(), np.asarray(block), casting="unsafe")  # other threads run meanwhile
        return host

    def _room(self, slot: int, size: int) -> torch.Tensor | None:
        """Return `size` bytes of the memory of a slot; None where there is no page-locked memory."""
        memory = self._memory[slot]
        if self.locks and (memory is None or memory.numel() < size):
            self._memory[slot] = None  # freed before more is allocated
            try:
                memory = self._memory[slot] = lock_pages(size)
            except RuntimeError:  # no such memory is left, or none may be taken
                self.locks = False
        return memory[:size] if self.locks and memory is not None else None


@dataclass(eq=False)
class StagedReducer(Reducer):
    """Blocks read ahead by threads of this process, and computed one after the other on a GPU."""

    threads: int = 2  # blocks that are read and copied at the same time

    @cached_property
    def _stage(self) -> Stage:
        return Stage(torch.device(self.form.device or "cpu"), getattr(torch, self.form.dtype), self.threads)

    @property
    def at_once(self) -> int:
        # Blocks that wait on the GPU, in units of the four copies that computing with one takes.
        return 1 + -(-self.threads // 4)

    def _reduce_groups(self, kernel: Kernel, groups: list[Sequence[Box]]) -> Sums:
        stage = self._stage  # created here, not by several threads at once

        def send(item: tuple[int, Box]) -> Sent:
            return stage.send(item[0], self.source.read(item[1]))

        # A slot is free again when as many blocks as there are slots have come after its last one.
        slots = zip(cycle(range(self.threads)), self.boxes)
        with closing(map_in_order(send, slots, self.threads)) as blocks:
            for group in groups:
                total = Partial()
                for box in group:
                    block = self.form(stage.receive(next(blocks)))
                    total.add(run_kernel(kernel, block, box))
                    del block  # its memory is free for one of the next
                yield total
