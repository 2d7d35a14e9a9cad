"""Fingerprints: what identifies data, so that a checkpoint of other data is refused.

The same data has the same fingerprint, on every device and with any number of threads; data that differs in
one entry almost surely has another. Each takes one pass of whole-number arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch


def fingerprint_tensor(x: torch.Tensor) -> str:
    """Fingerprint of the numbers of a tensor and their places."""
    flat = x.detach().resolve_conj().resolve_neg().reshape(-1)
    words = (torch.view_as_real(flat) if flat.is_complex() else flat).reshape(-1)
    if words.is_floating_point():
        words = words.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[words.element_size()])
    total = 0
    for start in range(0, len(words), 1 << 22):  # a bounded amount of memory for the codes
        codes = words[start : start + (1 << 22)].long()
        # Sums of whole numbers that wrap around do not depend on their order.
        codes = (codes ^ torch.arange(start, start + len(codes), device=codes.device)) * 0x5851F42D4C957F2D
        codes = (codes ^ (codes >> 29)) * 0x14057B7EF767814F
        total += int((codes ^ (codes >> 32)).sum())
    return f"{'x'.join(map(str, x.shape))}:{total % 2**64:016x}"


def fingerprint_tensors(tensors: Iterable[torch.Tensor | None]) -> str:
    """Fingerprint of several tensors in their order, for example the parameters of a model."""
    parts = ["-" if x is None else fingerprint_tensor(x) for x in tensors]
    return hashlib.sha256(";".join(parts).encode()).hexdigest()[:16]


def fingerprint_positions(indices: Any) -> int:
    """Fingerprint of listed positions, ``(n, order)``, whatever their order.

    The fingerprint of two lists together is the sum of theirs modulo 2^64.
    """
    array = indices.cpu().numpy() if isinstance(indices, torch.Tensor) else indices
    return int(position_codes(array, 1).sum(dtype=np.uint64))


def position_codes(indices: Any, seed: int) -> Any:
    """Hash every row of an array of positions into 64 bits (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        code = np.full(len(indices), seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        for column in indices.T:
            code += column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            code ^= code >> np.uint64(31)
    return code
