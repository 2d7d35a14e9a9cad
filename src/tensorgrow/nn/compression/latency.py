"""Latency and memory of layers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..layer.application import Application
from ..layer.schedules import peak_entries
from ..layer.tn_layer import TNLayer
from ..modules import count_parameters, switch_mode


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


def layer_bytes(layer: nn.Module, application: Application, sizes: tuple[int, int], rows: int) -> int:
    """Bytes of parameters, input, output and everything between for that many rows; counted.

    The weight of the layer has `sizes`, columns and rows.
    """
    columns, outputs = sizes
    given = application.input_entries(columns, rows)
    entries = count_parameters(layer) + given
    if isinstance(layer, TNLayer):
        entries += peak_entries(layer.layout, layer.structure, layer.way_for(rows), rows)
        if layer.input_scale is not None:
            entries += given
    else:
        entries += rows * outputs
    return entries * next(layer.parameters()).element_size()
