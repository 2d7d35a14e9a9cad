"""Error against size, and ranks as a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..network import TensorNetwork
from ..results import Result
from ..structure import Structure
from .canvas import BLUE, GREEN, GREY, ORANGE, one_axes
from .diagram import as_structure
from .growth import Rivals, as_rivals, error_name, front, main_growth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours of other methods, in turn.
RIVALS = ("#7a5a00", "#00738f", "#8f3fc4", "#4d6b00")


def plot_errors(result: Result, ax: Axes | None = None, *, rivals: Rivals | None = None) -> Axes:
    """Draw the error against the number of parameters, along the growth that led to the result.

    Where data was held out its error is drawn beside that of the fitted data. Dots are steps, faint ones
    those of other growths; the line joins the best at each size. Axes are logarithmic wherever all values
    are positive.

    Parameters
    ----------
    rivals
        Other methods by name: a `Result` of theirs, parameters and error as in ``(1968, 0.08)``, or a list of
        such pairs.

    Returns
    -------
    matplotlib.axes.Axes
    """
    others = as_rivals(rivals)
    ax = one_axes(ax, (5.5, 4.0))
    main = main_growth(result)
    held_out = any(s.validation_error is not None for s in result.history)
    curves = [("error", "fitted data" if held_out else "growth", BLUE)]
    if held_out:
        curves.append(("validation_error", "held-out data", "#b3307f"))
    for name, label, color in curves:
        points = [
            (s.num_parameters, getattr(s, name))
            for s in result.history
            if s.start == main and getattr(s, name) is not None
        ]
        if points:
            best = [points[k] for k in front(points)]
            ax.plot(*zip(*points), "o", color=color, markersize=3, alpha=0.6)
            ax.plot(*zip(*best), "-", color=color, linewidth=1.4, label=label)
    rest = [(s.num_parameters, s.measure) for s in result.history if s.start != main]
    if rest:
        ax.plot(*zip(*rest), ".", color=GREY, alpha=0.5, zorder=1, label="other growths")
    size = result.num_parameters
    ax.plot([size], [result.errors.total], "*", color=ORANGE, markersize=13, zorder=4, label="result")
    if result.test_error is not None:
        ax.plot([size], [result.test_error], "P", color=GREEN, markersize=8, zorder=4, label="test data")
    for n, (name, pairs) in enumerate(others.items()):
        # A label that starts with an underscore would be left out of the legend.
        label = f" {name}" if name.startswith("_") else name
        ax.plot(*zip(*pairs), "s--", color=RIVALS[n % len(RIVALS)], markersize=6, linewidth=1.2, label=label)
    ax.set_xscale("log")
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.lines])
    if (values[np.isfinite(values)] > 0).all():
        ax.set_yscale("log")
    _plain_ticks(ax)
    ax.set_xlabel("parameters")
    ax.set_ylabel(error_name(result))
    ax.grid(True, which="both", alpha=0.25)
    ax.legend(frameon=False)
    return ax


def _plain_ticks(ax: Axes) -> None:
    """Write numbers as 0.2 and 1000 rather than as powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_major_formatter(plain)
    ax.xaxis.set_minor_formatter(NullFormatter())
    if ax.get_yscale() == "log":
        ax.yaxis.set_major_formatter(plain)
        low, high = ax.get_ylim()
        narrow = FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "2357" else "")
        ax.yaxis.set_minor_formatter(narrow if high < 30 * low else NullFormatter())


def plot_ranks(what: Structure | TensorNetwork | Result, ax: Axes | None = None) -> Axes:
    """Draw the ranks of all pairs of nodes as a heat map; 1 (not joined) is left blank.

    Returns
    -------
    matplotlib.axes.Axes
    """
    structure = as_structure(what)
    ax = one_axes(ax, (4.6, 4.0))
    count = structure.num_nodes
    ranks = np.full((count, count), np.nan)
    for (i, j), rank in structure.ranks.items():
        ranks[i, j] = ranks[j, i] = rank
    top = max(structure.ranks.values(), default=2)
    image = ax.imshow(ranks, cmap="viridis", vmin=1, vmax=top)
    if count <= 20:
        for (i, j), rank in structure.ranks.items():
            color = "white" if rank < 0.6 * top else "black"
            for row, column in ((i, j), (j, i)):
                ax.text(column, row, str(rank), ha="center", va="center", color=color, fontsize=8)
        ax.set_xticks(range(count))
        ax.set_yticks(range(count))
    ax.set_xlabel("node")
    ax.set_ylabel("node")
    ax.figure.colorbar(image, ax=ax, label="rank", fraction=0.046)
    return ax
