"""The error that matters of a layer, and what comes into it, from calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ...data.arrays import as_tensor
from ...errors import DataError
from ..kinds.catalogue import known_kind
from ..kinds.statistics import Inputs
from ..modules import switch_mode


class Metric:
    r"""The error that matters of a weight: :math:`\|(W - W') M^{1/2}\|_F`.

    `M` is the second moment of the inputs, a vector where it is diagonal. Without `M` all inputs count the
    same. An input scale of the layer has `scales` numbers, by default one for every column.
    """

    def __init__(self, weight: torch.Tensor, moment: torch.Tensor | None, scales: int | None = None) -> None:
        self.weight = weight
        self.root = self.deviation = self.scale = None
        if moment is not None:
            moment = moment.to(weight)
            squares = moment if moment.dim() == 1 else moment.diagonal()
            if not bool(squares.sum() > 0):
                raise DataError(
                    "the calibration data always gives this layer the same input; give data as in use"
                )
            if moment.dim() == 1:
                self.root = moment.sqrt()
            else:
                values, vectors = torch.linalg.eigh(moment)
                self.root = (vectors * values.clamp_min(0.0).sqrt()) @ vectors.T
            self.deviation = squares.sqrt()
            self.scale = squares.reshape(scales or len(squares), -1).mean(1).sqrt()
        self.norm = float(self.whiten(weight).norm())

    @classmethod
    def of(cls, layer: nn.Module, inputs: Inputs | None) -> Metric:
        """The metric of a layer. It takes as much memory as the weight: compute it when needed."""
        kind = known_kind(layer)
        weight, moment = kind.layer.matrix_of(layer).double(), None if inputs is None else inputs.moment
        return cls(weight, moment, kind.count_scales(layer))

    def whiten(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight times the root of the moment."""
        if self.root is None:
            return weight
        return weight * self.root if self.root.dim() == 1 else weight @ self.root

    def error(self, weight: torch.Tensor) -> float:
        """Relative error of another weight; of a zero weight, whether the other one is not zero."""
        size = float(self.whiten(self.weight - weight.to(self.weight)).norm())
        return size / self.norm if self.norm > 0 else float(size > 0)


def calibration_batches(calibration: Any) -> list[Any]:
    """Inputs of the model: a tensor is one batch; of pairs, as loaders give them, the first part is taken."""
    if isinstance(calibration, torch.Tensor | np.ndarray | Mapping):
        calibration = [calibration]
    if not isinstance(calibration, Iterable):
        raise DataError(f"calibration must be a batch or batches of inputs, not {type(calibration).__name__}")
    batches = [b[0] if isinstance(b, tuple | list) else b for b in calibration]
    if not batches:
        raise DataError("calibration is empty; give some batches of inputs, or None")
    return batches


def apply(model: nn.Module, batch: Any) -> Any:
    """Call a model on a batch of inputs; a mapping holds named ones."""
    like = next(model.parameters(), torch.empty(0))
    if isinstance(batch, Mapping):
        return model(**{k: _move(v, like) for k, v in batch.items()})
    return model(_move(batch, like))


def _move(value: Any, like: torch.Tensor) -> Any:
    """Move an input to the model's device; arrays, most of them double, get the model's precision too."""
    if isinstance(value, np.ndarray):
        tensor = as_tensor(value)
        return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)
    return value.to(like.device) if isinstance(value, torch.Tensor) else value


@torch.no_grad()
def input_moments(
    model: nn.Module,
    layers: Mapping[str, nn.Module],
    batches: Iterable[Any],
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Inputs]:
    """What comes into each layer, in evaluation mode and double precision.

    Every batch is announced to `tell`.
    """
    found = {name: known_kind(layer).statistics(layer) for name, layer in layers.items()}

    def hook_of(name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _, inputs: found[name].listen(inputs[0])

    handles = [layer.register_forward_pre_hook(hook_of(name)) for name, layer in layers.items()]
    try:
        with switch_mode(model, training=False):
            for number, batch in enumerate(batches, 1):
                tell(f"calibration: batch {number}")
                try:
                    apply(model, batch)
                except (TypeError, ValueError, RuntimeError) as error:
                    raise DataError(
                        f"the model fails on calibration batch {number}; give batches of inputs as in "
                        f"`model(batch)`, or as dicts in `model(**batch)`: {error}"
                    ) from error
    finally:
        for handle in handles:
            handle.remove()
    missing = [n for n, statistics in found.items() if not statistics.shape]
    if missing:
        raise DataError(
            f"the calibration data never reaches the layers {missing}; leave them out of `layers`"
        )
    return {name: statistics.finish() for name, statistics in found.items()}
