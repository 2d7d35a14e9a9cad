"""Sizes in bytes, as people write them."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """Write a size: ``7.23 kB`` for 7,232 bytes."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
