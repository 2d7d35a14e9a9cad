"""Layers and the tools of torch that take modules apart."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import tensorgrow as tg
from tensorgrow.nn import TNLinear

STRUCTURES = {
    "pair": tg.Structure((6, 6), {(0, 1): 2}),
    "rank one": tg.Structure.rank_one((6, 6)),
    "internal": tg.Structure((6, 6), {(0, 2): 2, (1, 2): 3}),
    "one core": tg.Structure((36,)),
}


def layer_of(name: str, **changes) -> TNLinear:
    structure = STRUCTURES[name]
    dims = (
        {"in_dims": (2, 3), "out_dims": (3, 2)}
        if structure.order == 2
        else {"in_dims": (6,), "out_dims": (6,)}
    )
    return TNLinear(6, 6, structure=structure, random_state=0, **dims, **changes)


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
@pytest.mark.parametrize("changes", [{}, {"bias": False}, {"input_scale": True}], ids=repr)
@pytest.mark.parametrize("name", STRUCTURES)
def test_scripted_layers_compute_the_same_and_keep_their_parameters(name, changes):
    layer = layer_of(name, **changes)
    if layer.input_scale is not None:
        nn.init.uniform_(layer.input_scale)
    scripted = torch.jit.script(nn.Sequential(layer, nn.ReLU()))
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    expected = layer(x).relu()
    torch.testing.assert_close(scripted(x), expected)
    assert dict(scripted[0].named_parameters()).keys() == dict(layer.named_parameters()).keys()
    scripted(x).sum().backward()
    assert all(p.grad is not None for p in scripted.parameters())
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(x), expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5),
        lambda layer: parametrize.register_parametrization(layer, "weight", nn.Identity()),
        lambda layer: parametrizations.spectral_norm(layer),
    ],
)
def test_what_would_replace_the_weight_is_told_why_not(change):
    layer = layer_of("pair")
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    with pytest.raises(tg.OptionError, match=r"computed from the cores.*to_linear"):
        change(layer)
    assert layer.state_dict().keys() == before.keys()
    layer(torch.zeros(1, 6))
    change(layer.to_linear())  # a dense layer takes it


def test_cores_can_be_parametrised_and_pruned():
    layer, x = layer_of("pair", bias=False), torch.ones(4, 6)
    before = layer(x).detach()

    class Double(nn.Module):
        def forward(self, core: torch.Tensor) -> torch.Tensor:
            return 2 * core

    parametrize.register_parametrization(layer.cores, "0", Double())
    torch.testing.assert_close(layer(x), 2 * before)
    parametrize.remove_parametrizations(layer.cores, "0")
    prune.l1_unstructured(layer.cores, "1", amount=0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    values = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[2] < values[0]
    layer(x)
    assert float((layer.cores[1] == 0).double().mean()) == 0.5
    prune.remove(layer.cores, "1")
    assert isinstance(layer.cores[1], nn.Parameter) and float((layer.weight != 0).sum()) > 0
