"""What is drawn on: the caller's axes, new ones, or a figure in memory; and the colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import import_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of all pictures.
BLUE, GREEN, ORANGE, GREY, INK = "#3f51d8", "#0b8a6a", "#d4540b", "#8a90a0", "#191d28"

_NEED = ("pictures need matplotlib", "plot")


def new_axes(columns: int, size: tuple[float, float]) -> list[Axes]:
    """Make axes side by side in a new figure of pyplot, which notebooks and ``plt.show()`` show."""
    plt = import_package("matplotlib.pyplot", *_NEED)
    _, axes = plt.subplots(1, columns, figsize=size, layout="constrained", squeeze=False)
    return list(axes[0])


def one_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Return `ax`, or new axes where it is None."""
    return new_axes(1, size)[0] if ax is None else ax


def hidden_figure(size: tuple[float, float], dpi: int) -> Figure:
    """Make a figure in memory that pyplot does not know of, whatever the backend."""
    figure: Figure = import_package("matplotlib.figure", *_NEED).Figure(figsize=size, dpi=dpi)
    import_package("matplotlib.backends.backend_agg", *_NEED).FigureCanvasAgg(figure)
    return figure
