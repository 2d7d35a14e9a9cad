"""Checkpoints of models that are being grown or compressed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import OptionError
from ..files import read_file, write_file
from ..network import TensorNetwork
from .compression.choices import Choice
from .compression.search import CompressRun, LayerSearch, Work
from .growth.result import GrowStep, model_tensors
from .layer.layout import Layout

if TYPE_CHECKING:
    from .growth.grow import GrowRun

__all__ = ["CompressCheckpoint", "GrowCheckpoint"]

CHECKPOINT_KIND = "checkpoint of a growing model"
COMPRESS_KIND = "checkpoint of a compression"


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
        _check_identity(self.path, header, self.identity)
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


class CompressCheckpoint:
    """Keeps what was found for every layer that was searched to the end; replaced atomically."""

    def __init__(self, path: str | Path, identity: dict[str, Any]) -> None:
        self.path = Path(path)
        self.identity = identity
        self._done: list[str] = []

    def load(self, run: CompressRun) -> None:
        """Continue from the file where it exists."""
        if not self.path.exists():
            return
        header, tensors = read_file(self.path, (COMPRESS_KIND,))
        _check_identity(self.path, header, self.identity)
        run.spent = header["seconds"]
        for number, found in enumerate(header["layers"]):
            name = found["name"]
            choices = [_unpack(c, tensors, f"{number}.{k}") for k, c in enumerate(found["choices"])]
            run.works[name] = Work(name, run.layers[name], run.inputs.get(name), choices, found["seconds"])
            self._done.append(name)

    def on_start(self, run: CompressRun) -> None:
        """Nothing to do: `compress` loads before the run."""

    def on_step(self, run: CompressRun, search: LayerSearch) -> None:
        """Write, unless the search was cut short: then it is made again."""
        if not search.is_complete:
            return
        self._done.append(search.name)
        layers: list[dict[str, Any]] = []
        tensors: dict[str, torch.Tensor] = {}
        for number, name in enumerate(self._done):
            work = run.works[name]
            packed = [_pack(c, f"{number}.{k}") for k, c in enumerate(work.choices)]
            layers.append({"name": name, "seconds": work.seconds, "choices": [p[0] for p in packed]})
            tensors |= {key: value for p in packed for key, value in p[1].items()}
        header = {"identity": self.identity, "seconds": run.elapsed, "layers": layers}
        write_file(self.path, COMPRESS_KIND, header, tensors)

    def on_end(self, run: CompressRun) -> None:
        """Nothing to do: a layer that was not searched to the end is searched again."""


def _pack(choice: Choice, prefix: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    header: dict[str, Any] = {
        "kind": choice.kind,
        "num_parameters": choice.num_parameters,
        "error": choice.error,
        "layout": None if choice.layout is None else choice.layout.to_dict(),
        "rank": choice.rank,
    }
    tensors: dict[str, torch.Tensor] = {}
    if choice.network is not None:
        header["network"], tensors = choice.network.pack(prefix)
    if choice.scale is not None:
        tensors[f"{prefix}.scale"] = choice.scale
    return header, tensors


def _unpack(header: dict[str, Any], tensors: dict[str, torch.Tensor], prefix: str) -> Choice:
    network = header.get("network")
    return Choice(
        header["kind"],
        header["num_parameters"],
        header["error"],
        None if header["layout"] is None else Layout.from_dict(header["layout"]),
        header["rank"],
        None if network is None else TensorNetwork.unpack(network, tensors, prefix),
        tensors.get(f"{prefix}.scale"),
    )


def _check_identity(path: Path, header: dict[str, Any], identity: dict[str, Any]) -> None:
    for name, mine in identity.items():
        found = header["identity"].get(name)
        if found != mine:
            raise OptionError(
                f"the checkpoint {path} belongs to another run: its {name} is {found!r:.200}, "
                f"here it is {mine!r:.200}. Use another file, or delete this one to start anew"
            )


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k.removeprefix(f"{prefix}/"): v for k, v in tensors.items() if k.startswith(f"{prefix}/")}
