"""``tensorgrow complete``: fill in missing entries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as opt

NAME = "complete"


def run(
    data: opt.KnownOptions,
    search: opt.SearchOptions,
    output: opt.OutputOptions,
    loss: Annotated[
        str,
        typer.Option(help="squared, absolute, huber, poisson or logistic.", rich_help_panel="Search"),
    ] = "squared",
    keep_observed: Annotated[
        bool,
        typer.Option(
            "--keep-observed/--predict-all",
            help="Whether known entries keep their values in the output.",
            rich_help_panel="Output",
        ),
    ] = True,
) -> None:
    """Fill in the missing entries of an array.

    Structure and ranks are chosen by the error on held-out entries; the search ends when that stops falling.
    Writes NAME.safetensors and the completed array unless -o says otherwise.

    Example: [cyan]tensorgrow complete photo.png --observed 0.1[/]
    """
    from ..tasks.complete import complete
    from .inputs import load_known
    from .outputs import finish, prepare_outputs

    output = prepare_outputs(output, _default_outputs(data.file))
    keywords = search.keywords()
    source = load_known(data, seed=search.seed)
    keywords |= {"loss": loss, "truth": source.truth}
    result = complete(source.tensor, source.mask, **keywords, **output.keywords())
    finish(NAME, result, source, output, seed=search.seed, keep_observed=keep_observed)


def _default_outputs(file: Path) -> list[Path]:
    """The network, and the completed array in the format of the input unless that format is lossy."""
    from ..data.array_files import LOSSY, WRITABLE

    suffix = file.suffix.lower()
    if suffix not in WRITABLE:
        suffix = ".npy"
    elif suffix in LOSSY:
        suffix = ".png"
    return [Path(f"{file.stem}.safetensors"), Path(f"{file.stem}-completed{suffix}")]
