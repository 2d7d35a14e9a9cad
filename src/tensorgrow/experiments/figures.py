"""Figures of experiments, drawn without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.atomic_file import replacing
from .harness import Row
from .methods import best_error, mean_and_deviation


def pyplot() -> Any:
    """Matplotlib without a display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save_figure(figure: Any, path: Path, *, dpi: int = 120) -> list[Path]:
    """Write a figure, close it, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi)
    pyplot().close(figure)
    return [path]


def plot_mean_error(axis: Any, rows: Sequence[Row], sizes: Sequence[int], color: str, label: str) -> None:
    """Plot the mean over runs of the smallest error within each size, and a band of one deviation."""
    stats = [(n, mean_and_deviation(best_error(r, n) for r in rows)) for n in sizes]
    known = [(n, *s) for n, s in stats if s is not None]
    if not known:
        return
    size, mean, deviation = (np.array(v, dtype=float) for v in zip(*known))
    least = 1e-8  # smaller errors are drawn here: a logarithmic axis has no zero
    mean = np.maximum(mean, least)
    axis.plot(size, mean, color, label=label)
    axis.fill_between(size, np.maximum(mean - deviation, least), mean + deviation, color=color, alpha=0.15)
