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
    """Truncated SVDs of ``W M^(1/2)``, `M` the second moment of the inputs; the same share of every layer.

    Embeddings are matrices with a column for every token; their `M` has the frequencies of tokens.
    """
    own, picked = _copy(model, layers)
    moments = input_moments(own, picked, [calibration])
    left = budget - (count_parameters(own) - sum(m.weight.numel() for m in picked.values()))
    for layer, rank in zip(picked.values(), _even_ranks(list(picked.values()), left)):
        name = next(n for n, m in picked.items() if m is layer)
        is_table = isinstance(layer, nn.Embedding)
        weight, inputs = layer.weight.detach().double(), moments[name]
        weight = weight.T if is_table else weight
        rows, columns = weight.shape
        moment = inputs.moment.to(weight)
        moment = torch.diag(moment) if moment.dim() == 1 else moment
        if inputs.mean is not None:
            mean = inputs.mean.to(weight)
            moment = moment + torch.outer(mean, mean)
        root = torch.linalg.cholesky(moment)
        u, s, vh = torch.linalg.svd(weight @ root, full_matrices=False)
        right = torch.linalg.solve_triangular(root, vh[:rank], upper=False, left=False)
        first = nn.Embedding(columns, rank) if is_table else nn.Linear(columns, rank, bias=False)
        last = nn.Linear(rank, rows, bias=not is_table)
        with torch.no_grad():
            down = s[:rank, None].sqrt() * right
            first.weight.copy_(down.T if is_table else down)
            last.weight.copy_(u[:, :rank] * s[:rank].sqrt())
            if isinstance(layer, nn.Linear):
                last.bias.copy_(layer.bias)
        own = replace_module(own, layer, nn.Sequential(first, last).to(layer.weight))
    return own


def _even_ranks(layers: list[nn.Linear | nn.Embedding], room: int) -> list[int]:
    """Ranks of truncated SVDs, the same share of every layer, the largest that fits."""
    share = 1.0
    while True:
        ranks = [max(1, int(share * m.weight.numel() / sum(m.weight.shape))) for m in layers]
        if sum(r * sum(m.weight.shape) for r, m in zip(ranks, layers)) <= room:
            return ranks
        if max(ranks) == 1:
            raise ValueError(f"truncated SVDs of rank one do not fit in {room:,} parameters")
        share *= 0.99


def tensor_trains(model: nn.Module, layers: Iterable[str], budget: int) -> nn.Module:
    """Tensor trains over paired digits near 4, by TT-SVD; one largest rank for all layers."""
    names = list(layers)

    def build(rank: int) -> nn.Module:
        own, picked = _copy(model, names)
        for layer in picked.values():
            layout = Layout.choose(layer.in_features, layer.out_features)
            tensor = layout.to_tensor(layer.weight.detach().double().cpu())
            cores = train_of_ranks(tensor, [rank] * (tensor.dim() - 1))
            network = train_network(cores, range(len(cores)))
            sizes = {"in_dims": layout.in_dims, "out_dims": layout.out_dims}
            own = replace_module(own, layer, TNLinear.from_linear(layer, network=network, **sizes))
        return own

    best, low, high = None, 1, 400  # at which trains are larger than the matrices
    while low <= high:
        rank = (low + high) // 2
        own = build(rank)
        if count_parameters(own) <= budget:
            best, low = own, rank + 1
        else:
            high = rank - 1
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
