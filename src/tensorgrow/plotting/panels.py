"""Pictures beside each other: the data, its reconstruction, and the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..network import TensorNetwork
from ..results import Result
from .canvas import new_axes
from .curves import plot_errors
from .diagram import draw_network
from .growth import Rivals, headline
from .picture import ImageMaker, ValueRange, View, show_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_result(result: Result, *, rivals: Rivals | None = None) -> tuple[Axes, Axes]:
    """Draw the network and the error curve of a result beside each other."""
    left, right = new_axes(2, (11.0, 4.8))
    draw_network(result, left)
    name, error = headline(result)
    left.set_title(f"{result.num_parameters:,} parameters, {name} {error:.4g}")
    plot_errors(result, right, rivals=rivals)
    return left, right


def plot_images(
    what: Result | TensorNetwork | Any, image: ImageMaker, *, truth: Any = None, observed: Any = None
) -> tuple[Axes, ...]:
    """Show original, observed entries, reconstruction and difference, as far as they are known.

    Parameters
    ----------
    what
        A result, a network, or a dense tensor.
    image
        A function from the dense tensor (NumPy) to an array of shape ``(height, width)`` or
        ``(height, width, 3)``, or such a shape (row-major).
    truth
        The original, as a tensor or as the array it was made from.
    observed
        The same with NaN (or masked) where entries are missing.

    Returns
    -------
    tuple of matplotlib axes
        One per picture.
    """
    view = View(image, what.tensorization if isinstance(what, Result) else None)
    reconstruction = view.of(what)
    pictures = {}
    for name, tensor in (("original", truth), ("observed", observed)):
        if tensor is not None:
            pictures[name] = view.of(tensor)
            if pictures[name].shape != reconstruction.shape:
                raise DataError(
                    f"the {name} picture is {pictures[name].shape}, the reconstruction {reconstruction.shape}"
                )
    # The original knows best which values are black and white.
    values = ValueRange.of(next(iter(pictures.values()), reconstruction))
    pictures["reconstruction"] = reconstruction
    count = len(pictures) + (truth is not None)
    height, width = reconstruction.shape[:2]
    axes = new_axes(count, (3.2 * count, min(3.2 * height / width + 0.4, 8.0)))
    for ax, (name, picture) in zip(axes, pictures.items()):
        show_image(ax, values.to_unit(picture))
        ax.set_title(name)
    if truth is not None:
        off = np.abs(values.to_unit(reconstruction) - values.to_unit(pictures["original"]))
        off = off if off.ndim == 2 else off.mean(2)
        drawn = axes[-1].imshow(off, cmap="magma", vmin=0.0, vmax=float(np.nanmax(off)) or 1.0)
        axes[-1].set_axis_off()
        axes[-1].set_title("difference")
        axes[-1].figure.colorbar(drawn, ax=axes[-1], fraction=0.046)
    return tuple(axes)
