"""What comes back from growing a model: steps, the model, why it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...files import check_fields, loads, read_file, reading, write_file
from ...search import packable
from ...steps import Record, StopReason
from ...structure import Structure
from ..modules import copy_architecture, count_parameters, load_tensors, model_tensors

GROWN_KIND = "grown model"


@packable
@dataclass(frozen=True)
class GrowStep(Record):
    """One growth and the training after it.

    Attributes
    ----------
    kind
        "start" or "grow".
    layer, edge
        What grew.
    num_parameters
        Of the whole model.
    loss
        Mean over the training batches of the best epoch, as they came (dropout on).
    validation_error
        Score of that epoch.
    epochs
        Passes over the training data.
    structures
        Of the layers that may grow, by name.
    """

    validation_error: float
    layer: str | None
    epochs: int
    structures: Mapping[str, Structure]

    def move(self) -> str:
        return super().move() if self.layer is None else f"{super().move()} of {self.layer or 'the model'}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form."""
        structures = {n: s.to_dict() for n, s in self.structures.items()}
        return {**self.__dict__, "structures": structures}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GrowStep:
        """Inverse of `to_dict`."""
        values = {**data, "relative_error": None}
        # Files of format version 1 have two other names.
        for old, new in (("train_loss", "loss"), ("validation", "validation_error")):
            if old in values:
                values[new] = values.pop(old)
        edge = data["edge"]
        values["edge"] = None if edge is None else (edge[0], edge[1])
        values["structures"] = {n: Structure.from_dict(s) for n, s in data["structures"].items()}
        return check_fields(cls(**values))


@dataclass(frozen=True)
class GrowResult:
    """A trained model whose structure was learned.

    Attributes
    ----------
    model
        After the step with the best validation score, and after the final training where there was one.
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
        """The step that the model is from."""
        return min(self.history, key=lambda s: (s.validation_error, s.index))

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return count_parameters(self.model)

    @property
    def validation_error(self) -> float:
        """Score of the best step."""
        return self.best.validation_error

    def save(self, path: str | Path) -> None:
        """Write model, history and options to a safetensors file; `tensorgrow.load(path, model)` reads it."""
        header = {
            "history": [s.to_dict() for s in self.history],
            "stop": self.stop.name,
            "info": dict(self.info),
        }
        write_file(path, GROWN_KIND, header, model_tensors(self.model))

    @classmethod
    def load(cls, path: str | Path, model: nn.Module) -> GrowResult:
        """Read what `save` wrote; `model` has the architecture (ranks may differ) and is not modified."""
        header, tensors = read_file(path, (GROWN_KIND,))
        with reading(path):
            return cls.unpack(header, tensors, model)

    @classmethod
    def unpack(
        cls, header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], model: nn.Module
    ) -> GrowResult:
        """Rebuild a result from the contents of a file and a model of the same architecture."""
        own = load_tensors(copy_architecture(model), tensors)
        history = tuple(GrowStep.from_dict(s) for s in header["history"])
        return check_fields(cls(own, history, StopReason[header["stop"]], header["info"]))

    def __repr__(self) -> str:
        return (
            f"GrowResult({self.num_parameters:,} parameters, validation {self.validation_error:.4g}, "
            f"{len(self.history) - 1} growths, stop={self.stop.name})"
        )


loads(GROWN_KIND, GrowResult.unpack)
