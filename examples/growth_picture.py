"""Grow a network on a colour photograph that ships with scikit-learn, and draw it.

Writes the film of the README, ``docs/figures/growth.webp``, the picture of the home
page, ``docs/figures/growth_steps.webp``, and the report page to ``out/``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

import tensorgrow as tg
from tensorgrow import plotting

SIZE = 256
MAX_ERROR = 0.12
SHOWN = (0.5, 0.3, 0.2, MAX_ERROR)


def photograph() -> np.ndarray:
    """A square of the flower, 256 x 256 x 3, from 0 to 1."""
    picture = Image.fromarray(load_sample_image("flower.jpg")).crop((120, 0, 547, 427))
    return np.asarray(picture.resize((SIZE, SIZE)), dtype=float) / 255.0


def as_picture(dense: np.ndarray) -> np.ndarray:
    """Modes 0-3 are digits of the row, 4-7 of the column, 8 is the colour."""
    return dense.reshape(SIZE, SIZE, 3)


def draw(result: tg.Result, picture: np.ndarray, path: Path) -> None:
    """Draw networks on the way above their reconstructions, and the original last."""
    points = [next(p for p in result.path if p.error <= error) for error in SHOWN[:-1]]
    networks = [*(p.network for p in points), result.network]
    layout = plotting.choose_layout(result.structure)
    figure, axes = plt.subplots(
        2, len(networks) + 1, figsize=(13, 5.4), layout="constrained"
    )
    for (above, below), network in zip(axes.T, networks):
        plotting.draw_network(network, above, layout=layout, labels=False)
        estimate = as_picture(network.to_dense().numpy())
        error = np.linalg.norm(estimate - picture) / np.linalg.norm(picture)
        above.set_title(
            f"{network.num_parameters:,} numbers, error {error:.2f}", fontsize=11
        )
        below.imshow(estimate.clip(0, 1))
        below.set_axis_off()
    tg.plotting.plot_errors(result, axes[0, -1])
    axes[0, -1].legend().remove()
    axes[1, -1].imshow(picture)
    axes[1, -1].set_axis_off()
    axes[1, -1].set_title(f"original: {picture.size:,} numbers", fontsize=11)
    figure.savefig(path, dpi=100, pil_kwargs={"quality": 90})


def main() -> None:
    """Decompose, draw, film, report."""
    picture = photograph()
    tensor = picture.reshape((4,) * 8 + (3,))
    result = tg.decompose(tensor, max_error=MAX_ERROR, effort="fast", random_state=0)
    print(result)
    figures, out = Path(__file__).parent.parent / "docs" / "figures", Path("out")
    out.mkdir(exist_ok=True)
    draw(result, picture, figures / "growth_steps.webp")
    plotting.growth_film(
        result, figures / "growth.webp", image=as_picture, max_frames=36, seconds=7
    )
    result.report(out / "growth.html", title="A flower", image=as_picture, truth=tensor)
    print(
        f"written: growth.webp and growth_steps.webp in {figures}, growth.html in {out}"
    )


if __name__ == "__main__":
    main()
