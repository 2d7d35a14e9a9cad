"""What pictures and pages show of a result: named errors, rivals, dense tensors as images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, OptionError
from ..network import TensorNetwork
from ..results import PathPoint, Result, Step

__all__ = [
    "ImageMaker",
    "Rivals",
    "ValueRange",
    "as_dense",
    "as_image",
    "as_rivals",
    "error_name",
    "evenly",
    "main_growth",
    "network_at",
    "shape_text",
]

ImageMaker = Callable[[NDArray[Any]], Any] | Sequence[int]
Rivals = Mapping[str, Any]


def error_name(result: Result) -> str:
    """What the errors of a result are: losses where a loss was minimised by gradients."""
    if "density" in result.info:
        return "negative log-likelihood"
    return "loss" if "training" in result.info else "relative error"


def shape_text(dims: Sequence[int]) -> str:
    """A shape as people write it: ``4⁸×3`` for eight fours and a three."""
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    parts = []
    for dim, run in groupby(dims):
        count = len(list(run))
        parts += [f"{dim}{str(count).translate(raised)}"] if count > 2 else [str(dim)] * count
    return "×".join(parts)


def as_rivals(rivals: Rivals | None) -> dict[str, list[tuple[float, float]]]:
    """Sizes and errors of other methods: each one point ``(parameters, error)`` or several."""
    out: dict[str, list[tuple[float, float]]] = {}
    if rivals is not None and not isinstance(rivals, Mapping):
        raise OptionError(
            f"rivals is a mapping from names to (parameters, error), not {type(rivals).__name__}"
        )
    for name, given in (rivals or {}).items():
        try:
            points = np.atleast_2d(np.array(given, dtype=float))
        except (TypeError, ValueError):
            points = np.empty((0, 0))
        if points.ndim != 2 or points.shape[-1] != 2 or not np.isfinite(points).all():
            raise OptionError(
                f"rivals[{name!r}] must be (parameters, error) or a list of such pairs of finite numbers, "
                f"not {given!r}"
            )
        out[str(name)] = sorted((float(size), float(error)) for size, error in points)
    return out


def main_growth(result: Result) -> int:
    """Number of the growth from scratch that led to the network of the result."""
    same = [s for s in result.history if s.structure == result.structure] or list(result.history[-1:])
    if result.validation_error is not None:
        off = [math.inf if s.validation_error is None else s.validation_error for s in same]
        off = [abs(error - result.validation_error) for error in off]
    else:
        off = [abs(s.relative_error - result.relative_error) for s in same]
    return same[off.index(min(off))].start if same else 0


def network_at(result: Result, step: Step) -> PathPoint:
    """The network of a step, or the best one of at most its size that the run kept.

    A run keeps the networks that no other beats in both size and error.
    """
    # The error of a result is computed once more, in double precision, so the two agree only roughly.
    chosen = step.structure == result.structure and math.isclose(
        step.relative_error, result.relative_error, rel_tol=1e-3
    )
    if chosen or step.kind == "refit" or not result.path:
        return PathPoint(result.network, result.relative_error)
    error = step.relative_error if step.validation_error is None else step.validation_error
    fitting = [p for p in result.path if p.num_parameters <= step.num_parameters]
    same = [p for p in fitting if p.network.structure == step.structure and p.relative_error == error]
    return (same or fitting or [result.path[0]])[-1]


def as_dense(value: TensorNetwork | Any) -> NDArray[Any]:
    """A network or any array as a NumPy array."""
    if isinstance(value, TensorNetwork):
        return value.to_dense().cpu().numpy()
    if hasattr(value, "detach"):
        return np.asarray(value.detach().cpu().numpy())
    if isinstance(value, np.ma.MaskedArray):
        wide = np.result_type(value.dtype, np.float32)
        return np.where(np.ma.getmaskarray(value), np.nan, np.ma.getdata(value).astype(wide))
    return np.asarray(value)


def as_image(dense: NDArray[Any], image: ImageMaker) -> NDArray[np.float64]:
    """The picture a dense tensor stands for: ``(height, width)``, or with 3 or 4 channels last.

    Parameters
    ----------
    image
        A function from the dense tensor to the picture, or the shape to give it (row-major).
    """
    if callable(image):
        made = np.asarray(image(dense))
    else:
        shape = tuple(int(n) for n in image)
        if math.prod(shape) != dense.size:
            raise DataError(
                f"image={shape} has {math.prod(shape):,} entries, the tensor {dense.size:,}; give the "
                "shape of the picture, or a function from the tensor to the picture"
            )
        made = dense.reshape(shape)
    if made.ndim == 3 and made.shape[-1] == 1:
        made = made[..., 0]
    if made.ndim not in (2, 3) or 0 in made.shape or (made.ndim == 3 and made.shape[-1] not in (3, 4)):
        raise DataError(
            f"image must give an array of shape (height, width) or (height, width, 3), not {made.shape}"
        )
    if made.ndim == 3:
        made = made[..., :3]
    return np.asarray(np.abs(made) if np.iscomplexobj(made) else made, dtype=np.float64)


@dataclass(frozen=True)
class ValueRange:
    """Which values are black and white."""

    low: float
    high: float

    @classmethod
    def of(cls, image: NDArray[np.float64]) -> ValueRange:
        """The usual ranges where the values fit them, roughly: 0 to 1, 0 to 255; else what there is."""
        known = image[np.isfinite(image)]
        if not known.size:
            return cls(0.0, 1.0)
        low, high = (float(v) for v in np.quantile(known, (0.01, 0.99)))
        for top in (1.0, 255.0):
            if -0.1 * top <= low and 0.3 * top < high <= 1.1 * top:
                return cls(0.0, top)
        return cls(low, high if high > low else low + 1.0)

    def to_unit(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values from 0 to 1; unknown ones stay NaN."""
        return np.clip((image - self.low) / (self.high - self.low), 0.0, 1.0)


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of `items`, spread evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    picked: Iterable[int] = dict.fromkeys(int(k) for k in np.linspace(0, len(items) - 1, most).round())
    return [items[k] for k in picked]
