"""The layers to compress: which they are, what stays of the model, and a layer in its new form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import nn

from ...errors import OptionError, check_kind, check_positive, check_whole
from ..kinds.catalogue import dense_names, kind_of, known_kind
from ..kinds.statistics import Inputs
from ..layer.attention import refusal, unpack_attention
from ..layer.layout import Layout
from ..layer.tied import holders, sharers, weight_key
from ..layer.tn_layer import TNLayer, weight_refusal
from ..modules import count_parameters
from .calibration import Metric
from .choices import Choice, Site, fault_of
from .latency import layer_bytes, median_seconds
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
    if check_positive("max_ratio", max_ratio) > 1:
        raise OptionError(f"max_ratio={max_ratio!r} must be above 0 and at most 1")
    return int(max_ratio * count_parameters(model))


Layers = Iterable[str] | Callable[[str, nn.Module], bool] | None
"""Names of layers, or a function of name and layer; None: all that are large enough."""


def take_apart(model: nn.Module, layers: Layers) -> tuple[nn.Module, Layers, dict[str, str]]:
    """Give the attentions of a model layers of their own, where these may be meant; the model is changed.

    Returns the model, the layers with every attention that is named replaced by the names of its own, and
    why others stay, by name. `pack_attention` is the way back.
    """
    found = {n: m for n, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)}
    uses = _count_uses(model)
    left = {n: reason for n, m in found.items() if (reason := refusal(m) or _why_whole(m, uses))}
    if layers is None or callable(layers):
        return unpack_attention(model, found.keys() - left.keys()), layers, left
    names = _names_of(layers)
    refused = [n for n in names if n in left]
    if refused:
        raise OptionError(f"the attention {refused[0]!r} cannot be taken apart: {left[refused[0]]}")
    meant = {n for n in found if any(name == n or name.startswith(f"{n}.") for name in names)}
    meant -= left.keys()
    model = unpack_attention(model, meant)
    own = dict(model.named_modules())
    inner = {n: [f"{n}.{layer}" for layer, _ in own[n].named_children()] for n in meant}
    return model, [each for name in names for each in inner.get(name, [name])], {}


def _names_of(layers: Iterable[str]) -> list[str]:
    if not isinstance(layers, Iterable):
        raise OptionError(f"layers must be names, a function of name and layer, or None; not {layers!r}")
    return [layers] if isinstance(layers, str) else list(layers)


def _why_whole(attention: nn.Module, uses: Mapping[int, int]) -> str:
    """Why an attention that torch has packed stays so; empty where it need not."""
    # Its layers get parameters of their own, and would no longer share them.
    return "other modules use its weights too" if any(uses[id(p)] > 1 for p in attention.parameters()) else ""


def layers_to_compress(
    model: nn.Module, layers: Layers, min_size: int
) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Layers to compress by name, each module once; and why others are left alone, by name."""
    check_whole("min_size", min_size, least=0)
    known = {n: m for n, m in model.named_modules() if kind_of(m) is not None}
    left: dict[str, str] = {}
    if callable(layers):
        picked = {n: m for n, m in known.items() if layers(n, m)}
    elif layers is not None:
        picked = _named_layers(model, _names_of(layers))
    else:
        uses = _count_uses(model)
        left = {n: reason for n, m in known.items() if (reason := _why_left(m, min_size, uses))}
        picked = {n: m for n, m in known.items() if n not in left}
        left |= _others_left(model, min_size)
    if not picked:
        reasons = "".join(f"; {name or 'the model'}: {reason}" for name, reason in left.items())
        raise OptionError(
            f"no layer to compress: the model has the layers {list(known)} of the kinds {dense_names()}, and "
            f"min_size={min_size}; name some in `layers`{reasons:.400}"
        )
    for name, module in picked.items():
        reason = known_kind(module).refusal(module)
        if reason:
            raise OptionError(f"the layer {name!r} cannot be compressed: {reason}; leave it out of `layers`")
    return picked, left


def _named_layers(model: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    # A module may have several names; it is reported under the first.
    first = {id(m): n for n, m in reversed(list(model.named_modules()))}
    modules = dict(model.named_modules(remove_duplicate=False))
    unknown = [n for n in names if n not in modules or kind_of(modules[n]) is None]
    if unknown:
        what = {n: _describe(modules.get(n)) for n in unknown}
        known = [n for n, m in model.named_modules() if kind_of(m) is not None]
        raise OptionError(
            f"layers={unknown} are not {dense_names()} layers of the model ({what}); it has {known}"
        )
    return {first[id(modules[n])]: modules[n] for n in names}


def merge_tied(
    model: nn.Module, layers: Mapping[str, nn.Module]
) -> tuple[dict[str, nn.Module], dict[str, dict[str, nn.Module]]]:
    """Of layers that share a weight one, an embedding before a linear layer; and those tied to each, by name.

    What is tied gets the network of that one; a weight that others would keep is refused.
    """
    tables: dict[int, tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            tables.setdefault(weight_key(module), (name, module))
    merged: dict[int, tuple[str, nn.Module]] = {}
    for name, layer in layers.items():
        key = weight_key(layer)
        merged.setdefault(key, tables.get(key, (name, layer)))
    picked = dict(merged.values())
    tied = {n: sharers(model, m) for n, m in picked.items()}
    for name, layer in picked.items():
        keepers = [other for other in holders(model, layer) if other not in tied[name]]
        if keepers:
            raise OptionError(
                f"the weight of {name!r} is one that other modules use too, which cannot have a network in "
                f"its place: {keepers}; leave it out of `layers`"
            )
    return picked, {n: found for n, found in tied.items() if found}


def _describe(module: nn.Module | None) -> str:
    if module is None:
        return "not in the model"
    kind = type(module)
    return f"a quantised {kind.__name__}" if "quantiz" in kind.__module__ else f"a {kind.__name__}"


def _why_left(module: nn.Module, min_size: int, uses: Mapping[int, int]) -> str:
    """Why a layer that nobody named is left alone; empty where it is compressed."""
    kind = known_kind(module)
    if type(module) is not kind.dense:
        # The owner of a subclass may read it in ways of its own.
        return f"a {type(module).__name__} is compressed by name only"
    reason = kind.refusal(module)
    if reason:
        return reason
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    if weight.numel() < min_size:
        return f"its {weight.numel():,} entries are fewer than min_size"
    if uses[id(weight)] > 1:  # it would stay
        return "other modules use its weight too"
    return ""


def _others_left(model: nn.Module, min_size: int) -> dict[str, str]:
    """Modules of no kind that can be compressed and of that size, and why they are left alone, by name."""
    left = {}
    # What a layer is made of is no layer of its own: cores of networks, parametrisations.
    layers = [m for m in model.modules() if isinstance(m, TNLayer) or kind_of(m) is not None]
    within = {id(part) for layer in layers for part in layer.modules()}
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, TNLayer):
            left[name] = "its weight is a network already"
        elif "quantiz" in type(module).__module__ and hasattr(module, "weight"):
            left[name] = weight_refusal(module)
        elif id(module) not in within:
            size = sum(p.numel() for p in module._parameters.values() if p is not None)
            if size >= max(min_size, 1):
                left[name] = f"no network layer takes the place of {kind}"
    return left


def parameters_that_stay(model: nn.Module, layers: Iterable[nn.Module]) -> int:
    """Parameters of a model without the weights of some layers; a weight that others use too stays.

    Every new layer has a bias of its own, also where several had one together.
    """
    left, sizes = _count_uses(model), {id(p): p.numel() for p in model.parameters()}
    biases = 0
    for layer in layers:
        bias = getattr(layer, "bias", None)
        biases += bias.numel() if isinstance(bias, torch.Tensor) else 0
        left.subtract(id(p) for module in layer.modules() for p in module._parameters.values())
    return biases + sum(size for key, size in sizes.items() if left[key] > 0)


def _count_uses(model: nn.Module) -> Counter[int]:
    """How many modules have each parameter."""
    return Counter(id(p) for module in model.modules() for p in module._parameters.values())


def layouts_of(
    layers: Mapping[str, nn.Module], dims: Dims | Mapping[str, Dims] | None, paired: bool | None
) -> dict[str, list[Layout]]:
    """Tensorised shapes to try for every layer."""
    unknown = [n for n in dims if n not in layers] if isinstance(dims, Mapping) else []
    if unknown:
        raise OptionError(f"dims={unknown} are not among the layers to compress: {list(layers)}")
    if paired is not None:
        check_kind("paired", paired, bool)
    layouts = {}
    for name, layer in layers.items():
        kind = known_kind(layer)
        own = dims.get(name) if isinstance(dims, Mapping) else dims
        if own is not None and not _is_pair(own):
            raise OptionError(
                f"dims must be digits (in_dims, out_dims), such as ((8, 8), (16, 4)); not {own!r}"
            )
        if own is None:
            layouts[name] = [x for x in kind.layouts(layer) if paired in (None, x.paired)]
        else:
            both = (True, False) if len(own[0]) == len(own[1]) else (False,)
            kinds = both if paired is None else (paired,)
            layouts[name] = [kind.layer.layout_of(layer, *own, paired=way) for way in kinds]
    return layouts


def _is_pair(dims: object) -> bool:
    return isinstance(dims, Sequence) and len(dims) == 2 and all(isinstance(d, Sequence) for d in dims)


def site_of(layer: nn.Module, inputs: Inputs | None) -> Site:
    """How the weight of a layer is used."""
    kind, like = known_kind(layer), layer.weight
    assert isinstance(like, torch.Tensor)
    return Site(kind.application(layer), kind.rows(layer, inputs), like.detach())


@torch.no_grad()
def convert(
    name: str, layer: nn.Module, inputs: Inputs | None, choice: Choice, *, seconds: float, measure: bool
) -> tuple[nn.Module, LayerReport]:
    """A layer in its new form, and a report on it.

    `seconds` is what the search for its forms took; `measure` says whether to measure latencies.
    """
    new, kind, site = layer, known_kind(layer), site_of(layer, inputs)
    x = kind.example(layer, inputs)
    latency = after = median_seconds(lambda: layer(x), layer) if measure else None
    metric = Metric.of(layer, inputs)
    structure, matrix = None, metric.weight
    if choice.layout is not None:
        own = choice.make(metric).to(site.like.device, site.like.dtype)
        made = kind.layer.from_dense(layer, choice.layout, network=own)
        new, structure, matrix = made, made.structure, made.matrix.detach().double()
        after = median_seconds(lambda: new(x), new) if measure else None
        if inputs is not None and inputs.mean is not None and made.bias is not None:
            made.bias.add_(_mean_outputs(metric.weight - matrix, inputs.mean))
    how, sizes, rows = site.application, kind.sizes(layer), site.rows
    report = LayerReport(
        name=name,
        kind=choice.kind,
        in_features=sizes[0],
        out_features=sizes[1],
        parameters_before=count_parameters(layer),
        parameters_after=count_parameters(new),
        relative_error=Metric(metric.weight, None).error(matrix),
        weighted_error=None if inputs is None else metric.error(matrix),
        latency_before=latency,
        latency_after=after,
        bytes_before=layer_bytes(layer, how, sizes, rows),
        bytes_after=layer_bytes(new, how, sizes, rows),
        seconds=seconds,
        layout=choice.layout,
        structure=structure,
        note=choice.note or fault_of(choice, metric.weight, site),
        module=type(layer).__name__,
    )
    return new, report


def _mean_outputs(weight: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    """What a weight makes of the mean input; each group of inputs has as many outputs."""
    groups = mean.to(weight).reshape(-1, weight.shape[1], 1)
    return (weight.reshape(len(groups), -1, weight.shape[1]) @ groups).reshape(-1)
