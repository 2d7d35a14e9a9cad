"""Arrays on disk for the parts of the benchmark, and how fast they are read."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "drop_from_cache",
    "files_of",
    "read_rate",
    "scratch",
    "smooth_block",
    "write_smooth",
    "write_video",
]


def smooth_block(shape: Sequence[int], start: int, stop: int) -> np.ndarray:
    """Rows of a smooth function, 1 / (1 + distance), plus a product of waves, plus noise of 0.1 %."""
    axes = [np.linspace(0.0, 1.0, n, dtype=np.float32) for n in shape]
    axes[0] = axes[0][start:stop]
    parts = [a.reshape([-1 if k == m else 1 for m in range(len(shape))]) for k, a in enumerate(axes)]
    x = 1.0 + parts[0] + parts[1]
    x = x + (parts[2] + parts[3])
    np.reciprocal(x, out=x)
    waves = [np.sin((9.0 + 4 * k) * p) for k, p in enumerate(parts)]
    x += 0.2 * (waves[0] * waves[1]) * (waves[2] * waves[3])
    noise = np.random.default_rng(start).standard_normal(x.shape, dtype=np.float32)
    noise *= 3e-4
    x += noise
    return x


def write_smooth(folder: Path, gigabytes: float) -> Any:
    """Order 4, float32, chunks of at most 33 MB."""
    import zarr

    side = 1 << round(math.log2((gigabytes * 2**30 / 4 * 2) ** 0.25))
    last = max(1, round(gigabytes * 2**30 / 4 / side**3))
    shape = (side, side, side, last)
    chunk = (min(16, side), min(64, side), side, min(32, last))
    array = zarr.create_array(
        str(folder / "smooth.zarr"), shape=shape, chunks=chunk, dtype="float32", compressors=None
    )
    for start in range(0, side, chunk[0]):
        array[start : start + chunk[0]] = smooth_block(shape, start, start + chunk[0])
    return array


def write_video(folder: Path, gigabytes: float, data: Path) -> Any:
    """Frames of a real video, repeated in time."""
    import zarr

    name = sorted(data.glob("*.npz"))[0]
    with np.load(name) as file:
        video = file[file.files[0]]
    height, width, colours, frames = video.shape
    repeats = max(1, round(gigabytes * 2**30 / 4 / video.size))
    shape = (height, width, colours, frames * repeats)
    array = zarr.create_array(
        str(folder / "video.zarr"),
        shape=shape,
        chunks=(height, width, colours, min(frames, 64)),
        dtype="float32",
        compressors=None,
    )
    for k in range(repeats):
        array[..., k * frames : (k + 1) * frames] = video.astype(np.float32)
    return array


def files_of(folder: Path) -> list[Path]:
    """Chunk files of a zarr array."""
    return [p for p in folder.rglob("*") if p.is_file()]


def drop_from_cache(files: Sequence[Path]) -> None:
    """Drop files from the page cache."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_rate(files: Sequence[Path], threads: int) -> float:
    """Bytes per second of plain reads that nothing has cached."""
    drop_from_cache(files)

    def read(path: Path) -> int:
        total = 0
        with path.open("rb", buffering=0) as file:
            while piece := file.read(1 << 23):
                total += len(piece)
        return total

    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        size = sum(pool.map(read, files))
    return size / (time.perf_counter() - begin)


@contextmanager
def scratch(folder: str | None, gigabytes: float) -> Iterator[Path]:
    """A folder that is deleted afterwards; refused where the disk is too full."""
    made = Path(tempfile.mkdtemp(dir=folder))
    try:
        free = shutil.disk_usage(made).free
        if free < 1.3 * gigabytes * 2**30:
            raise SystemExit(f"{free / 1e9:.0f} GB are free in {made.parent}; --folder chooses another place")
        yield made
    finally:
        shutil.rmtree(made)
