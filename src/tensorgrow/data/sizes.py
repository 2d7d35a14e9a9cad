"""Sizes in bytes: of files, and as people write them."""

from __future__ import annotations

from pathlib import Path


def bytes_text(count: float) -> str:
    """Write a size: ``7.23 kB`` for 7,232 bytes."""
    if count >= 1e30:  # of high orders, more than a float can hold
        return f"10^{len(str(int(count))) - 10} GB"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def stored_bytes(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(f.stat().st_size for f in files if f.is_file())
