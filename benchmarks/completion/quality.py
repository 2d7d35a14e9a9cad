"""How good is a completed tensor: relative error, PSNR, SSIM, MAPE, RMSE."""

from __future__ import annotations

import math
from importlib.util import find_spec

import numpy as np

from tensorgrow.experiments.harness import Row

__all__ = ["mape", "picture_quality", "psnr", "relative_error", "rmse", "ssim"]


def relative_error(found: np.ndarray, true: np.ndarray) -> float:
    """``||found - true|| / ||true||``."""
    return float(np.linalg.norm((found - true).ravel()) / np.linalg.norm(true.ravel()))


def psnr(found: np.ndarray, true: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB, peak 1, values cut off at 0 and 1."""
    mse = float(np.mean((np.clip(found, 0.0, 1.0) - true) ** 2))
    return math.inf if mse == 0.0 else -10.0 * math.log10(mse)


def ssim(found: np.ndarray, true: np.ndarray) -> float:
    """Mean structural similarity of ``(height, width, ...)`` arrays cut off at 0 and 1.

    By scikit-image, with the window and constants of Wang, Bovik, Sheikh and Simoncelli (2004); the mean is
    over pixels and over all further axes: channels, frames. The committed numbers were computed with an
    implementation of our own, which agrees to 1e-15.
    """
    from skimage.metrics import structural_similarity

    a, b = (np.clip(x, 0.0, 1.0).reshape(*true.shape[:2], -1) for x in (found, true))
    return float(
        structural_similarity(
            a,
            b,
            channel_axis=-1,
            data_range=1.0,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
    )


def picture_quality(found: np.ndarray, true: np.ndarray, mask: np.ndarray) -> Row:
    """Of what the network gives everywhere; `filled` is with the observed values put back.

    Without SSIM where scikit-image is missing.
    """
    filled = np.where(mask, true, found)
    similar = (
        {} if find_spec("skimage") is None else {"ssim": ssim(found, true), "ssim_filled": ssim(filled, true)}
    )
    return {
        "error": relative_error(found, true),
        "error_unobserved": relative_error(found[~mask], true[~mask]),
        "psnr": psnr(found, true),
        "psnr_unobserved": psnr(found[~mask], true[~mask]),
        "psnr_filled": psnr(filled, true),
        **similar,
    }


def mape(found: np.ndarray, true: np.ndarray) -> float:
    """Mean absolute error in per cent of the true value, where that is positive."""
    some = true > 0
    return float(100.0 * np.mean(np.abs(found[some] - true[some]) / true[some]))


def rmse(found: np.ndarray, true: np.ndarray) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((found - true) ** 2)))
