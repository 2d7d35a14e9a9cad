"""Linear layers of a trained model replaced by smaller ones."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..callbacks import progress_callback
from ..errors import DataError, OptionError, check_choice
from ..network import RandomState, as_generator
from ..running import describe
from ..search import Effort, Limits
from .choices import Choice, Clock, allocate, choices_for, default_layouts
from .layout import Layout
from .linear import TNLinear
from .measuring import layer_bytes, median_seconds
from .moments import Inputs, Metric, apply, calibration_batches, input_moments
from .showing import StatusLine
from .shrunk import CompressResult, LayerReport, replace

__all__ = ["compress"]

# Seconds for one layer where no limit is given.
SECONDS_PER_LAYER = 60.0
# Rows of the input that latencies of single layers are measured with.
LATENCY_ROWS = 32

Dims = tuple[Sequence[int], Sequence[int]]


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
        truncated SVDs.
    random_state
        Seed or generator.
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    measure
        Whether latencies are measured for the report.

    Returns
    -------
    CompressResult
        The new model with sizes, errors, latencies and memory before and after; ``print(result.table())``.
    """
    budget = _budget(model, max_error, max_parameters, max_ratio)
    Limits(max_error, max_parameters, None, max_seconds, held_out=True)
    check_choice("effort", effort, ("fast", "balanced", "thorough"))
    own = copy.deepcopy(model)
    chosen = _chosen(own, layers, min_size)
    batches = None if calibration is None else calibration_batches(calibration)
    moments = {} if batches is None else input_moments(own, chosen, batches)
    seed = int(torch.randint(2**31, (), generator=as_generator(random_state)))
    total = SECONDS_PER_LAYER * len(chosen) if max_seconds is None else max_seconds
    others = sum(p.numel() for p in own.parameters()) - sum(m.weight.numel() for m in chosen.values())
    room = math.inf if budget is None else budget - others
    if room < 0:
        raise OptionError(
            f"the budget of {budget:,} parameters is below the {others:,} that are not to be compressed; "
            "raise it, or choose more layers"
        )
    begin = time.perf_counter()
    clock = Clock(total)
    works: list[_Work] = []
    with _told(progress) as tell:
        for n, (name, layer) in enumerate(chosen.items()):
            tell(f"{name}: layer {n + 1} of {len(chosen)}, {layer.in_features} to {layer.out_features}")
            works.append(
                _search(
                    name,
                    layer,
                    moments.get(name),
                    _layouts(name, layer, dims, paired),
                    max_error=max_error,
                    max_parameters=int(min(room, layer.weight.numel())),
                    effort=effort,
                    clock=clock,
                    share=1.0 / (len(chosen) - n),
                    seed=seed,
                )
            )
    picks = _pick(works, room, max_error)
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
            max_error=max_error,
            max_parameters=budget,
            effort=effort,
            calibrated=batches is not None,
            seconds=time.perf_counter() - begin,
        ),
    )


@dataclass(frozen=True)
class _Work:
    """A layer and the ways to store it."""

    name: str
    layer: nn.Linear
    inputs: Inputs | None
    choices: list[Choice]
    seconds: float


def _metric(layer: nn.Linear, inputs: Inputs | None) -> Metric:
    """The error that counts. It is as large as the weight, and not kept."""
    return Metric(layer.weight.detach().double(), None if inputs is None else inputs.moment)


def _search(
    name: str, layer: nn.Linear, inputs: Inputs | None, layouts: list[Layout], **limits: Any
) -> _Work:
    begin = time.perf_counter()
    if not bool(torch.isfinite(layer.weight).all()):
        raise DataError(f"the weight of {name} has entries that are not finite; leave it out of `layers`")
    choices = choices_for(_metric(layer, inputs), layouts, **limits)
    return _Work(name, layer, inputs, choices, time.perf_counter() - begin)


def _pick(works: Sequence[_Work], room: float, max_error: float | None) -> list[Choice]:
    """The choice for every layer."""
    if max_error is not None:
        picks = [w.choices[0] for w in works]
        if sum(c.num_parameters for c in picks) > room:
            raise OptionError(
                f"max_error={max_error} needs {sum(c.num_parameters for c in picks):,} parameters in the "
                f"chosen layers, but only {int(room):,} are left for them; give one of the two limits"
            )
        return picks
    at = allocate([w.choices for w in works], int(min(room, 2**62)))
    if at is None:
        least = sum(w.choices[0].num_parameters for w in works)
        raise OptionError(
            f"{int(room):,} parameters are left for the chosen layers, but their smallest forms need "
            f"{least:,}; raise the budget"
        )
    return [w.choices[k] for w, k in zip(works, at)]


@torch.no_grad()
def _made(work: _Work, choice: Choice, *, measure: bool) -> tuple[nn.Module, LayerReport]:
    """The layer in its chosen form, and a report on it."""
    layer: nn.Linear | TNLinear = work.layer
    x = torch.randn(LATENCY_ROWS, work.layer.in_features, dtype=torch.float64).to(work.layer.weight)
    latency = after = median_seconds(lambda: work.layer(x), work.layer) if measure else None
    metric = _metric(work.layer, work.inputs)
    structure = None
    if choice.make is not None and choice.layout is not None:
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


def _budget(
    model: nn.Module, max_error: float | None, max_parameters: int | None, max_ratio: float | None
) -> int | None:
    if max_error is None and max_parameters is None and max_ratio is None:
        raise OptionError("nothing says how small or how exact: give max_error, max_parameters or max_ratio")
    if max_ratio is None:
        return max_parameters
    if max_parameters is not None:
        raise OptionError("give max_parameters or max_ratio, not both")
    if not 0 < max_ratio <= 1:
        raise OptionError(f"max_ratio={max_ratio!r} must be above 0 and at most 1")
    return int(max_ratio * sum(p.numel() for p in model.parameters()))


def _chosen(
    model: nn.Module, layers: Iterable[str] | Callable[[str, nn.Linear], bool] | None, min_size: int
) -> dict[str, nn.Linear]:
    """Layers to compress by name, each module once."""
    found = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    if callable(layers):
        picked = {n: m for n, m in found.items() if layers(n, m)}
    elif layers is not None:
        names = [layers] if isinstance(layers, str) else list(layers)
        unknown = [n for n in names if n not in found]
        if unknown:
            raise OptionError(f"layers={unknown} are not Linear layers of the model; it has {list(found)}")
        picked = {n: found[n] for n in names}
    else:
        # Subclasses may be read by their owners in ways of their own, and a weight that is also used
        # elsewhere would not go away: both only when asked for by name.
        uses: dict[int, int] = {}
        for module in model.modules():
            for p in module._parameters.values():
                uses[id(p)] = uses.get(id(p), 0) + 1
        picked = {
            n: m
            for n, m in found.items()
            if type(m) is nn.Linear and m.weight.numel() >= min_size and uses[id(m.weight)] == 1
        }
    if not picked:
        raise OptionError(
            f"no layer to compress: the model has the Linear layers {list(found)}, and min_size={min_size}; "
            "name some in `layers`"
        )
    if any(m.weight.is_complex() for m in picked.values()):
        raise OptionError("complex layers cannot be compressed; leave them out of `layers`")
    return picked


def _layouts(
    name: str, layer: nn.Linear, dims: Dims | Mapping[str, Dims] | None, paired: bool | None
) -> list[Layout]:
    sizes = layer.in_features, layer.out_features
    given = dims.get(name) if isinstance(dims, Mapping) else dims
    if given is None:
        return [x for x in default_layouts(*sizes) if paired is None or x.paired == paired]
    both = (True, False) if len(given[0]) == len(given[1]) else (False,)
    kinds = both if paired is None else (paired,)
    return [Layout.choose(*sizes, given[0], given[1], paired=kind) for kind in kinds]


def _bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())
