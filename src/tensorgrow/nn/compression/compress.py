"""Linear layers of a trained model replaced by smaller ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...callbacks.base import as_callbacks, listening, progress_callback
from ...errors import OptionError, check_choice
from ...network import RandomState, as_generator
from ...search import Effort, Limits
from ...tasks.task import describe
from ..checkpoints import CompressCheckpoint
from ..layer.linear import TNLinear
from ..progress import StatusLine
from .calibration import Metric, apply, calibration_batches, input_moments
from .choices import Choice, allocate
from .latency import layer_bytes, median_seconds
from .layers import Dims, budget_of, layers_to_compress, layouts_of, parameters_that_stay
from .result import CompressResult, LayerReport, replace
from .search import CompressRun, Work, metric_of

__all__ = ["compress"]

# Seconds for one layer where no limit is given.
SECONDS_PER_LAYER = 60.0
# Rows of the input that latencies of single layers are measured with.
LATENCY_ROWS = 32


def compress(
    model: nn.Module,
    *,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_ratio: float | None = None,
    layers: Iterable[str] | Callable[[str, nn.Linear], bool] | None = None,
    calibration: Any = None,
    dims: Dims | Mapping[str, Dims] | None = None,
    paired: bool | None = None,
    min_size: int = 4096,
    effort: Effort = "balanced",
    max_seconds: float | None = None,
    random_state: RandomState = 0,
    progress: bool | None = None,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    measure: bool = True,
) -> CompressResult:
    """Replace linear layers of a trained model by tensor networks.

    For every layer truncated SVDs and tensor networks over a few tensorised shapes are found, with the error
    of each size. Then each layer gets the smallest within `max_error`, or all together get what has the least
    sum of squared relative errors within the parameter budget. A layer that does not get smaller stays dense.

    Parameters
    ----------
    model
        It is not modified: the result holds a copy.
    max_error
        Relative error of every replaced layer at most: ``||W - W'|| / ||W||``, with `calibration`
        ``||(W - W') M^(1/2)|| / ||W M^(1/2)||``, the error of its outputs about their mean.
    max_parameters
        Of the whole model, layers that are not replaced included.
    max_ratio
        The same as a share of the parameters there are now.
    layers
        Names, or a function of name and layer; by default every ``nn.Linear`` of at least `min_size` entries.
    calibration
        Inputs of the model like those in use: a batch, batches or a DataLoader; hundreds to thousands of
        rows. Errors are then weighted by the covariance ``M`` of what comes into each layer, and biases make
        up for what is lost of its mean (a layer without a bias counts the second moment about zero).
    dims
        ``(in_dims, out_dims)`` of the tensorised shape, for all layers or by name; by default three shapes
        are tried, with digits near 4 and near 16.
    paired
        Legs paired or separate; by default both are tried.
    min_size
        Smaller layers are left alone.
    effort
        Of the decompositions.
    max_seconds
        For everything; by default a minute for each layer. What is not searched by then, or at Ctrl-C, gets
        truncated SVDs; what was found before is kept.
    random_state
        Seed or generator.
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    callbacks
        Functions of a `LayerSearch`, or objects with ``on_start(run)``, ``on_step(run, search)``,
        ``on_end(run)``; called after every layer. A true answer ends the search as Ctrl-C does.
    checkpoint
        A file that what was found for each layer is kept in. When it exists, layers that were searched are
        not searched again.
    measure
        Whether latencies are measured for the report.

    Returns
    -------
    CompressResult
        The new model with sizes, errors, latencies and memory before and after; ``print(result.table())``.
    """
    budget = budget_of(model, max_error, max_parameters, max_ratio)
    Limits(max_error, max_parameters, None, max_seconds, held_out=True)
    check_choice("effort", effort, ("fast", "balanced", "thorough"))
    own = copy.deepcopy(model)
    chosen = layers_to_compress(own, layers, min_size)
    layouts = layouts_of(chosen, dims, paired)
    batches = None if calibration is None else calibration_batches(calibration)
    others = parameters_that_stay(own, chosen.values())
    room = None if budget is None else budget - others
    if room is not None and room < 0:
        raise OptionError(
            f"the budget of {budget:,} parameters is below the {others:,} that are not to be compressed, or "
            "that other modules use too; raise it, or choose more layers"
        )
    with _told(progress) as tell:
        run = CompressRun(
            chosen,
            {} if batches is None else input_moments(own, chosen, batches, tell),
            layouts,
            max_error=max_error,
            room=room,
            effort=effort,
            seconds=SECONDS_PER_LAYER * len(chosen) if max_seconds is None else max_seconds,
            seed=int(torch.randint(2**31, (), generator=as_generator(random_state))),
            tell=tell,
        )
        listeners: list[Any] = as_callbacks(callbacks)
        if checkpoint is not None:
            keeper = CompressCheckpoint(checkpoint, _identity(run))
            keeper.load(run)
            listeners.insert(0, keeper)
        with listening(run, listeners) as wants_to_stop:
            for found in run:
                if wants_to_stop(found):
                    run.stop()
        works = [run.works[name] for name in chosen]
        tell("choosing forms and measuring")
        return _finished(model, own, run, works, batches, budget, measure=measure)


def _finished(
    model: nn.Module,
    own: nn.Module,
    run: CompressRun,
    works: Sequence[Work],
    batches: list[Any] | None,
    budget: int | None,
    *,
    measure: bool,
) -> CompressResult:
    """The chosen forms put into the copy of the model, and the report."""
    picks = _pick(works, run)
    before = None if batches is None or not measure else median_seconds(lambda: apply(own, batches[0]), own)
    reports = []
    for work, choice in zip(works, picks):
        made, report = _made(work, choice, measure=measure)
        own = replace(own, work.layer, made)
        reports.append(report)
    after = None if batches is None or not measure else median_seconds(lambda: apply(own, batches[0]), own)
    like = next(model.parameters())
    return CompressResult(
        own,
        tuple(reports),
        sum(p.numel() for p in model.parameters()),
        _bytes(model),
        before,
        after,
        describe(
            like,
            max_error=run.max_error,
            max_parameters=budget,
            effort=run.effort,
            calibrated=batches is not None,
            seconds=run.elapsed,
            interrupted=run.is_stopped,
        ),
    )


def _pick(works: Sequence[Work], run: CompressRun) -> list[Choice]:
    """The choice for every layer."""
    if run.max_error is not None:
        picks = [w.choices[0] for w in works]
        needed = sum(c.num_parameters for c in picks)
        if run.room is not None and needed > run.room:
            raise OptionError(
                f"max_error={run.max_error} needs {needed:,} parameters in the chosen layers, but only "
                f"{run.room:,} are left for them; give one of the two limits"
            )
        return picks
    assert run.room is not None
    at = allocate([w.choices for w in works], run.room)
    if at is None:
        least = sum(min(sum(x.dims) for x in run.layouts[w.name]) for w in works)
        raise OptionError(
            f"{run.room:,} parameters are left for the chosen layers, but their smallest forms need "
            f"{max(least, run.room + 1):,}; raise the budget"
        )
    return [w.choices[k] for w, k in zip(works, at)]


@torch.no_grad()
def _made(work: Work, choice: Choice, *, measure: bool) -> tuple[nn.Module, LayerReport]:
    """The layer in its chosen form, and a report on it."""
    layer: nn.Linear | TNLinear = work.layer
    x = torch.randn(LATENCY_ROWS, work.layer.in_features, dtype=torch.float64).to(work.layer.weight)
    latency = after = median_seconds(lambda: work.layer(x), work.layer) if measure else None
    metric = metric_of(work.layer, work.inputs)
    structure = None
    if choice.layout is not None:
        network, scale = choice.make(metric)
        layer = TNLinear.from_linear(
            work.layer,
            in_dims=choice.layout.in_dims,
            out_dims=choice.layout.out_dims,
            paired=choice.layout.paired,
            network=network.to(work.layer.weight.device, work.layer.weight.dtype),
            input_scale=scale,
        )
        structure = layer.structure
        after = median_seconds(lambda: layer(x), layer) if measure else None
    weight = layer.weight.detach().double()
    if work.inputs is not None and work.inputs.mean is not None and layer.bias is not None:
        layer.bias.add_((metric.weight - weight) @ work.inputs.mean.to(weight))
    plain = Metric(metric.weight, None)
    report = LayerReport(
        name=work.name,
        kind=choice.kind,
        in_features=work.layer.in_features,
        out_features=work.layer.out_features,
        parameters_before=sum(p.numel() for p in work.layer.parameters()),
        parameters_after=sum(p.numel() for p in layer.parameters()),
        relative_error=plain.error(weight),
        weighted_error=None if work.inputs is None else metric.error(weight),
        latency_before=latency,
        latency_after=after,
        bytes_before=layer_bytes(work.layer, LATENCY_ROWS),
        bytes_after=layer_bytes(layer, LATENCY_ROWS),
        seconds=work.seconds,
        layout=None if structure is None else choice.layout,
        structure=structure,
    )
    return layer, report


@contextmanager
def _told(progress: bool | None) -> Iterator[Callable[[str], None]]:
    """A live line, where one is wanted."""
    lines = [StatusLine() for _ in progress_callback(progress)]
    for line in lines:
        line.start()

    def tell(text: str) -> None:
        for line in lines:
            line.say(text)

    try:
        yield tell
    finally:
        for line in lines:
            line.stop()


def _identity(run: CompressRun) -> dict[str, Any]:
    """What a resumed run must share with the one that wrote the checkpoint."""
    layers, inputs = run.layers, run.inputs
    # Six digits: sums depend on the number of threads in the last ones.
    return {
        "layers": {n: [*m.weight.shape, f"{_norm(m.weight):.6g}"] for n, m in layers.items()},
        "calibration": {n: f"{_norm(i.moment):.6g}" for n, i in inputs.items()},
        "dims": {n: [x.to_dict() for x in listed] for n, listed in run.layouts.items()},
        "max_error": run.max_error,
        "room for the layers": run.room,
        "effort": run.effort,
        "seed": run.seed,
    }


def _norm(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double().norm())


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())
