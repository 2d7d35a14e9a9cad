"""Complete a photograph of which a quarter of the pixels is known, and draw what was found.

It takes the photograph of ``tensorgrow demo``, stops after a minute and writes ``out/completion.png``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import tensorgrow as tg
from tensorgrow.cli.demo import photograph

OBSERVED = 0.25
SECONDS = 60.0


def main() -> None:
    """Hide most pixels, complete, draw."""
    picture = photograph()
    # Column-major 4^8: modes 0-3 are the binary digits (in pairs) of the row, modes 4-7 those of the column.
    tensor = picture.reshape((4,) * 8, order="F")
    mask = np.random.default_rng(0).random(tensor.shape) < OBSERVED
    known = np.where(mask, tensor, np.nan)  # NaN is missing
    result = tg.complete(known, truth=tensor, max_seconds=SECONDS, random_state=0)
    print(result)
    print(f"{result.stop.name}: {result.stop.text}")

    filled = result.fill(known).reshape(picture.shape, order="F")
    seen = known.reshape(picture.shape, order="F")
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    titles = (f"{OBSERVED:.0%} of the pixels", f"completed: {result.num_parameters:,} numbers", "original")
    for axis, title, image in zip(axes, titles, (seen, filled, picture)):
        axis.imshow(image, cmap="gray", vmin=0, vmax=1)
        axis.set_title(title)
        axis.axis("off")
    folder = Path("out")
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / "completion.png", dpi=110)
    print(f"picture: {folder / 'completion.png'}")


if __name__ == "__main__":
    main()
