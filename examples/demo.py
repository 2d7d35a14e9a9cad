"""Decompose a photograph that ships with matplotlib and draw what was found.

It prints the growth of the network and writes ``out/growth.png``. ``make demo`` runs the command
``tensorgrow demo``, which writes a page about the same photograph.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

import tensorgrow as tg
from tensorgrow.cli.demo import photograph

MAX_ERROR = 0.15


def main() -> None:
    """Decompose, report, draw."""
    console = Console()
    picture = photograph()
    # Column-major 4^8: modes 0-3 are the binary digits (in pairs) of the row, modes 4-7 those of the column.
    tensor = picture.reshape((4,) * 8, order="F")
    result = tg.decompose(tensor, max_error=MAX_ERROR, random_state=0)

    table = Table(title="Growth of the network")
    for name in ("step", "move", "edge", "parameters", "error"):
        table.add_column(name, justify="right")
    for step in result.history:
        edge = "" if step.edge is None else f"{step.edge[0]}-{step.edge[1]}"
        table.add_row(
            str(step.index), step.kind, edge, f"{step.num_parameters:,}", f"{step.relative_error:.4f}"
        )
    console.print(table)
    console.print(result)
    console.print(f"{result.stop.name}: {result.stop.text}")
    path = draw(picture, result)
    console.print(f"picture: {path}")


def draw(picture: np.ndarray, result: tg.Result) -> Path:
    """Photograph, two reconstructions and the error-size path."""
    figure, axes = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    coarse = result.at(max_error=2 * MAX_ERROR)
    panels = [("original", picture.size, picture)]
    for name, network in ((f"error {2 * MAX_ERROR:g}", coarse), (f"error {MAX_ERROR:g}", result.network)):
        image = network.to_dense().numpy().reshape(picture.shape, order="F")
        panels.append((name, network.num_parameters, image))
    for axis, (name, size, image) in zip(axes, panels):
        axis.imshow(image, cmap="gray", vmin=0, vmax=1)
        axis.set_title(f"{name}: {size:,} numbers")
        axis.axis("off")
    sizes = [p.num_parameters for p in result.path]
    errors = [p.relative_error for p in result.path]
    axes[3].loglog(sizes, errors, "o-", markersize=4)
    axes[3].set(xlabel="parameters", ylabel="relative error", title="path of the search")
    axes[3].grid(True, which="both", alpha=0.3)
    folder = Path("out")
    folder.mkdir(exist_ok=True)
    path = folder / "growth.png"
    figure.savefig(path, dpi=110)
    return path


if __name__ == "__main__":
    main()
