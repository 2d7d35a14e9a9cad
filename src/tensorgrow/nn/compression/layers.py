"""The layers to compress: which they are, what stays of the model, and a layer in its new form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import nn

from ...errors import OptionError
from ..layer.layout import Layout
from ..layer.linear import TNLinear
from ..modules import count_parameters
from .calibration import Inputs, Metric
from .choices import Choice, default_layouts, fault_of
from .latency import ROWS, layer_bytes, median_seconds
from .result import LayerReport

Dims = tuple[Sequence[int], Sequence[int]]


def budget_of(
    model: nn.Module, max_error: float | None, max_parameters: int | None, max_ratio: float | None
) -> int | None:
    """Parameters that the whole model may have; None: any number."""
    if max_error is None and max_parameters is None and max_ratio is None:
        raise OptionError("nothing says how small or how exact: give max_error, max_parameters or max_ratio")
    if max_ratio is None:
        return max_parameters
    if max_parameters is not None:
        raise OptionError("give max_parameters or max_ratio, not both")
    if not 0 < max_ratio <= 1:
        raise OptionError(f"max_ratio={max_ratio!r} must be above 0 and at most 1")
    return int(max_ratio * count_parameters(model))


def layers_to_compress(
    model: nn.Module, layers: Iterable[str] | Callable[[str, nn.Linear], bool] | None, min_size: int
) -> dict[str, nn.Linear]:
    """Layers to compress by name, each module once."""
    linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    if callable(layers):
        picked = {n: m for n, m in linear.items() if layers(n, m)}
    elif layers is not None:
        # A module may have several names; it is reported under the first.
        first = {id(m): n for n, m in reversed(linear.items())}
        known = {n: m for n, m in model.named_modules(remove_duplicate=False) if isinstance(m, nn.Linear)}
        names = [layers] if isinstance(layers, str) else list(layers)
        unknown = [n for n in names if n not in known]
        if unknown:
            raise OptionError(f"layers={unknown} are not Linear layers of the model; it has {list(linear)}")
        picked = {first[id(known[n])]: known[n] for n in names}
    else:
        # The owner of a subclass may read it in ways of its own, and a weight that is also used elsewhere
        # would stay: both are compressed only by name.
        uses = _count_uses(model)
        picked = {
            n: m
            for n, m in linear.items()
            if type(m) is nn.Linear and m.weight.numel() >= min_size and uses[id(m.weight)] == 1
        }
    if not picked:
        raise OptionError(
            f"no layer to compress: the model has the Linear layers {list(linear)}, and min_size={min_size}; "
            "name some in `layers`"
        )
    if any(m.weight.is_complex() for m in picked.values()):
        raise OptionError("complex layers cannot be compressed; leave them out of `layers`")
    return picked


def parameters_that_stay(model: nn.Module, layers: Iterable[nn.Linear]) -> int:
    """Parameters of a model without the weights of some layers; a weight that others use too stays."""
    left, sizes = _count_uses(model), {id(p): p.numel() for p in model.parameters()}
    for layer in layers:
        for module in layer.modules():
            for name, p in module._parameters.items():
                if p is not None and not (module is layer and name == "bias"):
                    left[id(p)] -= 1
    return sum(size for key, size in sizes.items() if left[key] > 0)


def _count_uses(model: nn.Module) -> Counter[int]:
    """How many modules have each parameter."""
    return Counter(id(p) for module in model.modules() for p in module._parameters.values())


def layouts_of(
    layers: Mapping[str, nn.Linear], dims: Dims | Mapping[str, Dims] | None, paired: bool | None
) -> dict[str, list[Layout]]:
    """Tensorised shapes to try for every layer."""
    unknown = [n for n in dims if n not in layers] if isinstance(dims, Mapping) else []
    if unknown:
        raise OptionError(f"dims={unknown} are not among the layers to compress: {list(layers)}")
    layouts = {}
    for name, layer in layers.items():
        sizes = layer.in_features, layer.out_features
        own = dims.get(name) if isinstance(dims, Mapping) else dims
        if own is None:
            layouts[name] = [x for x in default_layouts(*sizes) if paired in (None, x.paired)]
        else:
            both = (True, False) if len(own[0]) == len(own[1]) else (False,)
            kinds = both if paired is None else (paired,)
            layouts[name] = [Layout.choose(*sizes, *own, paired=kind) for kind in kinds]
    return layouts


@torch.no_grad()
def convert(
    name: str, layer: nn.Linear, inputs: Inputs | None, choice: Choice, *, seconds: float, measure: bool
) -> tuple[nn.Module, LayerReport]:
    """A layer in its new form, and a report on it.

    `seconds` is what the search for its forms took; `measure` says whether to measure latencies.
    """
    new: nn.Linear | TNLinear = layer
    x = torch.randn(ROWS, layer.in_features, dtype=torch.float64).to(layer.weight)
    latency = after = median_seconds(lambda: layer(x), layer) if measure else None
    metric = Metric.of(layer, inputs)
    structure = None
    if choice.layout is not None:
        network, scale = choice.make(metric)
        new = TNLinear.from_linear(
            layer,
            in_dims=choice.layout.in_dims,
            out_dims=choice.layout.out_dims,
            paired=choice.layout.paired,
            network=network.to(layer.weight.device, layer.weight.dtype),
            input_scale=scale,
        )
        structure = new.structure
        after = median_seconds(lambda: new(x), new) if measure else None
    weight = new.weight.detach().double()
    if inputs is not None and inputs.mean is not None and new.bias is not None:
        new.bias.add_((metric.weight - weight) @ inputs.mean.to(weight))
    report = LayerReport(
        name=name,
        kind=choice.kind,
        in_features=layer.in_features,
        out_features=layer.out_features,
        parameters_before=count_parameters(layer),
        parameters_after=count_parameters(new),
        relative_error=Metric(metric.weight, None).error(weight),
        weighted_error=None if inputs is None else metric.error(weight),
        latency_before=latency,
        latency_after=after,
        bytes_before=layer_bytes(layer, ROWS),
        bytes_after=layer_bytes(new, ROWS),
        seconds=seconds,
        layout=choice.layout,
        structure=structure,
        note=choice.note or fault_of(choice, layer.weight),
    )
    return new, report
