"""Dense tensors as pictures."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data.tensorization import Tensorization
from ..errors import DataError
from ..network import TensorNetwork
from ..results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A function from the dense tensor to the picture, or the shape of the picture (row-major).
ImageMaker = Callable[[NDArray[Any]], Any] | Sequence[int]


def as_dense(value: Any) -> NDArray[Any]:
    """Convert a result, a network or any array to a NumPy array.

    Of a result, what it answers in the shape of the user's array; masked entries become NaN.
    """
    if isinstance(value, Result):
        value = value.to_array()
    if isinstance(value, TensorNetwork):
        return value.to_dense().cpu().numpy()
    if hasattr(value, "detach"):
        return np.asarray(value.detach().cpu().numpy())
    if isinstance(value, np.ma.MaskedArray):
        wide = np.result_type(value.dtype, np.float32)
        return np.where(np.ma.getmaskarray(value), np.nan, np.ma.getdata(value).astype(wide))
    return np.asarray(value)


def as_image(dense: NDArray[Any], image: ImageMaker) -> NDArray[np.float64]:
    """Return the picture of a dense tensor: ``(height, width)``, or with 3 channels last."""
    if callable(image):
        picture = np.asarray(image(dense))
    else:
        shape = tuple(int(n) for n in image)
        if math.prod(shape) != dense.size:
            raise DataError(
                f"image={shape} has {math.prod(shape):,} entries, the tensor {dense.size:,}; give the "
                "shape of the picture, or a function from the tensor to the picture"
            )
        picture = dense.reshape(shape)
    if picture.ndim == 3 and picture.shape[-1] == 1:
        picture = picture[..., 0]
    is_colour = picture.ndim == 3 and picture.shape[-1] in (3, 4)
    if not (picture.ndim == 2 or is_colour) or picture.size == 0:
        raise DataError(
            f"image must give an array of shape (height, width) or (height, width, 3), not {picture.shape}"
        )
    if is_colour:
        picture = picture[..., :3]
    return np.asarray(np.abs(picture) if np.iscomplexobj(picture) else picture, dtype=np.float64)


@dataclass(frozen=True)
class View:
    """The pictures of a run: of arrays in the user's own shape, and of tensors in that of its network.

    Attributes
    ----------
    image
        A function of the tensor; or the shape of the picture, which the array has, row-major.
    how
        How the array became the tensor, if it did.
    """

    image: ImageMaker
    how: Tensorization | None = None

    def of(self, value: Any) -> NDArray[np.float64]:
        """Draw an array, or whatever else `as_dense` takes: what has not its shape is a tensor."""
        dense = as_dense(value)
        if self.how is None or dense.shape != self.how.shape:
            return self.of_tensor(dense)
        return as_image(self.how.apply(dense) if callable(self.image) else dense, self.image)

    def of_tensor(self, value: Any) -> NDArray[np.float64]:
        """Draw a tensor in the shape of the network."""
        dense = as_dense(value)
        return as_image(
            dense if self.how is None or callable(self.image) else self.how.invert(dense), self.image
        )


@dataclass(frozen=True)
class ValueRange:
    """Which values are black and white."""

    low: float
    high: float

    @classmethod
    def of(cls, image: NDArray[np.float64]) -> ValueRange:
        """Take 0 to 1 or 0 to 255 where the values roughly fit; otherwise the range of the values."""
        known = image[np.isfinite(image)]
        if not known.size:
            return cls(0.0, 1.0)
        low, high = (float(v) for v in np.quantile(known, (0.01, 0.99)))
        for top in (1.0, 255.0):
            if -0.1 * top <= low and 0.3 * top < high <= 1.1 * top:
                return cls(0.0, top)
        return cls(low, high if high > low else low + 1.0)

    def psnr(self, estimate: NDArray[Any], truth: NDArray[Any]) -> float:
        """Peak signal to noise in decibels over all entries whose truth is known; the peak is this range."""
        off = np.abs(estimate - truth)[np.isfinite(truth)] / (self.high - self.low)
        mean = float(np.mean(off**2)) if off.size else 0.0
        return float(-10.0 * np.log10(max(mean, 1e-30)))  # 300 dB stands for no difference

    def to_unit(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values from 0 to 1; unknown ones stay NaN."""
        return np.clip((image - self.low) / (self.high - self.low), 0.0, 1.0)


def show_image(ax: Axes, unit: NDArray[np.float64]) -> None:
    """Show a picture with values from 0 to 1; what is unknown is black."""
    known = np.nan_to_num(unit, nan=0.0)
    ax.imshow(
        known, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest" if max(known.shape) < 150 else None
    )
    ax.set_axis_off()


def data_address(kind: str, data: bytes) -> str:
    """Return an encoded picture as an address that a page can hold."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
