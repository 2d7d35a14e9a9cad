"""``tensorgrow decompose``: find a small network for an array, or for a larger network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from . import options as opt

NAME = "decompose"


def run(data: opt.DataOptions, search: opt.SearchOptions, output: opt.OutputOptions) -> None:
    """Find a small network for an array, or for a network in a .safetensors file.

    Without a limit the target is a relative error of 0.1. The network goes to NAME.safetensors unless -o
    says otherwise.

    Example: [cyan]tensorgrow decompose photo.png --max-error 0.05 --report photo.html[/]
    """
    from ..data.tensorization import DEFAULT_ERROR
    from ..tasks.decompose import decompose
    from .inputs import load
    from .outputs import finish, prepare_outputs
    from .stored import load_network, load_stored

    if search.max_error is None and search.max_parameters is None and search.max_seconds is None:
        search = replace(search, max_error=DEFAULT_ERROR)
    output = prepare_outputs(output, [Path(f"{data.file.stem}.safetensors")], data.inputs)
    keywords = search.keywords()
    source = load_network(data) or load_stored(data) or load(data, search.max_error, keywords["edges"])
    result = decompose(source.tensor, **keywords, **output.keywords())
    finish(NAME, result, source, output, seed=search.seed)
