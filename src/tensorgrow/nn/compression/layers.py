"""What to grow or to compress, as users ask for it: checked at the door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

from torch import nn

from ...errors import OptionError, check_kind, check_positive, check_whole
from ...solvers import TrainingOptions
from ..layer.layout import Layout
from ..layer.linear import TNLinear, tn_layers
from .choices import default_layouts

__all__ = [
    "Dims",
    "budget_of",
    "check_grow_options",
    "layers_to_compress",
    "layers_to_grow",
    "layouts_of",
    "parameters_that_stay",
]

Dims = tuple[Sequence[int], Sequence[int]]


# -- growing -------------------------------------------------------------------------------------------


def check_grow_options(
    loss: Any, patience: Any, batch_size: Any, noise: Any, training: Any, final_epochs: Any
) -> None:
    """Refuse what `grow` cannot work with."""
    if isinstance(final_epochs, bool) or not isinstance(final_epochs, Integral) or int(final_epochs) < 0:
        raise OptionError(f"final_epochs={final_epochs!r} must be a whole number, 0 for none")
    if loss is not None and not callable(loss):
        raise OptionError(f"loss must be a function of outputs and targets, not {loss!r}")
    if patience is not None:
        check_whole("patience", patience, more=", or None")
    check_whole("batch_size", batch_size)
    check_positive("noise", noise)
    if training is not None:
        check_kind("training", training, TrainingOptions)


def layers_to_grow(model: nn.Module, names: Iterable[str] | None) -> dict[str, TNLinear]:
    """`TNLinear` layers by name; those that are frozen only when they are named."""
    found = tn_layers(model)
    if not found:
        raise OptionError("the model has no TNLinear layer to grow; put tensorgrow.nn.TNLinear layers in it")
    shared = _sharing(found)
    if shared:
        raise OptionError(
            f"the layers {shared} have cores in common, so that none can grow alone; use one TNLinear module "
            "in several places instead"
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise OptionError("all parameters of the model are frozen; set requires_grad where it is trained")
    if names is None:
        free = {n: m for n, m in found.items() if any(c.requires_grad for c in m.cores)}
        if not free:
            raise OptionError(f"all cores of {list(found)} are frozen: set requires_grad, or name `layers`")
        return free
    wanted = [names] if isinstance(names, str) else list(names)
    unknown = [n for n in wanted if n not in found]
    if unknown or not wanted:
        raise OptionError(f"layers={wanted} are not TNLinear layers of the model; it has {list(found)}")
    return {n: found[n] for n in wanted}


def _sharing(layers: Mapping[str, TNLinear]) -> list[str]:
    """Layers that have a core in common with another one."""
    owners: dict[int, list[str]] = {}
    for name, layer in layers.items():
        for core in layer.cores:
            owners.setdefault(id(core), []).append(name)
    return sorted({name for names in owners.values() if len(names) > 1 for name in names})


# -- compressing ---------------------------------------------------------------------------------------


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
    return int(max_ratio * sum(p.numel() for p in model.parameters()))


def layers_to_compress(
    model: nn.Module, layers: Iterable[str] | Callable[[str, nn.Linear], bool] | None, min_size: int
) -> dict[str, nn.Linear]:
    """Layers to compress by name, each module once."""
    found = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    if callable(layers):
        picked = {n: m for n, m in found.items() if layers(n, m)}
    elif layers is not None:
        # A module may have several names; it is reported under the first.
        first = {id(m): n for n, m in reversed(found.items())}
        known = {n: m for n, m in model.named_modules(remove_duplicate=False) if isinstance(m, nn.Linear)}
        names = [layers] if isinstance(layers, str) else list(layers)
        unknown = [n for n in names if n not in known]
        if unknown:
            raise OptionError(f"layers={unknown} are not Linear layers of the model; it has {list(found)}")
        picked = {first[id(known[n])]: known[n] for n in names}
    else:
        # Subclasses may be read by their owners in ways of their own, and a weight that is also used
        # elsewhere would not go away: both only when asked for by name.
        uses = _uses(model)
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


def parameters_that_stay(model: nn.Module, chosen: Iterable[nn.Linear]) -> int:
    """Parameters of a model without the weights of some layers; one that others use too does not go away."""
    left, sizes = _uses(model), {id(p): p.numel() for p in model.parameters()}
    for layer in chosen:
        for module in layer.modules():
            for name, p in module._parameters.items():
                if p is not None and not (module is layer and name == "bias"):
                    left[id(p)] -= 1
    return sum(size for key, size in sizes.items() if left[key] > 0)


def _uses(model: nn.Module) -> dict[int, int]:
    """How many modules have each parameter."""
    uses: dict[int, int] = {}
    for module in model.modules():
        for p in module._parameters.values():
            uses[id(p)] = uses.get(id(p), 0) + 1
    return uses


def layouts_of(
    layers: Mapping[str, nn.Linear], dims: Dims | Mapping[str, Dims] | None, paired: bool | None
) -> dict[str, list[Layout]]:
    """Tensorised shapes to try for every layer."""
    unknown = [n for n in dims if n not in layers] if isinstance(dims, Mapping) else []
    if unknown:
        raise OptionError(f"dims={unknown} are not among the layers to compress: {list(layers)}")
    own = dims if isinstance(dims, Mapping) else dict.fromkeys(layers, dims)
    return {n: _layouts(m, own.get(n), paired) for n, m in layers.items()}


def _layouts(layer: nn.Linear, dims: Dims | None, paired: bool | None) -> list[Layout]:
    sizes = layer.in_features, layer.out_features
    if dims is None:
        return [x for x in default_layouts(*sizes) if paired is None or x.paired == paired]
    both = (True, False) if len(dims[0]) == len(dims[1]) else (False,)
    kinds = both if paired is None else (paired,)
    return [Layout.choose(*sizes, dims[0], dims[1], paired=kind) for kind in kinds]
