"""Getting axes: those given, new ones, or a canvas nobody else sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["hidden_figure", "new_axes", "one_axes"]

_MISSING = "pictures need matplotlib: pip install 'tensorgrow[plot]'"


def new_axes(columns: int, size: tuple[float, float]) -> list[Axes]:
    """Axes side by side in a new figure of pyplot, so that notebooks and ``plt.show()`` show it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingPackageError(_MISSING) from error
    _, axes = plt.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)
    return list(axes[0])


def one_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes given, or new ones."""
    return new_axes(1, size)[0] if ax is None else ax


def hidden_figure(size: tuple[float, float], dpi: int) -> Figure:
    """A figure drawn in memory that pyplot does not know of, whatever backend is set."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(_MISSING) from error
    figure = Figure(figsize=size, dpi=dpi)
    FigureCanvasAgg(figure)
    return figure
