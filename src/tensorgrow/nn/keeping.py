"""Checkpoints of a model that is being grown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import OptionError
from ..io import read_file, write_file
from .grown import GrowStep, model_tensors

if TYPE_CHECKING:
    from .growing import GrowRun

__all__ = ["GrowCheckpoint"]

CHECKPOINT_KIND = "checkpoint of a growing model"


class GrowCheckpoint:
    """Writes the state of a run after every step; it is replaced atomically.

    A step takes far longer than writing the file, and a run that is killed within one does that step again
    from the same random state: it ends at the same result.
    """

    def __init__(self, path: str | Path, identity: dict[str, Any]) -> None:
        self.path = Path(path)
        self.identity = identity

    def load(self, run: GrowRun) -> None:
        """Continue from the file where it exists."""
        if not self.path.exists():
            return
        header, tensors = read_file(self.path, (CHECKPOINT_KIND,))
        for name, mine in self.identity.items():
            found = header["identity"].get(name)
            if found != mine:
                raise OptionError(
                    f"the checkpoint {self.path} belongs to another run: its {name} is {found!r:.200}, "
                    f"here it is {mine!r:.200}. Use another file, or delete this one to start anew"
                )
        run.model.load_state_dict(_part(tensors, "model"))
        device = next(run.model.parameters()).device
        run.best = {k: v.to(device) for k, v in _part(tensors, "best").items()}
        memory: dict[str, dict[str, torch.Tensor]] = {}
        for name, key in header["memory"]:
            value = tensors[f"memory/{name}/{key}"]
            memory.setdefault(name, {})[key] = value if value.dim() == 0 else value.to(device)
        run.memory = memory
        run.steps = [GrowStep.from_dict(s) for s in header["steps"]]
        run.spent = header["seconds"]
        run.generator.set_state(tensors["generator"])

    def on_start(self, run: GrowRun) -> None:
        """Nothing to do: `grow` loads before the run."""

    def on_step(self, run: GrowRun, step: GrowStep) -> None:
        """Write."""
        assert run.best is not None
        tensors = {f"model/{k}": v for k, v in model_tensors(run.model).items()}
        tensors |= {f"best/{k}": v for k, v in run.best.items()}
        memory = [(name, key) for name, values in run.memory.items() for key in values]
        tensors |= {f"memory/{name}/{key}": run.memory[name][key] for name, key in memory}
        tensors["generator"] = run.generator.get_state()
        header = {
            "identity": self.identity,
            "steps": [s.to_dict() for s in run.steps],
            "memory": [list(pair) for pair in memory],
            "seconds": run.elapsed,
        }
        write_file(self.path, CHECKPOINT_KIND, header, tensors)

    def on_end(self, run: GrowRun) -> None:
        """Nothing to do: a step that did not end is done again."""


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k.removeprefix(f"{prefix}/"): v for k, v in tensors.items() if k.startswith(f"{prefix}/")}
