"""``tensorgrow complete``: fill in what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..data.array_files import LOSSY, WRITABLE
from ..tasks.complete import complete
from . import options as opt
from .inputs import Input, load_known, parse_edges
from .outputs import check_outputs, finish

__all__ = ["NAME", "Mask", "Observed", "run", "truth_of"]

NAME = "complete"

Mask = Annotated[
    Path | None,
    typer.Option(
        "--mask",
        help="File of the same shape: not zero (white) where entries are known. NaN is missing anyway.",
        rich_help_panel="Data",
        show_default=False,
    ),
]
Observed = Annotated[
    float | None,
    typer.Option(
        "--observed",
        metavar="SHARE",
        help="Try it out: keep this share of the entries, drawn with --seed, and hide the others.",
        rich_help_panel="Data",
        show_default=False,
    ),
]


def run(
    file: opt.InputFile,
    key: opt.Key = None,
    mask: Mask = None,
    observed: Observed = None,
    tensorize: opt.Tensorize = None,
    order: opt.Order = None,
    loss: Annotated[
        str,
        typer.Option(help="squared, absolute, huber, poisson or logistic.", rich_help_panel="Search"),
    ] = "squared",
    max_error: opt.MaxError = None,
    max_parameters: opt.MaxParameters = None,
    max_seconds: opt.MaxSeconds = None,
    edges: opt.Edges = "all",
    effort: opt.EffortOption = opt.Effort.balanced,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    output: opt.Outputs = None,
    keep_observed: Annotated[
        bool,
        typer.Option(
            "--keep-observed/--predict-all",
            help="Whether known entries keep their values in what is written.",
            rich_help_panel="Output",
        ),
    ] = True,
    report: opt.Report = None,
    checkpoint: opt.Checkpoint = None,
    as_json: opt.JsonOutput = False,
    quiet: opt.Quiet = False,
) -> None:
    """Fill in the missing entries of an array.

    Structure and ranks are chosen by the error on held-out entries; the search ends when that stops falling.
    Writes NAME.safetensors and the completed array unless -o says otherwise.

    Example: [cyan]tensorgrow complete photo.png --observed 0.1[/]
    """
    outputs = output or default_outputs(file)
    check_outputs(outputs, report=report, checkpoint=checkpoint)
    pairs = parse_edges(edges)
    data = load_known(file, key, tensorize, order, mask=mask, observed=observed, seed=seed)
    result = complete(
        data.tensor,
        data.mask,
        loss=loss,
        truth=truth_of(data),
        max_error=max_error,
        max_parameters=max_parameters,
        max_seconds=max_seconds,
        edges=pairs,
        effort=effort.value,
        random_state=seed,
        device=device,
        progress=False if quiet else None,
        checkpoint=checkpoint,
    )
    finish(
        NAME,
        result,
        data,
        seed=seed,
        outputs=outputs,
        report=report,
        checkpoint=checkpoint,
        as_json=as_json,
        keep_observed=keep_observed,
    )


def default_outputs(file: Path) -> list[Path]:
    """The network, and the completed array in the format it came in unless that changes numbers."""
    suffix = file.suffix.lower()
    if suffix not in WRITABLE:
        suffix = ".npy"
    elif suffix in LOSSY:
        suffix = ".png"
    return [Path(f"{file.stem}.safetensors"), Path(f"{file.stem}-completed{suffix}")]


def truth_of(data: Input) -> np.ndarray | None:
    """Entries that were hidden on purpose, to measure the error on; None where there are none."""
    hidden = ~np.isnan(data.array) & ~data.known if data.known is not None else None
    if hidden is None or not hidden.any():
        return None
    return np.where(data.how.apply(np.ones(data.array.shape, bool)), data.tensor, np.nan)
