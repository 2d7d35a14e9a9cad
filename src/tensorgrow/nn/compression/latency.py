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

__all__ = ["layer_bytes", "median_seconds"]

REPEATS = 15
MOST_SECONDS = 0.5


@torch.no_grad()
def median_seconds(call: Callable[[], Any], module: nn.Module) -> float:
    """Median time of a call in evaluation mode, after two that warm up."""
    cuda = any(p.is_cuda for p in module.parameters())
    mode = module.training
    module.eval()
    times: list[float] = []
    try:
        for _ in range(2 + REPEATS):
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            if cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
            if len(times) > 3 and sum(times) > MOST_SECONDS:
                break
    finally:
        module.train(mode)
    return statistics.median(times[2:])


def layer_bytes(layer: nn.Linear | TNLinear, rows: int) -> int:
    """Bytes of parameters, input, output and everything between while so many rows are applied; counted."""
    parameters = list(layer.parameters())
    entries = sum(p.numel() for p in parameters) + rows * layer.in_features
    if isinstance(layer, TNLinear):
        plan = layer.plan_for(rows)
        entries += peak_entries(layer.layout, layer.structure, plan, rows)
        if layer.input_scale is not None:
            entries += rows * layer.in_features
    else:
        entries += rows * layer.out_features
    return entries * parameters[0].element_size()
