"""A tensor of 32 GB on a GPU, and the same tensor in host memory: seconds per step and bytes per second."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import torch

import tensorgrow as tg
from tensorgrow.experiments.harness import Row

__all__ = ["measure"]


def smooth_tensor(side: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Order 3: a ring of smooth random factors with ranks 3, 4, 3, and 1 % noise, made slab by slab."""
    generator = torch.Generator(device=device).manual_seed(0)

    def core(left: int, right: int) -> torch.Tensor:
        steps = torch.randn(side, left, right, generator=generator, device=device, dtype=torch.float64)
        walk = steps.cumsum(0) / math.sqrt(side)
        return walk.to(dtype)

    a, b, c = core(3, 3), core(3, 4), core(4, 3)
    x = torch.empty(side, side, side, device=device, dtype=dtype)
    right = torch.einsum("jqr,krp->pqjk", b, c).reshape(9, -1)
    slab = max(1, min(side, (1 << 28) // side**2))
    for start in range(0, side, slab):
        part = a[start : start + slab].permute(0, 2, 1).reshape(-1, 9)  # (i, q p)
        part = part.reshape(-1, 3, 3).permute(0, 2, 1).reshape(-1, 9)  # (i, p q)
        made = (part @ right).reshape(-1, side, side)
        size = float(made.square().mean().sqrt())
        noise = torch.randn(made.shape, generator=generator, device=device, dtype=dtype)
        x[start : start + slab] = made.add_(noise, alpha=0.01 * size)
    return x


def measure(params: Row) -> Row:
    """Growth from rank one to the error target on one tensor."""
    device, where, method = params["device"], params["where"], params["method"]
    x = smooth_tensor(params["side"], device)
    if device != "cpu":
        torch.cuda.synchronize()
    if where == "host":
        x = x.cpu()
        if device != "cpu":
            torch.cuda.empty_cache()
    size = x.numel() * x.element_size()
    steps: list[Row] = []
    begin = time.perf_counter()
    result = tg.decompose(
        tg.Blocks(x, method=method),
        max_error=0.05,
        max_seconds=params["max_seconds"],
        random_state=0,
        effort="fast",
        device=None if device == "cpu" else device,
        callbacks=lambda s: (
            steps.append({"kind": s.kind, "size": s.num_parameters, "at": s.seconds}) and None
        ),
    )
    seconds = time.perf_counter() - begin
    passes = result.info["passes"]
    grown = [b["at"] - a["at"] for a, b in pairwise(steps) if b["kind"] == "grow"]
    return {
        "bytes": size,
        "seconds": seconds,
        "passes": passes,
        "blocks": result.info["blocks"],
        "seconds_per_pass": seconds / passes,
        "bytes_per_second": passes * size / seconds,
        "seconds_per_growth": sum(grown) / len(grown) if grown else None,
        "growths": len(grown),
        "parameters": result.num_parameters,
        "relative_error": result.relative_error,
        "stop": result.stop.name,
        "used": result.info["method"],
    }
