"""``tensorgrow fit``: a format or structure that is already known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ..errors import OptionError
from ..structure import Structure
from ..tasks.api import fit, load
from . import options as opt
from .complete import Mask, Observed, truth_of
from .inputs import load_known
from .outputs import as_result, check_outputs, finish

__all__ = ["NAME", "run"]

NAME = "fit"
FORMATS = {
    "train": Structure.tensor_train,
    "ring": Structure.tensor_ring,
    "tucker": Structure.tucker,
    "tree": Structure.hierarchical_tucker,
}


def run(
    file: opt.InputFile,
    structure: Annotated[
        str,
        typer.Option(
            "--structure",
            "-s",
            help="train, ring, tucker or tree with --rank, or a .safetensors file whose structure to take.",
            show_default=False,
        ),
    ],
    rank: Annotated[
        str | None,
        typer.Option(help="One rank for all edges, or one each: [cyan]2,3,4[/].", show_default=False),
    ] = None,
    key: opt.Key = None,
    mask: Mask = None,
    observed: Observed = None,
    tensorize: opt.Tensorize = None,
    order: opt.Order = None,
    max_error: opt.MaxError = None,
    max_seconds: opt.MaxSeconds = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    output: opt.Outputs = None,
    report: opt.Report = None,
    as_json: opt.JsonOutput = False,
) -> None:
    """Fit a format or structure you already have.

    Example: [cyan]tensorgrow fit x.npy --structure ring --rank 4[/]
    """
    outputs = output or [Path(f"{file.stem}.safetensors")]
    check_outputs(outputs, report=report)
    data = load_known(
        file,
        key,
        tensorize,
        order,
        mask=mask,
        observed=observed,
        seed=seed,
        max_error=max_error,
        all_known=True,
    )
    partial = data.known is not None
    result = fit(
        data.tensor,
        _structure(structure, rank, data.how.dims),
        data.mask if partial else None,
        truth=truth_of(data) if partial else None,
        max_error=max_error,
        max_seconds=max_seconds,
        random_state=seed,
        device=device,
    )
    finish(NAME, result, data, seed=seed, outputs=outputs, report=report, checkpoint=None, as_json=as_json)


def _structure(text: str, rank: str | None, dims: tuple[int, ...]) -> Structure:
    if text in FORMATS:
        if rank is None or not re.fullmatch(r"\d+(,\d+)*", rank):
            raise OptionError(f"--structure {text} needs --rank, such as 4 or 2,3,4; it is {rank!r}")
        ranks = [int(r) for r in rank.split(",")]
        return FORMATS[text](dims, ranks[0] if len(ranks) == 1 else ranks)
    if not Path(text).suffix:
        raise OptionError(
            f"--structure {text!r} is not known; give {', '.join(FORMATS)} or a .safetensors file"
        )
    found = as_result(load(text), Path(text)).structure
    if found.dims != dims:
        raise OptionError(
            f"the structure of {text} is for {found.dims}, but the tensor has shape {dims}; --tensorize may "
            "change that"
        )
    return found
