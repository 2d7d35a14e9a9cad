"""How far an array is from the truth, where that is known, in the units people of the trade use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..plotting.picture import ValueRange, View, as_dense
from ..results import Result

Array = NDArray[Any]


def own_array(result: Result, tensor: Any, name: str) -> Array:
    """Return `tensor` in the shape of the user's own array; it has that shape, or that of the network."""
    dense, how, dims = as_dense(tensor), result.tensorization, result.structure.dims
    if dense.shape == (dims if how is None else how.shape):
        return dense
    if how is not None and dense.shape == dims:
        return how.invert(dense)
    wanted = f"{dims}" if how is None else f"{dims}, made from {how.shape}"
    raise DataError(f"{name} has shape {dense.shape}, the network is for {wanted}")


def relative_error(found: Array, true: Array) -> float:
    """``||found - true|| / ||true||``, also where squares of the numbers have no room."""
    size = float(np.abs(true).max(initial=0.0)) or 1.0
    norm = float(np.linalg.norm((true / size).ravel()))
    return float(np.linalg.norm((found / size - true / size).ravel())) / (norm or 1.0)


def measure(estimate: Array, exact: Array, view: View | None) -> dict[str, float]:
    """Peak signal to noise, the largest deviation, and of pictures the structural similarity.

    The peak of pictures is 1 or 255 where their values fit, and what lies outside is clipped as on a screen;
    of all other data it is the range of the truth.
    """
    known = exact[np.isfinite(exact)]
    if not known.size:
        return {}
    out = {"largest": float(np.abs(estimate - exact)[np.isfinite(exact)].max())}
    if view is not None:
        shown = view.of(exact)
        values = ValueRange.of(shown)
        if (values.low, values.high) in ((0.0, 1.0), (0.0, 255.0)):
            pictures = [values.to_unit(p) for p in (view.of(estimate), shown)]
            similarity = ssim(*pictures)
            out |= {} if similarity is None else {"ssim": similarity}
            return {"psnr": ValueRange(0.0, 1.0).psnr(*pictures), **out}
    size = np.abs(known) if np.iscomplexobj(known) else known
    low, high = (0.0 if np.iscomplexobj(known) else float(size.min())), float(size.max())
    # Constant data has no range: then its size is the peak.
    peak = ValueRange(low, high) if high > low else ValueRange(0.0, abs(high) or 1.0)
    return {"psnr": peak.psnr(estimate, exact), **out}


def ssim(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Mean structural similarity of pictures from 0 to 1, averaged over colours.

    Window and constants of Wang, Bovik, Sheikh and Simoncelli (2004). None without SciPy, or where pictures
    are not known everywhere or smaller than the window.
    """
    border = 5  # half the window: Gaussian weights of deviation 1.5, cut off at 3.5 deviations
    is_small = min(a.shape[:2]) <= 2 * border
    if is_small or find_spec("scipy") is None or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    from scipy.ndimage import gaussian_filter

    def mean(x: NDArray[np.float64]) -> NDArray[np.float64]:
        blurred = gaussian_filter(x, 1.5, truncate=3.5, axes=(0, 1))
        return np.asarray(blurred[border:-border, border:-border])

    centre_a, centre_b = mean(a), mean(b)
    spread_a, spread_b = mean(a * a) - centre_a**2, mean(b * b) - centre_b**2
    both = mean(a * b) - centre_a * centre_b
    light, contrast = 0.01**2, 0.03**2
    top = (2 * centre_a * centre_b + light) * (2 * both + contrast)
    return float((top / ((centre_a**2 + centre_b**2 + light) * (spread_a + spread_b + contrast))).mean())
