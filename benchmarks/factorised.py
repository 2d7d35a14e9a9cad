"""Other ways to make the linear layers of a model smaller: what `nn.compress` is measured beside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from tensorgrow.baselines.formats import train_network
from tensorgrow.baselines.svd import train_of_ranks
from tensorgrow.nn import Layout, TNLinear
from tensorgrow.nn.compression.calibration import input_moments
from tensorgrow.nn.layer.layout import digits
from tensorgrow.nn.modules import count_parameters, replace_module

__all__ = ["tensor_trains", "tensorly_layers", "whitened_svds"]


def whitened_svds(model: nn.Module, layers: Iterable[str], budget: int, calibration: Any) -> nn.Module:
    """Truncated SVDs of ``W M^(1/2)``, `M` the second moment of the inputs; the same share of every layer."""
    own, picked = _copy(model, layers)
    moments = input_moments(own, picked, [calibration])
    left = budget - (count_parameters(own) - sum(m.weight.numel() for m in picked.values()))
    share = left / sum(m.weight.numel() for m in picked.values())
    for name, layer in picked.items():
        weight, inputs = layer.weight.detach().double(), moments[name]
        rows, columns = weight.shape
        rank = max(1, int(share * rows * columns / (rows + columns)))
        mean = inputs.mean if inputs.mean is not None else torch.zeros(columns).to(weight)
        moment = inputs.moment.to(weight) + torch.outer(mean, mean)
        root = torch.linalg.cholesky(moment)
        u, s, vh = torch.linalg.svd(weight @ root, full_matrices=False)
        right = torch.linalg.solve_triangular(root, vh[:rank], upper=False, left=False)
        low = nn.Sequential(nn.Linear(columns, rank, bias=False), nn.Linear(rank, rows))
        with torch.no_grad():
            low[0].weight.copy_(s[:rank, None].sqrt() * right)
            low[1].weight.copy_(u[:, :rank] * s[:rank].sqrt())
            low[1].bias.copy_(layer.bias)
        own = replace_module(own, layer, low.to(layer.weight))
    return own


def tensor_trains(model: nn.Module, layers: Iterable[str], budget: int) -> nn.Module:
    """Tensor trains over paired digits near 4, by TT-SVD; one largest rank for all layers."""
    best = None
    for rank in range(1, 400):
        own, picked = _copy(model, layers)
        for layer in picked.values():
            layout = Layout.choose(layer.in_features, layer.out_features)
            tensor = layout.to_tensor(layer.weight.detach().double().cpu())
            cores = train_of_ranks(tensor, [rank] * (tensor.dim() - 1))
            network = train_network(cores, range(len(cores)))
            sizes = {"in_dims": layout.in_dims, "out_dims": layout.out_dims}
            own = replace_module(own, layer, TNLinear.from_linear(layer, network=network, **sizes))
        if count_parameters(own) > budget:
            break
        best = own
    if best is None:
        raise ValueError(f"tensor trains of rank one do not fit in {budget:,} parameters")
    return best


def tensorly_layers(model: nn.Module, layers: Iterable[str], budget: int, form: str) -> nn.Module:
    """``tltorch.FactorizedLinear`` of the weights; the same share of every layer, as large as fits."""
    import tltorch

    own, picked = _copy(model, layers)
    fixed = count_parameters(own) - sum(m.weight.numel() for m in picked.values())
    share = (budget - fixed) / sum(m.weight.numel() for m in picked.values())

    def build(share: float, convert: Callable[..., nn.Module]) -> dict[str, nn.Module]:
        built = {}
        for name, layer in picked.items():
            sides = [digits(n, 3) for n in (layer.in_features, layer.out_features)]
            built[name] = convert(layer, *sides, share)
        return built

    def empty(layer: nn.Linear, inputs: tuple[int, ...], outputs: tuple[int, ...], share: float) -> nn.Module:
        return tltorch.FactorizedLinear(inputs, outputs, bias=True, factorization=form, rank=share)

    def filled(
        layer: nn.Linear, inputs: tuple[int, ...], outputs: tuple[int, ...], share: float
    ) -> nn.Module:
        return tltorch.FactorizedLinear.from_linear(
            layer,
            rank=share,
            auto_tensorize=False,
            in_tensorized_features=inputs,
            out_tensorized_features=outputs,
            factorization=form,
        )

    rest = fixed - sum(m.bias.numel() for m in picked.values())
    while rest + sum(count_parameters(m) for m in build(share, empty).values()) > budget:
        share *= 0.97
    for name, new in build(share, filled).items():
        own = replace_module(own, picked[name], new.to(picked[name].weight))
    return own


def _copy(model: nn.Module, layers: Iterable[str]) -> tuple[nn.Module, dict[str, nn.Linear]]:
    own = copy.deepcopy(model)
    return own, {n: own.get_submodule(n) for n in layers}  # type: ignore[misc]
