"""The growth of a network as a film: a moving picture, or a page with a slider."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..data.atomic_file import replacing
from ..errors import OptionError, import_package
from ..results import Result
from ..steps import Step
from .canvas import hidden_figure
from .diagram import draw_network
from .growth import error_name, main_growth, network_at, pick_evenly
from .layout import Layout, choose_layout
from .picture import ImageMaker, ValueRange, View, data_address, show_image

if TYPE_CHECKING:
    from PIL.Image import Image


def growth_film(
    result: Result,
    path: str | Path,
    *,
    image: ImageMaker | None = None,
    max_frames: int = 60,
    seconds: float = 8.0,
    dpi: int = 72,
) -> Path:
    """Draw the growth that led to a result, step by step.

    Parameters
    ----------
    path
        A file that ends in .gif, in .webp (smaller), or in .html for a self-contained page with a slider.
    image
        Where the tensor is a picture: a function from the dense tensor to the picture, or its shape; the
        reconstruction is then shown beside the network.
    max_frames
        Longer growths are thinned evenly.
    seconds
        Length of the film; the last picture stays for another two.

    Returns
    -------
    Path
        The file written.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".gif", ".webp", ".html"):
        raise OptionError(f"a film is a .gif, .webp or .html file, not {path.name!r}")
    if max_frames < 1 or not seconds > 0:
        raise OptionError(f"max_frames={max_frames} and seconds={seconds} must be at least 1 and above 0")
    if not result.history:
        raise OptionError("this result has no history to film")
    main = main_growth(result)
    steps = pick_evenly([s for s in result.history if s.start == main], max_frames)
    name = error_name(result)
    captions = [f"{s.num_parameters:,} parameters, {name} {s.error:.3g}" for s in steps]
    layout = choose_layout(result.structure)
    units = _units(result, steps, image)
    names = result.leg_names
    frames = [_frame(*each, layout, names, dpi) for each in zip(steps, captions, units)]
    wait = max(20, round(1000 * seconds / len(frames)))
    if kind == ".html":
        _write_page(path, frames, captions, wait)
    else:
        _write_animation(path, frames, wait)
    return path


def _units(
    result: Result, steps: list[Step], image: ImageMaker | None
) -> list[NDArray[np.float64]] | list[None]:
    """Draw the picture of each step with values from 0 to 1; None without pictures."""
    if image is None:
        return [None] * len(steps)
    networks = [network_at(result, s).network for s in steps]
    view = View(image, result.tensorization)
    pictures = [view.of_tensor(result.expected(n.to_dense())) for n in networks]
    values = ValueRange.of(pictures[-1])
    return [values.to_unit(p) for p in pictures]


def _frame(
    step: Step,
    caption: str,
    picture: NDArray[np.float64] | None,
    layout: Layout,
    names: Sequence[str] | None,
    dpi: int,
) -> Image:
    columns = 1 if picture is None else 2
    figure = hidden_figure((4.2 * columns, 4.6), dpi)
    network = figure.add_axes((0.0, 0.0, 1 / columns, 0.92))
    draw_network(step.structure, network, layout=layout, highlight=step.edge, names=names)
    figure.text(0.5, 0.95, caption, ha="center", va="center", fontsize=12)
    if picture is not None:
        show_image(figure.add_axes((0.51, 0.02, 0.48, 0.88)), picture)
    pillow = import_package("PIL.Image", "a film needs Pillow", "plot")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    frame: Image = pillow.open(buffer).convert("RGB")
    return frame


def _write_animation(path: Path, frames: list[Image], wait: int) -> None:
    from PIL import Image

    options: dict[str, Any] = {"quality": 80, "method": 4}
    if path.suffix.lower() == ".gif":
        # Octrees keep rare colours, such as that of the changed edge; dithering would be noise, which GIF
        # cannot compress.
        octree, plain = Image.Quantize.FASTOCTREE, Image.Dither.NONE
        frames = [f.quantize(128, method=octree, dither=plain) for f in frames]
        options = {"optimize": True}
    durations = [wait] * (len(frames) - 1) + [wait + 2000]  # milliseconds
    first, *rest = frames
    with replacing(path) as temporary:
        first.save(temporary, save_all=True, append_images=rest, duration=durations, loop=0, **options)


def _write_page(path: Path, frames: list[Image], captions: list[str], wait: int) -> None:
    content = {"frames": [_address(f) for f in frames], "captions": captions, "wait": wait}
    template = Template(files(__package__).joinpath("film.html").read_text(encoding="utf-8"))
    with replacing(path) as temporary:
        temporary.write_text(template.substitute(data=json.dumps(content)), encoding="utf-8")


def _address(frame: Image) -> str:
    buffer = io.BytesIO()
    frame.save(buffer, "WEBP", quality=85)
    return data_address("webp", buffer.getvalue())
