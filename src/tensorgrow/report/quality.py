"""How far a result is from the truth, where that is known, in the units people of the trade use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..plotting.picture import ImageMaker, ValueRange, as_dense, as_image
from ..results import Result


def dense_of(result: Result, tensor: Any, name: str) -> NDArray[Any]:
    """Return `tensor` as a NumPy array; refused unless it has the shape of the network."""
    dense = as_dense(tensor)
    if dense.shape != result.structure.dims:
        raise DataError(f"{name} has shape {dense.shape}, the network is for {result.structure.dims}")
    return dense


def measure(result: Result, truth: Any, image: ImageMaker | None) -> dict[str, float]:
    """Peak signal to noise and the largest deviation.

    The peak of pictures is 1 or 255 where their values fit, and what lies outside is clipped as on a screen;
    of all other data it is the range of the truth.
    """
    exact, estimate = dense_of(result, truth, "truth"), as_dense(result)
    known = exact[np.isfinite(exact)]
    if not known.size:
        return {}
    largest = float(np.abs(estimate - exact)[np.isfinite(exact)].max())
    if image is not None:
        shown = as_image(exact, image)
        values = ValueRange.of(shown)
        if (values.low, values.high) in ((0.0, 1.0), (0.0, 255.0)):
            pictures = [values.to_unit(p) for p in (as_image(estimate, image), shown)]
            return {"psnr": ValueRange(0.0, 1.0).psnr(*pictures), "largest": largest}
    size = np.abs(known) if np.iscomplexobj(known) else known
    low, high = (0.0 if np.iscomplexobj(known) else float(size.min())), float(size.max())
    # Constant data has no range: then its size is the peak.
    peak = ValueRange(low, high) if high > low else ValueRange(0.0, abs(high) or 1.0)
    return {"psnr": peak.psnr(estimate, exact), "largest": largest}
