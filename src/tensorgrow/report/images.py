"""Pictures of the page: the original, what was observed and filled in, and the network at each step."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import import_package
from ..plotting.growth import headline, network_at, pick_evenly
from ..plotting.picture import ValueRange, View, data_address
from ..results import PathPoint, Result
from .comparison import Comparison
from .content import finite
from .quality import Array

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_FRAMES = 40
# Bytes of all pictures together, before base64 adds a third; their quality is lowered until they fit.
MOST_BYTES = 1_800_000


def collect_images(
    result: Result,
    steps: list[dict[str, Any]],
    view: View,
    truth: Array | None,
    observed: Array | None,
    comparison: Comparison | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Draw pictures as data addresses; every step of `steps` gets the number of its frame.

    A run stores the networks that no other beats in both size and error, so a step without one of its own
    shows the best stored network of at most its size.

    Returns
    -------
    dict, dict
        What the growth of the network shows; and, where a completion is compared, one picture per name.
    """
    given = {"original": truth, "observed": observed}
    fixed = {name: view.of(array) for name, array in given.items() if array is not None}
    final = view.of(result)
    range_ = ValueRange.of(fixed.get("original", fixed.get("observed", final)))
    points, frames = _frames(result, steps)
    before = [view.of_tensor(result.expected(p.network.to_dense())) for p in points[:-1]]
    drawn = [_shrink(range_.to_unit(x)) for x in (*before, final)]
    stills = {name: range_.to_unit(picture) for name, picture in fixed.items()}
    compared: dict[str, NDArray[np.float64]] = {}
    gain = 1.0
    if comparison is not None and comparison.view is not None:  # side by side, with what others make of it
        filled = comparison.others[0], comparison.ours
        compared = stills | {f.name: range_.to_unit(comparison.view.of(f.array)) for f in filled}
        stills = {}
    if truth is not None:
        off = np.abs(range_.to_unit(final) - range_.to_unit(fixed["original"]))
        gain = _gain(off)
        stills["difference"] = np.clip(gain * off, 0.0, 1.0)
    # Where data was held out, the errors of stored networks are those on it.
    held_out = any(s.validation_error is not None for s in result.history)
    names = ["held-out error" if held_out else "error"] * (len(points) - 1) + [headline(result)[0]]
    encoded = _encode_all([*drawn, *(_shrink(p) for p in (*stills.values(), *compared.values()))])
    for step, frame in zip(steps, frames):
        step["frame"] = frame
    images = {
        "frames": [
            {"src": src, "size": p.num_parameters, "error": finite(p.error), "name": name}
            for src, p, name in zip(encoded, points, names)
        ],
        "stills": dict(zip(stills, encoded[len(points) :])),
        "gain": gain,
        "width": int(final.shape[1]),
        "height": int(final.shape[0]),
    }
    return images, dict(zip(compared, encoded[len(points) + len(stills) :]))


def _frames(result: Result, steps: list[dict[str, Any]]) -> tuple[list[PathPoint], list[int]]:
    """Return the networks to show, by size with the result last, and for each step which of them."""
    by_index = {s.index: s for s in result.history}
    wanted = [network_at(result, by_index[s["index"]]) for s in steps]
    before = {p.num_parameters: p for p in wanted if p.network is not result.network}
    stored = pick_evenly([before[size] for size in sorted(before)], MOST_FRAMES - 1)
    points = [*stored, PathPoint(result.network, headline(result)[1], result.num_parameters)]
    sizes = np.array([p.num_parameters for p in stored])
    frames = []
    for point in wanted:
        smaller = int(np.searchsorted(sizes, point.num_parameters, side="right")) - 1
        frames.append(len(stored) if point.network is result.network else max(0, smaller))
    return points, frames


def _gain(off: NDArray[np.float64]) -> float:
    """By how much to brighten a difference: a power of two that brings the largest part near white."""
    known = off[np.isfinite(off)]
    top = float(np.quantile(known, 0.995)) if known.size else 0.0
    return float(2.0 ** np.clip(np.floor(np.log2(1.0 / max(top, 1e-9))), 0, 10))


def _encode_all(drawn: list[Image]) -> list[str]:
    """Encode all pictures as data addresses, at the best quality at which they fit."""
    sample = drawn[:: max(1, len(drawn) // 8)]
    worst = 35
    for quality in (88, 78, 65, 50, worst):
        # A sample tells how large all will be; only what should fit is encoded in full.
        size = sum(len(_encode(p, quality)[1]) for p in sample) / len(sample) * len(drawn)
        if size > MOST_BYTES and quality > worst:
            continue
        encoded = [_encode(p, quality) for p in drawn]
        if sum(len(data) for _, data in encoded) <= MOST_BYTES:
            break
    return [data_address(kind, data) for kind, data in encoded]


def _shrink(picture: NDArray[np.float64]) -> Image:
    """Draw values from 0 to 1, not larger than a page needs; what is unknown is black."""
    pillow = import_package("PIL.Image", "pictures in a report need Pillow, or leave out image=", "plot")
    drawn: Image = pillow.fromarray(np.round(255 * np.nan_to_num(picture, nan=0.0)).astype(np.uint8))
    longest, most = max(drawn.size), 384
    if longest <= most:
        return drawn
    width, height = (max(1, round(n * most / longest)) for n in drawn.size)
    return drawn.resize((width, height), pillow.Resampling.BOX)


def _encode(drawn: Image, quality: int) -> tuple[str, bytes]:
    """Return kind and bytes of a picture."""
    buffer = io.BytesIO()
    if max(drawn.size) <= 96:  # without loss: artefacts would show
        drawn.save(buffer, "PNG", optimize=True)
        return "png", buffer.getvalue()
    drawn.save(buffer, "JPEG", quality=quality, optimize=True)
    return "jpeg", buffer.getvalue()
