"""What comes into a layer: mean and second moment of its inputs, from calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ...data.arrays import as_tensor
from ...errors import DataError
from ..modules import switch_mode


@dataclass(frozen=True)
class Inputs:
    """What comes into a layer."""

    mean: torch.Tensor | None  # its effect on the outputs goes into the bias; None for a layer without one
    moment: torch.Tensor  # the second, about the mean where there is one, else about zero; see `shrink`


class Metric:
    r"""The error that matters of a weight: :math:`\|(W - W') M^{1/2}\|_F`.

    `M` is the second moment of the inputs. Without `M` all inputs count the same.
    """

    def __init__(self, weight: torch.Tensor, moment: torch.Tensor | None) -> None:
        self.weight = weight
        self.root = self.scale = None
        if moment is not None:
            moment = moment.to(weight)
            if not bool(moment.diagonal().sum() > 0):
                raise DataError(
                    "the calibration data always gives this layer the same input; give data as in use"
                )
            values, vectors = torch.linalg.eigh(moment)
            self.root = (vectors * values.clamp_min(0.0).sqrt()) @ vectors.T
            self.scale = moment.diagonal().sqrt()
        self.norm = float((weight if self.root is None else weight @ self.root).norm())

    @classmethod
    def of(cls, layer: nn.Linear, inputs: Inputs | None) -> Metric:
        """The metric of a layer. It takes as much memory as the weight: compute it when needed."""
        return cls(layer.weight.detach().double(), None if inputs is None else inputs.moment)

    def error(self, weight: torch.Tensor) -> float:
        """Relative error of another weight; of a zero weight, whether the other one is not zero."""
        rest = self.weight - weight.to(self.weight)
        size = float((rest if self.root is None else rest @ self.root).norm())
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
    layers: Mapping[str, nn.Linear],
    batches: Iterable[Any],
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Inputs]:
    """Moments over the rows that come into each layer, in evaluation mode and double precision.

    Every batch is announced to `tell`.
    """
    sums: dict[str, torch.Tensor] = {}
    squares: dict[str, torch.Tensor] = {}
    rows: dict[str, int] = {}

    def listen(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            x = inputs[0].detach().reshape(-1, inputs[0].shape[-1]).to(torch.float64)
            sums[name] = x.sum(0) + sums.get(name, 0.0)
            squares[name] = x.T @ x + squares.get(name, 0.0)
            rows[name] = rows.get(name, 0) + len(x)

        return hook

    handles = [layer.register_forward_pre_hook(listen(name)) for name, layer in layers.items()]
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
    missing = [n for n in layers if n not in sums]
    if missing:
        raise DataError(
            f"the calibration data never reaches the layers {missing}; leave them out of `layers`"
        )
    moments = {}
    for name, layer in layers.items():
        moment = squares[name] / rows[name]
        mean = None
        if layer.bias is not None:
            mean = sums[name] / rows[name]
            moment = moment - torch.outer(mean, mean)
        moments[name] = Inputs(mean, shrink(moment, rows[name]))
    return moments


def shrink(moment: torch.Tensor, rows: int) -> torch.Tensor:
    """Move a sample's second moment towards a multiple of the identity, more so the fewer rows there are.

    Directions that a small sample happens not to have would otherwise cost nothing, and what a layer does
    there would be thrown away. The weight is that of oracle approximating shrinkage (Chen, Wiesel, Eldar and
    Hero, 2010) for many inputs: about the effective number of directions over the number of rows.
    """
    size = len(moment)
    trace, square = float(moment.trace()), float(moment.square().sum())
    spread = (rows + 1) * (square - trace**2 / size)
    share = 1.0 if spread <= 0 else min(1.0, (square + trace**2) / spread)
    identity = torch.eye(size, dtype=moment.dtype, device=moment.device)
    return (1 - share) * moment + share * trace / size * identity
