from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import Adapter, TNMultiheadAttention, adapt, adapter_layers, merge_adapters
from tests.oracles import assert_close


class Model(nn.Module):
    """Layers of every kind that can be adapted."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.conv = nn.Conv1d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 30)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids).to(self.conv.weight.dtype)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.conv(x.mT).mT)


LAYERS = ["table", "attention", "conv", "head"]
IDS = torch.arange(30).reshape(3, 10)


def made() -> nn.Module:
    torch.manual_seed(0)
    return Model().double()


def shaken(model: nn.Module) -> nn.Module:
    """Adapters that are no longer zero."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(0.3 * torch.randn_like(p))
    return model


def trained(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("paired", [True, False])
def test_adapters_start_at_zero_and_are_merged_exactly(paired):
    model = made()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    adapted = adapt(model, layers=LAYERS, paired=paired)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())
    assert list(adapter_layers(adapted)) == [
        "table",
        "attention.in_proj",
        "attention.out_proj",
        "conv",
        "head",
    ]
    assert isinstance(adapted.attention, TNMultiheadAttention)
    assert_close(adapted(IDS), model(IDS), 1e-14)
    assert all(
        torch.equal(a.delta(x), 0 * a.base(x))
        for a in adapter_layers(adapted).values()
        if isinstance(a.base, nn.Linear)
        for x in [torch.randn(2, 32, dtype=torch.float64)]
    )
    shaken(adapted)
    assert float((adapted(IDS) - model(IDS)).detach().norm()) > 0.1
    merged = merge_adapters(adapted)
    assert {k: v.shape for k, v in merged.state_dict().items()} == {k: v.shape for k, v in before.items()}
    assert type(merged.attention) is nn.MultiheadAttention
    assert_close(merged(IDS), adapted(IDS), 1e-12)


def test_only_adapters_have_gradients():
    adapted = shaken(adapt(made(), layers=LAYERS))
    adapted(IDS).square().sum().backward()
    for name, p in adapted.named_parameters():
        assert (p.grad is not None) == (".delta." in name) == p.requires_grad
    assert trained(adapted) < 0.1 * sum(p.numel() for p in adapted.parameters())


def test_by_default_linear_layers_that_are_large():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    adapted = adapt(model)
    assert list(adapter_layers(adapted)) == ["0"]
    assert adapt(model, inplace=True) is model
    assert isinstance(model[0], Adapter)
    assert merge_adapters(model, inplace=True) is model and type(model[0]) is nn.Linear
    assert isinstance(adapt(nn.Linear(64, 64)), Adapter)


def test_growth_stops_at_the_budget_and_finds_a_hidden_change():
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    wanted = copy.deepcopy(base)
    with torch.no_grad():
        wanted[2].weight += torch.outer(torch.randn(64), torch.randn(64))
    x = torch.randn(300, 64)
    data = (x[:200], wanted(x[:200]).detach()), (x[200:], wanted(x[200:]).detach())
    adapted = adapt(base, max_parameters=400)
    result = tg.nn.grow(
        adapted,
        *data,
        loss=F.mse_loss,
        candidates="gradient",
        edges_per_step=1,
        edge_score="per_parameter",
        training=tg.nn.TrainingOptions(optimizer="adam", learning_rate=2e-2, epochs=15),
        patience=None,
        batch_size=50,
        random_state=0,
    )
    assert result.stop is tg.StopReason.MAX_PARAMETERS
    assert 200 < trained(result.model) <= 400
    assert result.history[1].layer == "2.delta"  # where the change is
    assert result.validation_error < 0.3 * result.history[0].validation_error
    for a, b in zip(base.parameters(), merge_adapters(result.model).parameters()):
        assert a.shape == b.shape
    assert torch.equal(result.model[0].base.weight, base[0].weight)


def test_states_load_across_ranks():
    grown = shaken(adapt(made(), layers=["head"]))
    grown.head.delta.grow_edge(0, 2, random_state=0)
    other = adapt(made(), layers=["head"])
    other.load_state_dict(grown.state_dict())
    assert torch.equal(other(IDS), grown(IDS))


def test_precisions():
    base = made().bfloat16()
    adapted = shaken(adapt(base, layers=["head", "conv"], dtype=torch.float32))
    assert adapted.head.delta.cores[0].dtype == torch.float32
    out = adapted(IDS)
    assert out.dtype == torch.bfloat16
    assert_close(merge_adapters(adapted)(IDS).float(), out.float(), 5e-2)
    single = shaken(adapt(made().float(), layers=LAYERS))
    with torch.autocast("cpu", torch.bfloat16):
        under = single(IDS)
    assert_close(under.float(), single(IDS), 5e-2)


def test_wrong_arguments_are_named():
    with pytest.raises(tg.OptionError, match="max_parameters=5"):
        adapt(made(), layers=LAYERS, max_parameters=5)
    with pytest.raises(tg.OptionError, match="layers of the model"):
        adapt(made(), layers=["tail"])
    with pytest.raises(tg.OptionError, match="no adapters"):
        merge_adapters(made())


def test_adapters_within_adapters_are_merged_too():
    first = shaken(adapt(made(), layers=["head", "conv"]))
    second = shaken(adapt(first, layers=["head.base", "table"]))
    merged = merge_adapters(second)
    assert not adapter_layers(merged) and type(merged.head) is nn.Linear
    assert_close(merged(IDS), second(IDS), 1e-10)


def test_a_parametrised_weight_is_merged_as_it_is():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(32, 16).double()))
    adapted = shaken(adapt(model, layers=["0"]))
    merged, x = merge_adapters(adapted), torch.randn(5, 32, dtype=torch.float64)
    assert dict(merged.named_parameters()).keys() == {"0.weight", "0.bias"}
    assert_close(merged(x), adapted(x), 1e-10)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_parameters": 1}, "networks of rank one"),
        ({"layers": ["attention", "nope"]}, "nope"),
        ({"layers": ["attention"], "dims": 3}, "dims must be"),
        ({"layers": ["attention"], "random_state": "x"}, "not a seed"),
        ({"dtype": "float32"}, "dtype must be"),
        ({"dtype": torch.int32}, "dtype must be"),
        ({"layers": 3}, "layers must be names"),
    ],
)
def test_what_fails_changes_nothing(options, match):
    model = made()
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 32, batch_first=True), 1)
    model.encoder = encoder
    model.head.weight.requires_grad_(False)
    heard = []
    handle = model.attention.register_forward_hook(lambda *_: heard.append(1))
    before = [dict(vars(m)) for m in model.modules()], [p.requires_grad for p in model.parameters()]
    with pytest.raises(tg.OptionError, match=match):
        adapt(model, inplace=True, **{"min_size": 1, **options})
    assert [dict(vars(m)) for m in model.modules()] == before[0]
    assert [p.requires_grad for p in model.parameters()] == before[1]
    assert encoder.use_nested_tensor
    model(IDS)
    handle.remove()
    model(IDS)
    assert heard == [1]


def test_hooks_can_still_be_removed():
    model = made()
    heard = []
    handle = model.head.register_forward_hook(lambda *_: heard.append(1))
    adapted = adapt(model, layers=["head"], inplace=True)
    adapted(IDS)
    handle.remove()
    adapted(IDS)
    assert heard == [1]
