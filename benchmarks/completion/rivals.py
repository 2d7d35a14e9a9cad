"""What completion is compared with: TT-ALS, TR-ALS, CP and Tucker at one rank, historical means, fillings.

They are those of `tensorgrow.baselines` at one rank each: TT-ALS and TR-ALS (Wang, Aggarwal and Aeron 2017)
from random cores with the ridge chosen on held-out entries, CP and Tucker by TensorLy with imputed entries.
Iterations end at a time limit; the row says so. Fillings keep what is known and have no parameters:
interpolation between neighbours, biharmonic functions (scikit-image), HaLRTC and its truncated form.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines.formats import capped_train, cp_size, tucker_ranks
from tensorgrow.experiments import methods
from tensorgrow.experiments.harness import Row

__all__ = ["FILLINGS", "LABELS", "USES", "fill", "ladder", "predict_means", "run_rival", "size_of"]

LABELS = {
    "ours": methods.LABELS["ours"],
    "tt": methods.LABELS["tt_als"],
    "tr": methods.LABELS["tr_als"],
    "cp": methods.LABELS["cp"],
    "tucker": methods.LABELS["tucker"],
    "means": "means",
    "linear": "linear interpolation",
    "cubic": "cubic interpolation",
    "biharmonic": "biharmonic inpainting",
    "halrtc": "HaLRTC",
    "tnn": "truncated HaLRTC",
    "bcp": "Bayesian CP (smurff)",
}
FILLINGS = ("linear", "cubic", "biharmonic", "halrtc", "tnn")
# Modules that the numbers of a rival depend on, where these are fewer than ours: those of TensorLy and
# scikit-image do not age with the library, fillings of our own only with themselves.
USES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cp", "tucker", "means", "biharmonic"), ()),
    **dict.fromkeys(("linear", "cubic"), ("baselines.interpolation",)),
    **dict.fromkeys(("halrtc", "tnn"), ("baselines.halrtc",)),
}
# Ranks tried, apart from the largest that a limit of the size allows.
RUNGS = (2, 3, 4, 6, 8, 10, 12, 15, 18, 21, 25, 30, 40, 60, 100, 150, 200, 300)

Estimate = tuple[np.ndarray, Row]


# -- sizes ---------------------------------------------------------------------------------------------


def size_of(method: str, dims: Sequence[int], rank: int) -> int:
    """Parameters of a rival."""
    if method == "cp":
        return cp_size(dims, rank)
    if method == "tucker":
        return tg.Structure.tucker(dims, tucker_ranks(dims, rank)).num_parameters
    ring = method == "tr"
    return (tg.Structure.tensor_ring(tuple(dims), rank) if ring else capped_train(dims, rank)).num_parameters


def ladder(method: str, dims: Sequence[int], limit: int, rungs: Sequence[int] = RUNGS) -> list[int]:
    """Ranks to try: the rungs within the limit of the size and the largest rank there is."""
    largest, top = 1, max(dims) if method == "tucker" else limit
    while largest < top and size_of(method, dims, largest + 1) <= limit:
        largest += 1
    return sorted({r for r in rungs if r < largest} | {largest})


# -- methods -------------------------------------------------------------------------------------------


def run_rival(
    method: str, x: np.ndarray, mask: np.ndarray, rank: int, *, max_seconds: float, seed: int, device: str
) -> Estimate:
    """The tensor a rival predicts, everywhere, and its size and ranks."""
    options: Row = {"max_seconds": max_seconds, "random_state": seed}
    if method in ("tt", "tr"):
        method, options = f"{method}_als", {**options, "start": "random", "device": device}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = methods.run_rival(method, x, mask, rank, **options)
    names = ("ridge", "iterations")
    row = {"size": result.num_parameters, "stop": result.stop.name}
    row |= {k: result.info[k] for k in names if k in result.info}
    if result.validation_error is not None:
        row["validation_error"] = result.validation_error
    return result.fill(x, mask, keep_observed=False), row


def fill(
    method: str, x: np.ndarray, mask: np.ndarray, max_seconds: float, truncation: float = 0.0
) -> Estimate:
    """The array with its gaps filled, and an empty size."""
    if method in ("linear", "cubic"):
        return baselines.interpolate(x, mask, method=method), {"size": None}
    if method == "biharmonic":
        from skimage.restoration import inpaint_biharmonic

        # Colours miss different pixels, and scikit-image takes one mask for all of them.
        colours = [inpaint_biharmonic(x[..., c], ~mask[..., c]) for c in range(x.shape[-1])]
        return np.stack(colours, -1), {"size": None}
    return baselines.halrtc(x, mask, truncation=truncation, max_seconds=max_seconds), {"size": None}


def predict_means(x: np.ndarray, mask: np.ndarray, day_axis: int) -> Estimate:
    """Mean over the known days of the same place and slot; where none is known, of the place, then of all."""
    total = np.where(mask, x, 0.0)
    axes: Sequence[Callable[[np.ndarray], np.ndarray]] = (
        lambda a: a.sum(day_axis, keepdims=True),
        lambda a: a.sum((day_axis, x.ndim - 1), keepdims=True),
        lambda a: a.sum(keepdims=True),
    )
    found = np.full_like(total, np.nan)
    for collapse in axes:
        count = collapse(mask.astype(float))
        means = np.divide(collapse(total), count, out=np.full_like(count, np.nan), where=count > 0)
        found = np.where(np.isnan(found), means, found)
    return found, {"size": x.size // x.shape[day_axis]}
