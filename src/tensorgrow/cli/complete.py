"""``tensorgrow complete``: fill in missing entries."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from . import options as opt

NAME = "complete"

# Share of a picture below which neighbours tell more than the search finds in its time. Hidden errors at
# 128x128, 10 %, without and with: airplane .1175 and .1101, house .1193 and .1168, facade .1004 and .0960,
# baboon .1543 and .1555; at 30 % airplane .0725 and .0780, baboon .1251 and .1297.
SPARSE = 0.15
# Known entries up to which that holds: of more the smooth search is too slow for the time it has (airplane,
# 256x256, 10 %: .0874 without and .1053 with, linear interpolation .0966).
FEW_KNOWN = 10_000


def run(
    data: opt.KnownOptions,
    search: opt.SearchOptions,
    output: opt.OutputOptions,
    loss: Annotated[
        str, typer.Option(help="squared, absolute, huber, poisson or logistic.", rich_help_panel="Search")
    ] = "squared",
    prior: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[AXIS=]PRIOR",
            help="What is known of an axis: [cyan]day=smooth[/], [cyan]hour=periodic[/], "
            "[cyan]day=periodic:7[/], [cyan]day=autoregressive:1:7[/], [cyan]place=nonnegative[/]; without "
            "a name, of every axis, or of rows and columns of a picture. May be given several times. By "
            "default axes of times are smooth, those whose neighbours are alike, and pictures of which less "
            "than 15 % and 10,000 values are known; [cyan]none[/] for nothing.",
            rich_help_panel="Search",
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            help="Complete in so many shapes, and average. By default 4 where axes are cut into digits "
            "(1 with --effort fast, 7 with thorough), and 1 elsewhere.",
            rich_help_panel="Search",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that run the members; by default one for each core.", rich_help_panel="Search"
        ),
    ] = None,
    keep_observed: opt.KeepObserved = True,
) -> None:
    """Fill in the missing entries of an array, or of a table (.csv, .parquet) of entries.

    Structure and ranks are chosen by the error on held-out entries; the search ends when that stops falling.
    Pictures and matrices are cut into digits, in the way that the held-out entries prefer, and completed in
    several such shapes, whose mean is written. Writes NAME.safetensors and the completed array unless -o
    says otherwise. A table has index columns and the value last; rows without a value are filled, or, where
    there are none, all combinations of labels.

    Example: [cyan]tensorgrow complete photo.png --observed 0.1[/]
    """
    from ..tasks.complete import complete
    from .inputs import load_in_own_shape
    from .outputs import finish, prepare_outputs
    from .prior_texts import parse_priors
    from .tables import Table

    keywords = search.keywords()
    source, shape = load_in_own_shape(data, seed=search.seed)
    output = prepare_outputs(output, source.default_outputs(data.file), data.inputs, source.writable)
    if isinstance(source, Table):
        source.check_length(output.output or [])
    keywords |= {"loss": loss, "truth": source.truth, "tensorize": shape, "members": members}
    keywords |= {"workers": "auto" if workers is None else workers}
    every = range(2) if source.source.is_picture else range(len(source.dims))  # colours have no neighbours
    if prior is None and source.source.is_picture and source.mask is not None:
        is_sparse = float(source.mask.mean()) < SPARSE and int(source.mask.sum()) < FEW_KNOWN
        prior = ["smooth"] if is_sparse else None
    keywords |= {"priors": parse_priors(prior, source.axes, every)}
    if not isinstance(source, Table) and source.axes is not None:
        keywords["names"] = source.axes.names
    result = complete(source.tensor, source.mask, **keywords, **output.keywords())
    if not isinstance(source, Table) and result.tensorization is not None:
        source = replace(source, how=result.tensorization)
    finish(NAME, result, source, output, seed=search.seed, keep_observed=keep_observed)
