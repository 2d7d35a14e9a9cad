"""Where to compute: devices, memory and threads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock, local
from typing import Any

import torch

from ..errors import MemoryLimitError, OptionError, check_positive
from .sizes import bytes_text

# Seconds of a sweep on one core, nominal ones, from which whole runs are faster on a GPU: tensors of about a
# million entries where nothing is known of the network (benchmarks/results/gpu.json).
GPU_SECONDS = 3e-3
# Columns of the environment of a core in the networks that most runs end with.
TYPICAL_WIDTH = 8.0
# Less than this is allocated without asking the system how much is free, which takes some 0.1 ms.
SMALL_BYTES = 1 << 24
# Where Linux describes the limits of a container.
CGROUPS = Path("/sys/fs/cgroup")


def dense_flops(entries: int, width: float = TYPICAL_WIDTH) -> float:
    """Arithmetic of a sweep over a dense tensor, read twice, with environments of so many columns."""
    return 4.0 * entries * width


def is_worth_gpu(flops: float) -> bool:
    """Whether a run whose sweeps take so much arithmetic is faster on a GPU."""
    return flops >= flops_in(GPU_SECONDS, "cpu")


def choose_device(device: Any, tensor: torch.Tensor, flops: float | None = None) -> torch.device:
    """Return the device to compute on: the one named, or None: where `tensor` is.

    "auto" is a GPU, if there is one, where a sweep takes a CPU long. `flops` is the arithmetic of one, by
    default of one over all of `tensor`.
    """
    if device is None:
        return tensor.device
    if device == "auto":
        large = is_worth_gpu(dense_flops(tensor.numel()) if flops is None else flops)
        return torch.device("cuda") if large and torch.cuda.is_available() else tensor.device
    try:
        where = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"device={device!r} is not known: use 'cpu', 'cuda' or 'auto'") from error
    if where.type not in ("cpu", "cuda"):
        raise OptionError(f"device={device!r} is not supported: use 'cpu', 'cuda' or 'auto'")
    if where.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(
            f"device={device!r} was asked for, but no CUDA GPU is available; use 'cpu' or 'auto'"
        )
    return where


# What sweeps reach in double precision. The figures are nominal, so that a run can be repeated on another
# machine of the same kind. One core of a Xeon or EPYC makes 8 to 20 GFlop/s. A GPU reaches more in large
# networks, but starts a kernel per product in small ones: of 1e10, 1e11 and 1e12 the second gave the best
# errors for the time on an H200 (five completions and an image, docs/diary.md has the numbers).
FLOPS_PER_SECOND = {"cpu": 1e10, "cuda": 1e11}


def flops_in(seconds: float, device: torch.device | str) -> float:
    """Arithmetic that a device does in some time."""
    return seconds * FLOPS_PER_SECOND.get(torch.device(device).type, FLOPS_PER_SECOND["cpu"])


# -- memory --------------------------------------------------------------------------------------------


def free_memory(device: torch.device) -> float:
    """Bytes that can still be allocated on a device."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch keeps these
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    in_system = _free_in_system()
    return min(in_system, _free_in_cgroup(CGROUPS, in_system))


def _free_in_system() -> float:
    with suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    with suppress(ImportError):  # other systems than Linux
        import psutil  # type: ignore[import-untyped, unused-ignore]

        return float(psutil.virtual_memory().available)
    with suppress(ValueError, OSError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return math.inf


def _free_in_cgroup(root: Path, enough: float) -> float:
    """Bytes up to the limit of a container, of which the numbers of the system know nothing.

    Cached files count as free: the cache can be dropped. They are not counted where there is `enough` without
    them, for the system takes as long to add them up as for all else that is read here.
    """
    for folder, limit, used, cache in (
        (root, "memory.max", "memory.current", "inactive_file"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):  # no such cgroup, or "max" for no limit
            most = int((folder / limit).read_text())
            left = most - int((folder / used).read_text())
            if left >= enough:
                return float(left)
            fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return float(left + int(fields.get(cache, 0)))
    return math.inf


def parse_memory_limit(memory_limit: float | None) -> float | None:
    """Check a user's `memory_limit`; None stays None."""
    return None if memory_limit is None else check_positive("memory_limit", memory_limit, more=" of bytes")


def memory_for(device: torch.device, memory_limit: float | None) -> float:
    """Bytes that a run may use on a device: the user's `memory_limit`, or what is free."""
    limit = parse_memory_limit(memory_limit)
    return free_memory(device) if limit is None else limit


def gigabytes(size: float) -> str:
    """A number of bytes, for messages."""
    if size >= 1e30:
        return bytes_text(size)
    return f"{size / 1e9:,.2f} GB" if size >= 1e7 else f"{size / 1e9:.2g} GB"


def check_memory(needed: int, limit: float, what: str) -> None:
    """Raise `MemoryLimitError` where `what` needs more bytes than the limit, before anything is allocated."""
    if needed > limit:
        raise MemoryLimitError(
            f"{what} needs about {gigabytes(needed)}, but the limit is {gigabytes(limit)}. "
            "Use float32, a smaller tensor, or raise memory_limit if the machine has more"
        )


def check_free(needed: int, device: torch.device, what: str, instead: str) -> None:
    """Raise `MemoryLimitError` where `what` needs more bytes than are free; `instead` is what to do then."""
    if needed <= SMALL_BYTES:
        return
    free = free_memory(device)
    if needed > free:
        raise MemoryLimitError(
            f"{what} needs about {gigabytes(needed)}, but {gigabytes(free)} are free. {instead}"
        )


# -- threads -------------------------------------------------------------------------------------------


def usable_cores() -> int:
    """Cores this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pools() -> Any:
    """Control over BLAS threads, where threadpoolctl is installed.

    It knows libraries that are loaded, and SciPy has a BLAS of its own. One that came later would keep all
    its threads: banded solves of smooth axes then took 130 instead of 16 ms on two busy cores.
    """
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    with suppress(ImportError):
        import scipy.linalg  # noqa: F401
    return ThreadpoolController()


def can_limit_threads() -> bool:
    """Whether `one_thread` limits NumPy's BLAS too."""
    return _pools() is not None


class _Threads:
    """How many threads are inside `one_blas_thread` and `one_thread`, and what to bring back after them.

    They come and go in any order: what one finds on its way in may be the limit of another, so that the first
    in notes the numbers, and the last out brings them back.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.in_blas = self.in_torch = 0
        self.of_torch = 1
        self.of_blas: list[tuple[Any, int]] = []  # every library, and its threads


_threads = _Threads()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context in which the BLAS of NumPy and SciPy uses one thread; torch keeps its own."""
    pools = _pools()
    with _threads.lock:
        _threads.in_blas += 1
        if _threads.in_blas == 1 and pools is not None:
            # `pools.limit` asks every library for its version and kind too, which takes five times as long.
            libraries = [c for c in pools.lib_controllers if c.user_api == "blas"]
            _threads.of_blas = [(c, c.num_threads) for c in libraries]
            for library in libraries:
                library.set_num_threads(1)
    try:
        yield
    finally:
        with _threads.lock:
            _threads.in_blas -= 1
            if _threads.in_blas == 0:
                for library, threads in _threads.of_blas:
                    library.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Context in which torch and the BLAS of NumPy and SciPy use one thread.

    On small matrices their thread pools spend up to ten times longer waiting for each other than computing.
    """
    with one_blas_thread():
        with _threads.lock:
            # Torch has a number for every thread that calls it, but new ones begin with the last number set.
            before = torch.get_num_threads()
            if not _threads.in_torch:
                _threads.of_torch = before
            _threads.in_torch += 1
        is_nested = getattr(_mine, "is_inside", False)
        _mine.is_inside = True
        torch.set_num_threads(1)
        try:
            yield
        finally:
            with _threads.lock:
                _threads.in_torch -= 1
                if not is_nested:
                    _mine.is_inside = False
                    torch.set_num_threads(_threads.of_torch if before == 1 else before)


_mine = local()


def threads_of_run() -> tuple[int, int]:
    """Threads of our own for large products where the BLAS is held to one, and how many a lone run has.

    A lone run has as many as torch had before it was held to one, too. 0 stands for the caller itself: where
    several runs share the cores, or the BLAS has its own threads.
    """
    if not _threads.in_blas:
        return 0, 1
    most = min(_threads.of_torch if _threads.in_torch else torch.get_num_threads(), usable_cores())
    return (most if _threads.in_blas == 1 and most > 1 else 0), most
