"""What comes back from growing a model: steps, the model, why it stopped."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import DataError
from ...files import read_file, write_file
from ...results import StopReason
from ...structure import Edge, Structure

__all__ = ["GrowResult", "GrowStep", "model_tensors"]

GROWN_KIND = "grown model"


@dataclass(frozen=True)
class GrowStep:
    """One growth and the training after it.

    Attributes
    ----------
    kind
        "start" or "grow".
    layer, edge
        What grew.
    num_parameters
        Of the whole model.
    train_loss
        Mean over the batches of the epoch that was kept, as they came (dropout on); NaN where that is the
        state before the first epoch.
    validation
        Score of that epoch.
    seconds
        Since the run began.
    structures
        Of the layers that may grow, by name.
    """

    index: int
    kind: str
    layer: str | None
    edge: Edge | None
    num_parameters: int
    train_loss: float
    validation: float
    epochs: int
    seconds: float
    structures: Mapping[str, Structure]

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form."""
        structures = {n: s.to_dict() for n, s in self.structures.items()}
        return {**self.__dict__, "structures": structures}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GrowStep:
        """Inverse of `to_dict`."""
        edge = data["edge"]
        return cls(
            **{
                **data,
                "edge": None if edge is None else (edge[0], edge[1]),
                "structures": {n: Structure.from_dict(s) for n, s in data["structures"].items()},
            }
        )


@dataclass(frozen=True)
class GrowResult:
    """A trained model whose structure was learned.

    Attributes
    ----------
    model
        After the step with the best validation score, and the final training where one was asked for.
    history
        One `GrowStep` per growth, the first training included.
    stop
        Why the run ended.
    info
        Options and versions.
    """

    model: nn.Module
    history: tuple[GrowStep, ...]
    stop: StopReason
    info: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def best(self) -> GrowStep:
        """The step whose model was kept."""
        return min(self.history, key=lambda s: (s.validation, s.index))

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def validation(self) -> float:
        """Score of the model that was kept."""
        return self.best.validation

    def save(self, path: str | Path) -> None:
        """Write model, history and options to one safetensors file."""
        header = {
            "history": [s.to_dict() for s in self.history],
            "stop": self.stop.name,
            "info": dict(self.info),
        }
        write_file(path, GROWN_KIND, header, model_tensors(self.model))

    @classmethod
    def load(cls, path: str | Path, model: nn.Module) -> GrowResult:
        """Read what `save` wrote; `model` gives the architecture (ranks may differ) and is not modified."""
        header, tensors = read_file(path, (GROWN_KIND,))
        own = copy.deepcopy(model)
        own.load_state_dict(tensors)
        history = tuple(GrowStep.from_dict(s) for s in header["history"])
        return cls(own, history, StopReason[header["stop"]], header["info"])

    def __repr__(self) -> str:
        return (
            f"GrowResult({self.num_parameters:,} parameters, validation {self.validation:.4g}, "
            f"{len(self.history) - 1} growths, stop={self.stop.name})"
        )


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state of a model, which must be made of tensors."""
    state = model.state_dict()
    other = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if other:
        raise DataError(f"the model's state has entries that are not tensors and cannot be saved: {other}")
    return state
