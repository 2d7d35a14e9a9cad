"""``tensorgrow fit``: fit a format or structure that you already have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import OptionError
from ..structure import Structure
from . import options as opt

if TYPE_CHECKING:
    from ..results import Result

NAME = "fit"
FORMATS = {
    "train": Structure.tensor_train,
    "ring": Structure.tensor_ring,
    "tucker": Structure.tucker,
    "tree": Structure.hierarchical_tucker,
}


def run(
    data: opt.KnownOptions,
    structure: Annotated[
        str,
        typer.Option(
            "--structure",
            "-s",
            help="train, ring, tucker or tree with --rank, or a .safetensors file whose structure to take.",
        ),
    ],
    output: opt.OutputOptions,
    rank: Annotated[
        str | None, typer.Option(help="One rank for all edges, or one each: [cyan]2,3,4[/].")
    ] = None,
    max_error: opt.MaxError = None,
    max_seconds: opt.MaxSeconds = None,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
) -> None:
    """Fit a format or structure you already have.

    Example: [cyan]tensorgrow fit x.npy --structure ring --rank 4[/]
    """
    from ..tasks.fit import fit
    from .inputs import load_known, load_result
    from .outputs import finish, prepare_outputs
    from .stored import load_stored
    from .tables import Table

    given = None if structure in FORMATS or not Path(structure).suffix else Path(structure)
    # One that does not exist is complained of below, after outputs that cannot be.
    saved = load_result(given) if given is not None and given.exists() else None
    has_mask = data.mask is not None or data.observed is not None
    source = (None if has_mask else load_stored(data)) or load_known(
        data,
        seed=seed,
        max_error=max_error,
        all_known=True,
        like=None if saved is None else saved.tensorization,
    )
    inputs = {**data.inputs, "structure": None if structure in FORMATS else Path(structure)}
    output = prepare_outputs(output, [Path(f"{data.file.stem}.safetensors")], inputs, source.writable)
    if isinstance(source, Table):
        source.check_length(output.output or [])
    if given is not None and saved is None:
        saved = load_result(given)
    result = fit(
        source.tensor,
        _structure(structure, saved, rank, source.dims),
        source.mask,
        truth=source.truth,
        max_error=max_error,
        max_seconds=max_seconds,
        random_state=seed,
        device=device,
        **output.keywords(),
    )
    finish(NAME, result, source, output, seed=seed)


def _structure(text: str, saved: Result | None, rank: str | None, dims: tuple[int, ...]) -> Structure:
    if text in FORMATS:
        if rank is None or not re.fullmatch(r"\d+(,\d+)*", rank):
            raise OptionError(f"--structure {text} needs --rank, such as 4 or 2,3,4; it is {rank!r}")
        ranks = [int(r) for r in rank.split(",")]
        return FORMATS[text](dims, ranks[0] if len(ranks) == 1 else ranks)
    if saved is None:
        raise OptionError(
            f"--structure {text!r} is not known; give {', '.join(FORMATS)} or a .safetensors file"
        )
    found = saved.structure
    if found.dims != dims:
        raise OptionError(
            f"the structure of {text} is for {found.dims}, but the tensor has shape {dims}; --tensorize may "
            "change that"
        )
    return found
