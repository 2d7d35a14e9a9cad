"""Latency and memory of layers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..layer.linear import TNLinear
from ..layer.schedules import peak_entries
from ..modules import count_parameters, switch_mode

# Rows of the input that latencies and memory are for.
ROWS = 32


@torch.no_grad()
def median_seconds(call: Callable[[], Any], module: nn.Module) -> float:
    """Median time of up to 15 calls within half a second in evaluation mode, after two that warm up."""
    cuda = any(p.is_cuda for p in module.parameters())
    times: list[float] = []
    with switch_mode(module, training=False):
        for _ in range(2 + 15):
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
            if len(times) > 3 and sum(times) > 0.5:
                break
    return statistics.median(times[2:])


def layer_bytes(layer: nn.Linear | TNLinear, rows: int) -> int:
    """Bytes of parameters, input, output and everything between for that many rows; counted."""
    entries = count_parameters(layer) + rows * layer.in_features
    if isinstance(layer, TNLinear):
        plan = layer.plan_for(rows)
        entries += peak_entries(layer.layout, layer.structure, plan, rows)
        if layer.input_scale is not None:
            entries += rows * layer.in_features
    else:
        entries += rows * layer.out_features
    return entries * next(layer.parameters()).element_size()
