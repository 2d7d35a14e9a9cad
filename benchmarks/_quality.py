"""How good is a completed tensor: relative error, PSNR, SSIM, MAPE, RMSE; checked by `self_check`."""

from __future__ import annotations

import math

from _common import Row

# isort: split
import numpy as np

# The window and constants of Wang, Bovik, Sheikh and Simoncelli (2004), for values from 0 to 1.
WINDOW, SIGMA = 11, 1.5
C1, C2 = 0.01**2, 0.03**2


def relative_error(found: np.ndarray, true: np.ndarray) -> float:
    """``||found - true|| / ||true||``."""
    return float(np.linalg.norm((found - true).ravel()) / np.linalg.norm(true.ravel()))


def psnr(found: np.ndarray, true: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB, peak 1, values cut off at 0 and 1."""
    mse = float(np.mean((np.clip(found, 0.0, 1.0) - true) ** 2))
    return math.inf if mse == 0.0 else -10.0 * math.log10(mse)


def _gaussian() -> np.ndarray:
    x = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-(x**2) / (2.0 * SIGMA**2))
    return np.asarray(weights / weights.sum())


def _local_mean(x: np.ndarray) -> np.ndarray:
    """Gaussian mean around every pixel whose window lies inside; over the first two axes."""
    for axis in (0, 1):
        n = x.shape[axis] - WINDOW + 1
        pieces = (np.take(x, range(k, k + n), axis) * w for k, w in enumerate(_gaussian()))
        x = np.sum(list(pieces), axis=0)
    return x


def ssim(found: np.ndarray, true: np.ndarray) -> float:
    """Mean structural similarity of ``(height, width, ...)`` arrays cut off at 0 and 1.

    The mean is over pixels and over all further axes: channels, frames.
    """
    total, count = 0.0, 0
    flat = (np.clip(a, 0.0, 1.0).reshape(*true.shape[:2], -1) for a in (found, true))
    for a, b in zip(*(np.moveaxis(f, -1, 0) for f in flat)):
        mean_a, mean_b = _local_mean(a), _local_mean(b)
        var_a, var_b = _local_mean(a * a) - mean_a**2, _local_mean(b * b) - mean_b**2
        covariance = _local_mean(a * b) - mean_a * mean_b
        top = (2 * mean_a * mean_b + C1) * (2 * covariance + C2)
        total += float(np.mean(top / ((mean_a**2 + mean_b**2 + C1) * (var_a + var_b + C2))))
        count += 1
    return total / count


def picture_quality(found: np.ndarray, true: np.ndarray, mask: np.ndarray) -> Row:
    """Of what the network gives everywhere; `filled` is with the observed values put back."""
    filled = np.where(mask, true, found)
    return {
        "error": relative_error(found, true),
        "error_unobserved": relative_error(found[~mask], true[~mask]),
        "psnr": psnr(found, true),
        "psnr_unobserved": psnr(found[~mask], true[~mask]),
        "psnr_filled": psnr(filled, true),
        "ssim": ssim(found, true),
        "ssim_filled": ssim(filled, true),
    }


def mape(found: np.ndarray, true: np.ndarray) -> float:
    """Mean absolute error in per cent of the true value, where that is positive."""
    some = true > 0
    return float(100.0 * np.mean(np.abs(found[some] - true[some]) / true[some]))


def rmse(found: np.ndarray, true: np.ndarray) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((found - true) ** 2)))


def self_check() -> None:
    """Compare with values known otherwise; raises where they differ."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 16, 18, 3))
    flat = np.full((12, 13, 1), 0.25)
    window = np.outer(_gaussian(), _gaussian())
    a, b = x[2:13, 5:16, 1], y[2:13, 5:16, 1]
    mean_a, mean_b = (window * a).sum(), (window * b).sum()
    var_a, var_b = (window * (a - mean_a) ** 2).sum(), (window * (b - mean_b) ** 2).sum()
    covariance = (window * (a - mean_a) * (b - mean_b)).sum()
    one = (2 * mean_a * mean_b + C1) * (2 * covariance + C2)
    one /= (mean_a**2 + mean_b**2 + C1) * (var_a + var_b + C2)
    pairs = {
        "SSIM of equal images": (ssim(x, x), 1.0),
        "SSIM of one window": (ssim(a[..., None], b[..., None]), one),
        "SSIM of constants": (ssim(2 * flat, flat), (2 * 0.125 + C1) / (0.25 + 0.0625 + C1)),
        "SSIM over channels": (ssim(x, y), np.mean([ssim(x[..., [k]], y[..., [k]]) for k in range(3)])),
        "PSNR": (psnr(flat + 0.1, flat), 20.0),
        "relative error": (relative_error(1.5 * x, x), 0.5),
        "MAPE": (mape(np.array([2.0, 9.0]), np.array([1.0, 0.0])), 100.0),
        "RMSE": (rmse(np.array([3.0, 1.0]), np.array([0.0, 5.0])), math.sqrt(12.5)),
    }
    for name, (found, expected) in pairs.items():
        if not math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12):
            raise AssertionError(f"{name}: {found}, expected {expected}")
