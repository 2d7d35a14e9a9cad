"""The error that matters of a layer, and what comes into it, from calibration data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ...data.arrays import as_tensor
from ...errors import DataError
from ...objectives.loss import scalar
from ..kinds.catalogue import known_kind
from ..kinds.statistics import Inputs, shrink
from ..modules import Given, Named, gradients_of_calls, input_of, recorded_calls, switch_mode

Loss = Callable[[Any, Any], torch.Tensor]
"""Of the outputs of a model and their targets; the mean over a batch."""


class Metric:
    r"""The error that matters of a weight: :math:`\|G^{1/2} (W - W') M^{1/2}\|_F`.

    `M` is the second moment of the inputs, a vector where it is diagonal. Without `M` all inputs count the
    same. `G` is the second moment of the gradients of a loss with respect to the `outputs`; then the square
    of the error is what the loss loses by Gauss and Newton's approximation, inputs and gradients taken for
    independent. Without `G` all outputs count the same.
    """

    def __init__(
        self, weight: torch.Tensor, moment: torch.Tensor | None, outputs: torch.Tensor | None = None
    ) -> None:
        self.weight = weight
        self.root = self.deviation = None
        self.output_root = None if outputs is None else _root(outputs.to(weight))
        if moment is not None:
            moment = moment.to(weight)
            self.root = moment.sqrt() if moment.dim() == 1 else _root(moment)
            self.deviation = _squares(moment).sqrt()
        self.norm = float(self.whiten(weight).norm())

    @classmethod
    def of(cls, layer: nn.Module, inputs: Inputs | None) -> Metric:
        """The metric of a layer. It takes as much memory as the weight: compute it when needed."""
        kind = known_kind(layer)
        weight, moment = kind.layer.matrix_of(layer).double(), None if inputs is None else inputs.moment
        return cls(weight, moment, None if inputs is None else inputs.outputs)

    @property
    def is_plain(self) -> bool:
        """Whether all entries of the weight count the same."""
        return self.root is None and self.output_root is None

    def whiten(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight between the roots of the moments."""
        if self.output_root is not None:
            weight = self.output_root @ weight
        if self.root is None:
            return weight
        return weight * self.root if self.root.dim() == 1 else weight @ self.root

    def project(self, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The best weight of a rank, as a product of two factors.

        Of all optima this one needs no inverse of the inputs' moment, and treats inputs unlike those seen as
        before: the weight is projected onto the leading directions of the outputs.
        """
        u = torch.linalg.svd(self.whiten(self.weight), full_matrices=False)[0][:, :rank]
        if self.output_root is None:
            return u, u.T @ self.weight
        return torch.linalg.solve(self.output_root, u), u.T @ self.output_root @ self.weight

    def error(self, weight: torch.Tensor) -> float:
        """Relative error of another weight; of a zero weight, whether the other one is not zero."""
        size = float(self.whiten(self.weight - weight.to(self.weight)).norm())
        return size / self.norm if self.norm > 0 else float(size > 0)


def _squares(moment: torch.Tensor) -> torch.Tensor:
    """Mean square of every input, of a second moment."""
    return moment if moment.dim() == 1 else moment.diagonal()


def _root(moment: torch.Tensor) -> torch.Tensor:
    """The symmetric square root of a second moment."""
    values, vectors = torch.linalg.eigh(moment)
    root: torch.Tensor = (vectors * values.clamp_min(0.0).sqrt()) @ vectors.T
    return root


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


def calibration_pairs(calibration: Any) -> list[tuple[Any, Any]]:
    """Inputs of the model with their targets, which a loss needs too."""
    pairs = [calibration]
    if isinstance(calibration, Iterable) and not isinstance(calibration, Mapping):
        pairs = list(calibration)
    other = [pair for pair in pairs if not isinstance(pair, tuple | list) or len(pair) != 2]
    if other:
        raise DataError(
            "with a loss, calibration must be batches of pairs (inputs, targets), not "
            f"{type(other[0]).__name__}: give a DataLoader or a list of pairs"
        )
    return [(given, wanted) for given, wanted in pairs]


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

    def hook_of(name: str) -> Callable[[nn.Module, Given, Named], None]:
        return lambda _, given, named: found[name].listen(input_of(given, named))

    handles = [
        layer.register_forward_pre_hook(hook_of(name), with_kwargs=True) for name, layer in layers.items()
    ]
    try:
        with switch_mode(model, training=False):
            for number, batch in enumerate(batches, 1):
                tell(f"calibration: batch {number}")
                try:
                    apply(model, batch)
                except (TypeError, ValueError, RuntimeError, LookupError) as error:
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
    inputs = {name: statistics.finish() for name, statistics in found.items()}
    bad = [name for name, known in inputs.items() if not bool(torch.isfinite(known.moment).all())]
    if bad:
        raise DataError(
            f"the calibration data gives the layers {bad} no rows, or entries that are not finite; remove "
            "such batches"
        )
    same = [name for name, known in inputs.items() if not bool(_squares(known.moment).sum() > 0)]
    if same:
        raise DataError(
            f"the calibration data always gives the layers {same} the same input; give data as in use, or "
            "leave them out of `layers`"
        )
    return inputs


def output_moments(
    model: nn.Module, layers: Mapping[str, nn.Module], pairs: Iterable[tuple[Any, Any]], loss: Loss
) -> dict[str, torch.Tensor]:
    """Second moments of the gradients of a loss with respect to the outputs of each layer, summed over rows.

    Rows are many where a layer is used in many places: an error of its weight is felt in all of them.
    """
    sums: dict[str, torch.Tensor] = {}
    rows: Counter[str] = Counter()
    with torch.enable_grad(), switch_mode(model, training=False), recorded_calls(layers) as calls:
        for given, wanted in pairs:
            calls.clear()
            value = scalar(loss(apply(model, given), _move(wanted, next(model.parameters()))))
            for call, grad in gradients_of_calls(value, calls):
                axis = known_kind(layers[call.name]).output_axis
                flat = grad.movedim(axis, -1).reshape(-1, grad.shape[axis]).double()
                sums[call.name] = sums.get(call.name, 0.0) + flat.T @ flat
                rows[call.name] += len(flat)
    missing = [name for name in layers if name not in sums]
    if missing:
        raise DataError(f"the loss does not depend on the layers {missing}; leave them out of `layers`")
    # A direction that no gradient had still counts a little, so that the moment has an inverse.
    return {
        n: shrink(s / rows[n], rows[n]) * rows[n] + 1e-9 * s.trace() * torch.eye(len(s)).to(s)
        for n, s in sums.items()
    }
