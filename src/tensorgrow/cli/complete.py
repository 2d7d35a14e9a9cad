"""``tensorgrow complete``: fill in missing entries."""

from __future__ import annotations

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
    """Fill in the missing entries of an array, or of a table (.csv, .parquet) of entries.

    Structure and ranks are chosen by the error on held-out entries; the search ends when that stops falling.
    Writes NAME.safetensors and the completed array unless -o says otherwise. A table has index columns and
    the value last; rows without a value are filled, or, where there are none, all combinations of labels.

    Example: [cyan]tensorgrow complete photo.png --observed 0.1[/]
    """
    from ..tasks.complete import complete
    from .inputs import load_known
    from .outputs import finish, prepare_outputs
    from .tables import Table

    keywords = search.keywords()
    source = load_known(data, seed=search.seed)
    output = prepare_outputs(output, source.default_outputs(data.file), data.inputs, source.writable)
    if isinstance(source, Table):
        source.check_length(output.output or [])
    keywords |= {"loss": loss, "truth": source.truth}
    result = complete(source.tensor, source.mask, **keywords, **output.keywords())
    finish(NAME, result, source, output, seed=search.seed, keep_observed=keep_observed)
