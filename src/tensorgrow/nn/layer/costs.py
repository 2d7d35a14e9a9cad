"""What operations of a layer cost: counted work against rates of the device."""

from __future__ import annotations

import math
from typing import NamedTuple


class Machine(NamedTuple):
    """What operations cost on one type of device; only ratios matter."""

    flops: float  # per second
    bytes: float  # per second, where an operation touches at most `cache` bytes
    far_bytes: float  # per second, where it touches more
    cache: float
    scatter: float  # a copy in tiles of n entries costs 1 + scatter / n times one in order
    overhead: float  # seconds per operation
    # With gradients an operation takes this many times its overhead: the host prepares the backward pass, and
    # a GPU waits for it.
    with_gradients: float
    # Channels that the gradients of a convolution are taken for at once: fewer take as long.
    gradient_channels: int = 1
    channels: int = 1  # the same without gradients

    def training(self) -> Machine:
        """What operations cost where gradients are taken."""
        return self._replace(
            overhead=self.overhead * self.with_gradients, channels=max(self.channels, self.gradient_channels)
        )


# CPU: fitted to timings of layers of 1024x1024 and 4096x4096 on one core. GPU: measured on an H200
# (`python -m benchmarks layers --only rates`), except for the overhead of gradients, which was fitted there.
# A CPU multiplies 16 channels at once: chains of 4 to 4 channels, which count for a third of the work of the
# rebuilt weight, took two to six times as long forward and backward.
MACHINES = {
    "cpu": Machine(8.5e10, 7.6e9, 2.2e9, 1.6e7, 24.0, 1.1e-5, 1.0, gradient_channels=16),
    "cuda": Machine(5.03e13, 1.61e12, 1.61e12, math.inf, 48.6, 2.09e-5, 4.0),
}


def machine_of(device: str) -> Machine:
    """Rates of a type of device; accelerators that are not known count as GPUs."""
    return MACHINES.get(device, MACHINES["cuda"])


class Work(NamedTuple):
    """What an operation does as a function of the rows: a constant, and a part per row."""

    flops: tuple[float, float] = (0.0, 0.0)
    entries: tuple[float, float] = (0.0, 0.0)
    copied: tuple[float, float] = (0.0, 0.0)
    tiles: tuple[float, float] = (0.0, 0.0)  # pieces that copies are made of

    @property
    def has_rows(self) -> bool:
        """Whether it grows with the rows."""
        return any(each for _, each in self)

    def copying(self, copy: Work) -> Work:
        """The same with a copy before it."""
        (fixed, each), (tiles, tiles_each) = self.copied, self.tiles
        return self._replace(
            copied=(fixed + copy.copied[0], each + copy.copied[1]),
            tiles=(tiles + copy.tiles[0], tiles_each + copy.tiles[1]),
        )

    def count_entries(self, rows: int) -> float:
        """Numbers read and written."""
        (fixed, each), (copied, copied_each) = self.entries, self.copied
        return fixed + each * rows + 2 * (copied + copied_each * rows)

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        flops, entries, copied, tiles = (fixed + each * rows for fixed, each in self)
        near = itemsize * self.count_entries(rows) <= machine.cache
        rate = machine.bytes if near else machine.far_bytes
        multiplying = max(flops / machine.flops, itemsize * entries / rate)
        copying = 2 * itemsize * (copied + machine.scatter * tiles) / rate
        return multiplying + copying + machine.overhead * (2 if copied and flops else 1)
