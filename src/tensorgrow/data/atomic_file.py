"""Every file of this library is written here: all of it gets its name, or nothing does."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import WriteError

# What is left of a killed process elsewhere is removed after a day: no write pauses for so long.
DAY = 86_400.0

_WHAT_TO_DO = {
    errno.ENOSPC: "the disk is full; free some space, or choose another folder",
    errno.EDQUOT: "your quota is used up; free some space, or choose another folder",
    errno.EFBIG: "the file is too large for this disk or its limit; choose another folder",
    errno.EROFS: "the disk is read-only; choose another folder",
    errno.EACCES: "permission denied; choose another folder, or change its permissions",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


def check_folder(path: Path) -> None:
    """Refuse a file whose folder does not exist, before any time is spent on it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")


@contextmanager
def replacing(path: str | Path, *failures: type[Exception], folder: bool = False) -> Iterator[Path]:
    """Give a name to write to; once the block ends, what was written replaces `path`.

    A process that is killed at any moment leaves the previous file or the new one. An existing file keeps its
    permissions, a symbolic link stays one, and a new file gets what the umask allows. What killed processes
    left of earlier writes is removed.

    Parameters
    ----------
    failures
        What the block raises besides `OSError` when a disk is full.
    folder
        The block makes a folder, as zarr does.

    Raises
    ------
    WriteError
        In one line, which file could not be written and what to do.
    """
    path = Path(path)
    known: tuple[type[Exception], ...] = (OSError, *failures)
    check_folder(path)
    target = Path(os.path.realpath(path))
    if target.is_dir() and not folder:
        raise WriteError(f"cannot write {path}: it is a folder; give the name of a file")
    if target.exists() and not (folder or target.is_file()):
        yield path  # a device or a pipe is written to, not replaced
        return
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]
    name = f".tensorgrow-{digest}-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    temporary = target.with_name(name + target.suffix[:16])  # libraries go by the ending
    try:
        _remove_stale(target.parent, digest)
        if folder:
            yield temporary
            _replace_folder(temporary, target)
        else:
            mode = _create(temporary, target)
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.chmod(temporary, mode)
            os.replace(temporary, target)
    except known as error:
        raise WriteError(f"cannot write {path}: {_explain(error)}") from error
    finally:
        _remove(temporary)


def _create(temporary: Path, target: Path) -> int:
    """Make an empty file; return the permissions it is to have, those of the target where there is one."""
    exists = target.exists()
    # Nobody may read what replaces a private file while it is written; else the system applies the umask.
    file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if exists else 0o666)
    try:
        return stat.S_IMODE((os.stat(target) if exists else os.fstat(file)).st_mode)
    finally:
        os.close(file)


def _replace_folder(new: Path, target: Path) -> None:
    if not target.exists():
        os.rename(new, target)
        return
    old = new.with_name(f"{new.name}-old")
    os.rename(target, old)  # a folder cannot be replaced in one go
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        for _ in range(10):  # threads of zarr may still be writing after one of them has failed
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break
            time.sleep(0.05)
    else:
        with suppress(OSError):
            path.unlink()


def _remove_stale(folder: Path, digest: str) -> None:
    """Remove what processes that are gone had begun to write for the same target."""
    for name in os.listdir(folder):
        parts = re.fullmatch(rf"\.tensorgrow-{digest}-(\w+)-(\d+)-\w+(\..*|-old)?", name)
        if parts is None:
            continue
        path = folder / name
        with suppress(OSError):
            is_old = time.time() - path.stat().st_mtime > DAY
            if is_old or (parts[1] == _machine() and not _is_alive(int(parts[2]))):
                _remove(path)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere this signal would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _machine() -> str:
    """A short name of this computer: processes of others cannot be asked whether they are alive."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _explain(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number is None:  # some libraries have it in their text only
        found = re.search(r"(?:os error|errno =?) ?(\d+)", str(error))
        number = None if found is None else int(found[1])
    if number in _WHAT_TO_DO:
        return _WHAT_TO_DO[number]
    said = " ".join(str(getattr(error, "strerror", None) or error).split())
    return f"{said:.200}. Is the disk full? Free some space, or choose another folder"
