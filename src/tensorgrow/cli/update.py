"""``tensorgrow update``: new data for a completion that was saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import OptionError
from . import options as opt

if TYPE_CHECKING:
    from ..results import Result
    from .inputs import Input
    from .tables import Table

NAME = "update"


def run(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A .safetensors file of `complete`.")],
    data: opt.KnownOptions,
    search: opt.SearchOptions,
    output: opt.OutputOptions,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS=COUNT",
            help="Slices at the beginning of an axis that are gone: [cyan]day=1[/], or by its number, "
            "[cyan]1=7[/]. May be given several times.",
            rich_help_panel="Data",
        ),
    ] = None,
    only_new: Annotated[
        bool | None,
        typer.Option(
            "--only-new/--everything",
            help="Whether FILE has only what is new, or all data that counts. By default only what is new "
            "where it has less than half of what was known.",
            rich_help_panel="Data",
        ),
    ] = None,
    keep_observed: opt.KeepObserved = True,
) -> None:
    """Fit a saved completion to new data: more entries, new slices along an axis, a later window.

    It starts from the saved network and grows only where that pays, which takes a small part of the time of a
    new run. FILE is an array, longer along an axis perhaps, or a table with the columns of the first one.

    Example: [cyan]tensorgrow update rain.safetensors rain-march.csv[/]
    """
    from ..data.array_files import TABLES
    from .inputs import load_known, load_result
    from .outputs import finish, prepare_outputs
    from .tables import Table

    for name in ("tensorize", "order"):
        if getattr(data, name) is not None:
            raise OptionError(f"--{name} is what it was when {result} was made; leave it out")
    old = load_result(result, with_history=True)
    keywords = search.keywords() | {"forget": parse_forget(forget), "only_new": only_new}
    if data.file.suffix.lower() not in TABLES:  # the result says how arrays become tensors
        data = replace(data, tensorize="none")
    source = load_known(data, seed=search.seed, all_known=True)
    inputs = {**data.inputs, "result to update": result}
    output = prepare_outputs(output, source.default_outputs(data.file), inputs, source.writable)
    run_keywords = output.keywords()
    if run_keywords["bounds"] is None:  # those of the result
        del run_keywords["bounds"]
    x = source.frame if isinstance(source, Table) else _array(source)
    updated = old.update(x, **keywords, **run_keywords)
    seen = _table(source, updated) if isinstance(source, Table) else _placed(source, updated)
    finish(NAME, updated, seen, output, seed=search.seed, keep_observed=keep_observed)


def parse_forget(texts: list[str] | None) -> dict[int | str, int]:
    """Read pairs of an axis and a count."""
    found: dict[int | str, int] = {}
    for text in texts or ():
        axis, _, count = text.partition("=")
        if not axis or not count.isdigit():
            raise OptionError(f"--forget {text!r} is not known; give an axis and a count such as day=1")
        found[int(axis) if axis.isdigit() else axis] = int(count)
    return found


def _array(source: Input) -> object:
    """The array with NaN where nothing is known, with its labels where it has some."""
    import numpy as np

    x = source.array if source.known is None else np.where(source.known, source.array, np.nan)
    return x if source.axes is None or not source.axes.has_labels else source.axes.to_xarray(x)


def _placed(source: Input, result: Result) -> Input:
    """The array among all slices of the result, which may have more of them."""
    import numpy as np

    from ..data.labels import look_up
    from ..data.tensorization import even

    shape = result.structure.dims if result.tensorization is None else result.tensorization.shape
    known = np.ones(source.array.shape, bool) if source.known is None else source.known
    array, seen = source.array, known
    if result.axes is not None and source.axes is not None and source.axes.has_labels:
        pairs = zip(result.axes.labels, source.axes.labels, source.array.shape)
        where = [np.arange(n) if a is None or b is None else look_up(a, b)[0] for a, b, n in pairs]
        array, seen = np.full(shape, np.nan), np.zeros(shape, bool)
        array[np.ix_(*where)], seen[np.ix_(*where)] = source.array, known
    how = even(shape, "C", None) if result.tensorization is None else result.tensorization
    return replace(source, array=array, known=None if seen.all() else seen, how=how, axes=result.axes)


def _table(source: Table, result: Result) -> Table:
    """The table whose labels are those of the result."""
    from ..data.observations import Observations

    axes = result.axes
    assert axes is not None  # a table was accepted
    rows = source.frame[source.frame[source.value].notna()]
    tensor = Observations(axes.positions(rows), rows[source.value].to_numpy(), result.structure.dims)
    tensor.axes = axes
    return replace(source, tensor=tensor)
