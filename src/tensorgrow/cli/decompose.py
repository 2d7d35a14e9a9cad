"""``tensorgrow decompose``: a small network for an array."""

from __future__ import annotations

from pathlib import Path

from ..tasks.api import decompose
from . import options as opt
from .inputs import load, parse_edges
from .outputs import check_outputs, finish

__all__ = ["NAME", "run"]

NAME = "decompose"
# Relative error that is asked for when nothing is.
DEFAULT_ERROR = 0.1


def run(
    file: opt.InputFile,
    key: opt.Key = None,
    tensorize: opt.Tensorize = None,
    order: opt.Order = None,
    max_error: opt.MaxError = None,
    max_parameters: opt.MaxParameters = None,
    max_seconds: opt.MaxSeconds = None,
    edges: opt.Edges = "all",
    effort: opt.EffortOption = opt.Effort.balanced,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    output: opt.Outputs = None,
    report: opt.Report = None,
    checkpoint: opt.Checkpoint = None,
    as_json: opt.JsonOutput = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find a small network for an array.

    Without a limit the relative error 0.1 is aimed at. The network goes to NAME.safetensors unless -o says
    otherwise.

    Example: [cyan]tensorgrow decompose photo.png --max-error 0.05 --report photo.html[/]
    """
    if max_error is None and max_parameters is None and max_seconds is None:
        max_error = DEFAULT_ERROR
    outputs = output or [Path(f"{file.stem}.safetensors")]
    check_outputs(outputs, report=report, checkpoint=checkpoint)
    pairs = parse_edges(edges)
    data = load(file, key, tensorize, order, max_error)
    result = decompose(
        data.tensor,
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
    )
