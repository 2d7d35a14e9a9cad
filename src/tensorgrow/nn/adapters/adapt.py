"""Adapters put beside the layers of a model, and merged into its weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from ...errors import OptionError, check_whole
from ...network import RandomState, as_generator
from ..compression.layers import Dims, Layers, layers_to_compress, layouts_of, take_apart
from ..kinds.catalogue import known_kind
from ..layer.attention import pack_attention
from ..layer.layout import Layout
from ..modules import all_or_nothing, check_model, copy_model, move_hooks, replace_module
from .adapter import Adapter, adapter_layers


def adapt(
    model: nn.Module,
    *,
    layers: Layers = None,
    max_parameters: int | None = None,
    dims: Dims | Mapping[str, Dims] | None = None,
    paired: bool = False,
    min_size: int = 4096,
    dtype: torch.dtype | None = None,
    random_state: RandomState = 0,
    inplace: bool = False,
) -> nn.Module:
    """Freeze a model and put a tensor network of rank one beside its layers, which starts at exactly zero.

    Train the networks with your own loop, with `fine_tune`, or let `grow` find their structures: it raises
    ranks where the loss gains most per parameter, until the adapters have `max_parameters`.

    Parameters
    ----------
    model
        It is not modified unless `inplace` is set: a copy comes back.
    layers
        Names, or a function of name and layer; by default every ``nn.Linear`` of at least `min_size` entries.
        Convolutions and embeddings are adapted by name. An ``nn.MultiheadAttention`` stands for its
        projections, and becomes a `TNMultiheadAttention` until adapters are merged.
    max_parameters
        Of all adapters together, at the end of a growth.
    dims
        ``(in_dims, out_dims)`` of the tensorised shape, for all layers or by name; by default digits near 16.
    paired
        Legs paired or separate.
    min_size
        Smaller layers are left alone.
    dtype
        Of the networks; by default that of each layer.
    random_state
        Seed or generator.
    inplace
        Change the model that is given, and return it. Where that fails it is as before.

    Returns
    -------
    nn.Module
        The model with `Adapter` modules in place of the layers; everything else is frozen.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    >>> adapted = adapt(model, max_parameters=500)
    >>> sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    32
    """
    check_model(model)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise OptionError(f"dtype must be one of torch's real floating-point types, or None; not {dtype!r}")
    own = model if inplace else copy_model(model)
    with all_or_nothing(own):
        own, chosen, _ = take_apart(own, layers)
        picked, _ = layers_to_compress(own, chosen, min_size)
        if layers is None:
            picked = {n: m for n, m in picked.items() if isinstance(m, nn.Linear)}
        shapes = {n: _first_layout(n, m, dims, paired) for n, m in picked.items()}
        if max_parameters is not None:
            check_whole("max_parameters", max_parameters)
            least = sum(sum(layout.dims) for layout in shapes.values())
            if least > max_parameters:
                raise OptionError(
                    f"max_parameters={max_parameters:,}, but networks of rank one beside {len(picked)} "
                    f"layers have {least:,}; raise it, or name fewer `layers`"
                )
        own.requires_grad_(False)
        generator = as_generator(random_state)
        for name, layer in picked.items():
            beside = Adapter(layer, shapes[name], budget=max_parameters, dtype=dtype, random_state=generator)
            move_hooks(layer, beside)
            own = replace_module(own, layer, beside)
        return pack_attention(own)


def _first_layout(
    name: str, layer: nn.Module, dims: Dims | Mapping[str, Dims] | None, paired: bool
) -> Layout:
    """The tensorised shape of an adapter; two legs where the sizes of a layer have no digits."""
    known = layouts_of({name: layer}, dims.get(name) if isinstance(dims, Mapping) else dims, paired)[name]
    if known:
        return known[0]
    columns, rows = known_kind(layer).sizes(layer)
    return Layout((columns,), (rows,), paired=False)


def merge_adapters(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """A model whose adapters are added to the weights of their layers: of its first size and speed again.

    Its function is that of the adapted model, up to rounding. Merged weights can be trained; whatever else
    was frozen stays so.
    """
    own = model if inplace else copy_model(model)
    found = adapter_layers(own)
    if not found:
        raise OptionError("the model has no adapters; `adapt` puts them there")
    while found:  # an adapter may lie within another, which takes it along
        adapter = next(iter(found.values()))
        merged = adapter.merge()
        move_hooks(adapter, merged)
        own = replace_module(own, adapter, merged)
        found = adapter_layers(own)
    return pack_attention(own)
