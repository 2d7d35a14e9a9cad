"""What operations cost on a device, in the terms of ``tensorgrow.nn.layer.costs``."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

import tensorgrow as tg
from tensorgrow.experiments.harness import Row
from tensorgrow.nn.layer.costs import machine_of
from tensorgrow.nn.layer.layout import Layout
from tensorgrow.nn.layer.plans import through_plan
from tensorgrow.nn.layer.products import run

from ..timing import call_seconds

__all__ = ["measure_rates"]


@torch.no_grad()
def typical(call: Callable[[], Any], device: str) -> float:
    """Median seconds; CPU time on the CPU, which other processes disturb less."""
    times = [call_seconds(call, device, cpu_time=device == "cpu") for _ in range(23)]
    return statistics.median(times[3:])


def overhead(device: str) -> float:
    """Seconds per operation: what more of them take, where each does next to nothing."""
    counts, times = [], []
    for digits in (3, 9):
        layout = Layout((2,) * digits, (2,) * digits)
        structure = tg.Structure.tensor_train(layout.dims, 2)
        plan = through_plan(layout, structure, 1, device)
        operands = [torch.randn(1, 2**digits, device=device)]
        operands += [torch.randn(s, device=device) for s in structure.core_shapes]
        counts.append(sum(1 + any(w.copied) for w in plan.work))
        times.append(typical(lambda p=plan, o=operands: run(p, o), device))
    return (times[1] - times[0]) / (counts[1] - counts[0])


def flop_rate(device: str) -> float:
    """Of large matrix products."""
    n = 1024 if device == "cpu" else 4096
    a = torch.randn(n, n, device=device)
    return 2 * n**3 / typical(lambda: a @ a, device)


def byte_rate(device: str, size: int) -> float:
    """Of products with small matrices that touch `size` bytes; they are bound by memory."""
    a, b = torch.randn(size // (2 * 4 * 16), 16, device=device), torch.randn(16, 16, device=device)
    return size / typical(lambda: a @ b, device)


def scatter(device: str, near: float, far: float, cache: float) -> float:
    """How copies slow down with the size of their tiles, for the copy that ends a rebuilt weight."""
    found = []
    for size, digits in ((4, 5), (8, 4)):
        tensor = torch.randn((size,) * 2 * digits, device=device)
        order = (*range(0, 2 * digits, 2), *range(1, 2 * digits, 2))
        slow = typical(lambda t=tensor, o=order: t.permute(o).contiguous(), device)
        moved = 2 * 4 * tensor.numel()
        rate = near if moved <= cache else far
        found.append((slow * rate / moved - 1) * size**2)
    return statistics.fmean(found)


def measure_rates(device: str) -> Row:
    """A line for the table of machines, but for cache and gradients, and the one in use."""
    now = machine_of(device)
    near = 1 << 22 if device == "cpu" else 1 << 28
    rates = byte_rate(device, near), byte_rate(device, 1 << 28)
    values = {
        "flops": flop_rate(device),
        "bytes": rates[0],
        "far_bytes": rates[1],
        "cache": now.cache,
        "scatter": scatter(device, *rates, now.cache),
        "overhead": overhead(device),
        "with_gradients": now.with_gradients,
    }
    measured = ", ".join(f"{k}={v:.3g}" for k, v in values.items())
    used = ", ".join(f"{k}={v:.3g}" for k, v in now._asdict().items())
    return {"measured": f"Machine({measured})", "in_use": f"Machine({used})"}
