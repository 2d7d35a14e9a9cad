"""What comes into a layer: second moments of its inputs, from calibration data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..errors import DataError

__all__ = ["Metric", "apply", "calibration_batches", "second_moments"]

# Directions, and single inputs, with less than this share of the mean power count as if they had it where
# they are divided by.
FLOOR = 1e-10
SCALE_FLOOR = 1e-6


class Metric:
    r"""The error that matters of a weight: :math:`\|(W - W') M^{1/2}\|_F`.

    `M` is the second moment of the inputs. Without `M` all inputs count alike.
    """

    def __init__(self, weight: torch.Tensor, moment: torch.Tensor | None) -> None:
        self.weight = weight
        self.root = self.inverse_root = self.scale = None
        if moment is not None:
            moment = moment.to(weight)
            mean = moment.diagonal().mean()
            if not bool(mean > 0):
                raise DataError(
                    "the calibration data gives this layer zeros only; give data like that in use"
                )
            values, vectors = torch.linalg.eigh(moment)
            roots = values.clamp_min(0.0).sqrt()
            self.root = (vectors * roots) @ vectors.T
            safe = values.clamp_min(FLOOR * float(mean)).sqrt()
            self.inverse_root = (vectors / safe) @ vectors.T
            self.scale = moment.diagonal().clamp_min(SCALE_FLOOR * float(mean)).sqrt()
        self.norm = float((weight if self.root is None else weight @ self.root).norm())

    def error(self, weight: torch.Tensor) -> float:
        """Relative error of another weight; 0 for a zero weight that is kept."""
        rest = self.weight - weight.to(self.weight)
        size = float((rest if self.root is None else rest @ self.root).norm())
        return size / self.norm if self.norm > 0 else float(size > 0)


def calibration_batches(calibration: Any) -> list[Any]:
    """Inputs of the model: a tensor is one batch; of pairs, as loaders give them, the first part is taken."""
    if isinstance(calibration, torch.Tensor | Mapping):
        calibration = [calibration]
    if not isinstance(calibration, Iterable):
        raise DataError(f"calibration must be a batch or batches of inputs, not {type(calibration).__name__}")
    batches = [b[0] if isinstance(b, tuple | list) else b for b in calibration]
    if not batches:
        raise DataError("calibration is empty; give some batches of inputs, or None")
    return batches


def apply(model: nn.Module, batch: Any) -> Any:
    """Call a model on a batch of inputs; a mapping holds named ones."""
    where = next((p.device for p in model.parameters()), torch.device("cpu"))
    if isinstance(batch, Mapping):
        return model(**{k: v.to(where) if isinstance(v, torch.Tensor) else v for k, v in batch.items()})
    return model(batch.to(where) if isinstance(batch, torch.Tensor) else batch)


@torch.no_grad()
def second_moments(
    model: nn.Module, layers: Mapping[str, nn.Linear], batches: Iterable[Any]
) -> dict[str, torch.Tensor]:
    """Mean of ``x x^T`` over the rows that come into each layer, in evaluation mode and double precision."""
    sums: dict[str, torch.Tensor] = {}
    rows: dict[str, int] = {}

    def listen(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            x = inputs[0].detach().reshape(-1, inputs[0].shape[-1])
            x = x.to(torch.float64)
            sums[name] = x.T @ x + sums.get(name, 0.0)
            rows[name] = rows.get(name, 0) + len(x)

        return hook

    handles = [layer.register_forward_pre_hook(listen(name)) for name, layer in layers.items()]
    mode = model.training
    model.eval()
    try:
        for batch in batches:
            apply(model, batch)
    finally:
        model.train(mode)
        for handle in handles:
            handle.remove()
    missing = [n for n in layers if n not in sums]
    if missing:
        raise DataError(
            f"the calibration data never reaches the layers {missing}; leave them out of `layers`"
        )
    return {n: sums[n] / rows[n] for n in layers}
