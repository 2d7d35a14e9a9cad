"""What operations cost on a device, in the terms of ``tensorgrow.nn``'s cost estimates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch


def typical(call: Callable[[], Any], device: str, repeats: int = 30) -> float:
    """Median seconds."""
    times = []
    for turn in range(repeats + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if turn >= 3:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def calibrate(device: str) -> str:
    return ""
