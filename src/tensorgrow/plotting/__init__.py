"""Pictures with matplotlib (extra `plot`): every function returns its axes or the file it wrote."""

from .curves import plot_errors, plot_ranks
from .diagram import draw_network
from .film import growth_film
from .layout import Layout, choose_layout
from .panels import plot_images, plot_result

__all__ = [
    "Layout",
    "choose_layout",
    "draw_network",
    "growth_film",
    "plot_errors",
    "plot_images",
    "plot_ranks",
    "plot_result",
]
