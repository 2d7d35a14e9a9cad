"""``tensorgrow demo``: decompose a photograph that ships with matplotlib and write a page about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import import_package
from . import options as opt
from .console import err, out

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NAME = "demo"


def photograph() -> npt.NDArray[np.float64]:
    """Grace Hopper in grey, 256 x 256, from 0 to 1: block means of the largest square at the top."""
    import numpy as np

    what = "the photograph of the demo comes with matplotlib"
    samples, pillow = (import_package(name, what, "plot,io") for name in ("matplotlib.cbook", "PIL.Image"))
    with pillow.open(str(samples.get_sample_data("grace_hopper.jpg", asfileobj=False))) as file:
        picture = np.asarray(file).astype(float).mean(2) / 255.0
    size, block = 256, min(picture.shape) // 256
    square = picture[: size * block, : size * block]
    return np.asarray(square.reshape(size, block, size, block).mean((1, 3)))


def run(
    folder: Annotated[Path, typer.Option("--folder", "-o", help="Where to write.")] = Path("out"),
    max_error: Annotated[float, typer.Option("--max-error", "-e", help="Relative error to reach.")] = 0.15,
    seed: opt.Seed = 0,
    device: opt.Device = "cpu",
    as_json: opt.JsonOutput = False,
    quiet: opt.Quiet = False,
) -> None:
    """Decompose a photograph and write a page about it."""
    from ..data.array_files import Source
    from ..data.tensorization import plan
    from ..tasks.decompose import decompose
    from .inputs import Input
    from .outputs import finish, make_folder

    make_folder(folder)
    picture = photograph()
    # Column-major 4^8: modes 0-3 are the digits of the row in base 4, modes 4-7 those of the column.
    how = plan(picture.shape, (4,) * 8, order="F")
    data = Input(picture, Source("grace_hopper.jpg", "picture", 255), how)
    if not quiet:
        err.print(f"Decomposing {data.description}, to a relative error of {max_error:g} ...", soft_wrap=True)
    files, report = [folder / "demo.safetensors", folder / "demo.png"], folder / "demo.html"
    output = opt.OutputOptions(files, report, as_json=as_json, quiet=quiet)
    result = decompose(
        data.tensor, max_error=max_error, random_state=seed, device=device, **output.keywords()
    )
    finish(NAME, result, data, output, seed=seed)
    if not as_json:
        out.print(f"\nreport: {report}", soft_wrap=True)
