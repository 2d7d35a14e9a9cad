"""Pictures beside each other: what was given, what the network makes of it, where they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..network import TensorNetwork
from ..results import Result
from .canvas import new_axes
from .curves import plot_errors
from .network import draw_network
from .values import ImageMaker, Rivals, ValueRange, as_dense, as_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_images", "plot_result", "show_image"]


def plot_result(result: Result, *, rivals: Rivals | None = None) -> tuple[Axes, Axes]:
    """The network and the error curve of a result beside each other."""
    left, right = new_axes(2, (11.0, 4.8))
    draw_network(result, left)
    left.set_title(f"{result.num_parameters:,} parameters, error {result.relative_error:.4g}")
    plot_errors(result, right, rivals=rivals)
    return left, right


def plot_images(
    what: Result | TensorNetwork | Any,
    image: ImageMaker,
    *,
    truth: Any = None,
    observed: Any = None,
) -> tuple[Axes, ...]:
    """Original, what was observed, reconstruction and difference, as far as they are given.

    Parameters
    ----------
    what
        A result, a network, or a dense tensor.
    image
        A function from the dense tensor (NumPy) to an array of shape ``(height, width)`` or
        ``(height, width, 3)``, or such a shape (row-major).
    truth
        The original tensor.
    observed
        The tensor with NaN (or masked) where entries are missing.

    Returns
    -------
    tuple of matplotlib axes
        One per picture.
    """
    made = as_image(_dense(what), image)
    pictures = {}
    for name, given in (("original", truth), ("observed", observed)):
        if given is not None:
            pictures[name] = as_image(as_dense(given), image)
            if pictures[name].shape != made.shape:
                raise DataError(
                    f"the {name} picture is {pictures[name].shape}, the reconstruction {made.shape}"
                )
    # The original knows best which values are black and white.
    values = ValueRange.of(next(iter(pictures.values()), made))
    pictures["reconstruction"] = made
    count = len(pictures) + (truth is not None)
    height, width = made.shape[:2]
    axes = new_axes(count, (3.2 * count, min(3.2 * height / width + 0.4, 8.0)))
    for ax, (name, picture) in zip(axes, pictures.items()):
        show_image(ax, values.to_unit(picture))
        ax.set_title(name)
    if truth is not None:
        off = np.abs(values.to_unit(made) - values.to_unit(pictures["original"]))
        off = off if off.ndim == 2 else off.mean(2)
        drawn = axes[-1].imshow(off, cmap="magma", vmin=0.0, vmax=float(np.nanmax(off)) or 1.0)
        axes[-1].set_axis_off()
        axes[-1].set_title("difference")
        axes[-1].figure.colorbar(drawn, ax=axes[-1], fraction=0.046)
    return tuple(axes)


def show_image(ax: Axes, unit: NDArray[np.float64]) -> None:
    """Show a picture with values from 0 to 1; what is unknown is black."""
    known = np.nan_to_num(unit, nan=0.0)
    ax.imshow(
        known, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest" if max(known.shape) < 150 else None
    )
    ax.set_axis_off()


def _dense(what: Any) -> NDArray[Any]:
    if isinstance(what, Result):
        return as_dense(what.expected(what.network.to_dense()))
    return as_dense(what)
