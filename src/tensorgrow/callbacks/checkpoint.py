"""Checkpoints: the state of a run in a file, so that a run that was killed can be resumed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..data.atomic_file import check_folder
from ..errors import FileFormatError, OptionError, warn
from ..files import read_file, reading, write_file
from ..search import AnySearch
from ..steps import Record

CHECKPOINT_KIND = "checkpoint"


class Checkpoint:
    """Writes the state of a run to a file.

    Parameters
    ----------
    path
        The file. It is replaced atomically; where that fails, say on a full disk, the run goes on.
    identity
        What the run depends on; a file of a run with another identity is refused.
    """

    def __init__(self, path: str | Path, identity: Mapping[str, object]) -> None:
        self.path = Path(path)
        self.identity = identity
        self._next = 0.0
        self._failure: OSError | None = None

    def load(self, search: AnySearch) -> bool:
        """Resume from the file where it exists; return whether it does."""
        check_folder(self.path)
        if not self.path.exists():
            return False
        header, tensors = read_file(self.path, (CHECKPOINT_KIND,))
        with reading(self.path):
            self._resume(search, header, tensors)
        return True

    def _resume(self, search: AnySearch, header: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        if header["format_version"] < 2:
            raise FileFormatError(
                f"the checkpoint {self.path} was written by an older tensorgrow "
                f"({header['library_version']}), whose runs cannot be resumed here. Delete it to start anew"
            )
        theirs = header["identity"]
        for name, mine in self.identity.items():
            then, now = _differences(theirs.get(name, mine), mine)
            if then != now:
                raise OptionError(
                    f"the checkpoint {self.path} belongs to another run: its {name} is {then!r:.200}, here "
                    f"it is {now!r:.200}. Use another file, or delete this one to start anew"
                )
        search.resume(header["state"], tensors)

    def on_start(self, search: AnySearch) -> None:
        """Whoever starts the run has loaded the file."""

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        """Write, unless that would take a sizeable share of the time."""
        if time.perf_counter() >= self._next:
            self._write(search)
        return None

    def on_end(self, search: AnySearch) -> None:
        self._write(search)
        if self._failure is not None:
            warn(
                f"{self._failure}. This was the checkpoint: the run cannot be resumed from where it ended; "
                "its result is not affected"
            )

    def _write(self, search: AnySearch) -> None:
        """Write; a run does not end because that fails, it says so once and tries again after other steps."""
        begin = time.perf_counter()
        state, tensors = search.pack()
        before, self._failure = self._failure, None
        try:
            write_file(self.path, CHECKPOINT_KIND, {"identity": self.identity, "state": state}, tensors)
        except OSError as error:
            self._failure = error
            if before is None:
                warn(f"{error}. This is the checkpoint: the run goes on, and tries to write it again")
        now = time.perf_counter()
        self._next = now + 20.0 * (now - begin)  # so that at most a twentieth of the time goes into writing


def _differences(one: object, other: object) -> tuple[object, object]:
    """Of two dictionaries, such as options, the items that differ; other values as they are.

    What the first one, of the file, does not have counts as the same: an earlier version did not know it.
    """
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return one, other
    names = [n for n in one if n not in other or one[n] != other[n]]
    return {n: one[n] for n in names}, {n: other[n] for n in names if n in other}
