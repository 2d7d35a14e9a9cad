from __future__ import annotations

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNLinear, compress
from tensorgrow.nn.compression.layers import parameters_that_stay
from tests.nn.compression.models import FAST, planted
from tests.oracles import assert_close


def test_a_module_with_two_names_is_replaced_twice_and_tied_weights_are_left():
    shared = planted().to_linear()
    model = nn.ModuleDict({"a": shared, "b": shared})
    result = compress(model, max_error=1e-3, **FAST)
    assert len(result.layers) == 1
    assert result.model["a"] is result.model["b"]
    assert isinstance(result.model["a"], TNLinear)
    table = nn.Embedding(64, 64)
    head = nn.Linear(64, 64, bias=False)
    head.weight = table.weight
    with pytest.raises(tg.OptionError, match="no layer to compress"):
        compress(nn.Sequential(table, head), max_error=0.5, **FAST)


class Tied(nn.Module):
    """A head with the weight of its embedding; `more` modules have it too."""

    def __init__(self, *more: nn.Module) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(60, 32), nn.Linear(32, 60)
        self.more = nn.ModuleList(more)
        for module in (self.head, *more):
            module.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids))


@pytest.mark.parametrize("layers", [["table"], ["head"], ["head", "table"]])
def test_tied_weights_share_one_network(layers, tmp_path):
    torch.manual_seed(0)
    model, ids = Tied(), torch.arange(60)
    result = compress(model, max_ratio=0.5, layers=layers, **FAST)
    own = result.model
    assert [r.name for r in result.layers] == ["table"]
    assert "shared with head" in result.table()
    assert own.head.source is own.table
    # Counted once, and what both do is of one weight.
    assert result.num_parameters == own.table.num_parameters + 60 <= 0.5 * result.parameters_before
    weight = own.table(ids)
    assert torch.equal(weight, own.head.weight)
    assert_close(own(ids), weight @ weight.T + model.head.bias, 1e-5)
    result.save(tmp_path / "tied.safetensors")
    loaded = tg.load(tmp_path / "tied.safetensors", Tied()).model
    assert loaded.head.source is loaded.table
    assert torch.equal(loaded(ids), own(ids))
    own(ids).sum().backward()
    assert all(core.grad is not None for core in own.table.cores)


@pytest.mark.parametrize("layers", [["table"], ["more.0"], ["head", "more.0", "table"]])
def test_tables_that_share_a_weight_share_one_network(layers, tmp_path):
    torch.manual_seed(0)
    model, ids = Tied(nn.Embedding(60, 32)), torch.arange(60)
    own = compress(model, max_ratio=0.5, layers=layers, **FAST)
    assert [r.name for r in own.layers] == ["table"] and "shared with head, more.0" in own.table()
    assert own.model.more[0] is own.model.table and own.model.head.source is own.model.table
    assert own.num_parameters <= 0.5 * own.parameters_before
    own.save(tmp_path / "tied.safetensors")
    loaded = tg.load(tmp_path / "tied.safetensors", model).model
    assert loaded.more[0] is loaded.table and torch.equal(loaded(ids), own.model(ids))


@pytest.mark.parametrize(
    "other",
    [
        lambda: nn.Conv1d(1, 1, 1),
        lambda: nn.Embedding(60, 32, padding_idx=3),  # a row of zeros, which the other has not
    ],
)
@pytest.mark.parametrize("size", [{"max_ratio": 0.5}, {"max_error": 0.9}])
def test_a_weight_that_another_module_would_keep_is_refused(other, size):
    with pytest.raises(tg.OptionError, match=r"other modules use too.*\['more.0'\]"):
        compress(Tied(other()), layers=["head"], **size, **FAST)


@pytest.mark.parametrize("name", ["in_proj_weight", "out_proj.weight"])
def test_attentions_that_share_weights_still_do(name):
    model = nn.ModuleDict({n: nn.MultiheadAttention(32, 4) for n in "ab"} | {"c": nn.Linear(64, 64)})
    owner, _, own = name.rpartition(".")
    setattr(model["b"].get_submodule(owner), own, model["a"].get_parameter(name))
    result = compress(model, max_error=0.9, **FAST)
    assert "other modules use its weights" in result.left["a"]
    assert result.model["b"].get_parameter(name) is result.model["a"].get_parameter(name)
    assert isinstance(result.model["c"], TNLinear)
    with pytest.raises(tg.OptionError, match="'b' cannot be taken apart: other modules use"):
        compress(model, max_error=0.9, layers=["b"], **FAST)


def test_budgets_count_weights_that_are_shared_once():
    twice = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    twice[1].weight = twice[0].weight
    result = compress(twice, max_ratio=0.5, layers=["0", "1"], **FAST)
    assert result.num_parameters <= 0.5 * result.parameters_before
    assert torch.equal(result.model[0].weight, result.model[1].weight)
    assert not torch.equal(result.model[0].bias, result.model[1].bias)


def test_weights_that_are_computed_are_not_taken_for_shared():
    torch.manual_seed(0)
    layers = [nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)) for _ in range(3)]
    result = compress(nn.Sequential(*layers), max_ratio=0.5, layers=["0", "1", "2"], **FAST)
    assert [r.name for r in result.layers] == ["0", "1", "2"]
    assert all(type(m) is TNLinear for m in result.model)
    assert result.num_parameters <= 0.5 * result.parameters_before


def test_layers_that_share_a_bias_get_one_each_within_the_budget():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[1].bias = model[0].bias
    result = compress(model, max_ratio=0.5, **FAST)
    assert model[1].bias is model[0].bias
    assert parameters_that_stay(model, model) == 128
    assert result.num_parameters <= 0.5 * result.parameters_before


@pytest.mark.filterwarnings("ignore:.*quantize")  # of torch, which has them no longer in the future
def test_what_no_network_can_take_the_place_of_is_named():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.position = nn.Parameter(torch.zeros(64, 64))
            self.rnn, self.small, self.done = nn.LSTM(64, 64), nn.Bilinear(2, 2, 2), planted()
            self.linear = nn.Linear(64, 64)
            self.quantised = torch.ao.nn.quantized.Linear(8, 8)

    result = compress(Own(), max_error=0.9, **FAST)
    assert result.left == {
        "": "no network layer takes the place of Own",
        "rnn": "no network layer takes the place of LSTM",
        "done": "its weight is a network already",
        "quantised": "it is quantised; compress the model before that",
    }
    assert "left alone: no network layer takes the place of LSTM" in result.table()
    with pytest.raises(tg.OptionError, match="quantised: it is quantised"):
        compress(nn.ModuleDict({"quantised": Own().quantised}), max_error=0.9, **FAST)


def test_the_error_is_that_of_the_layer_in_its_own_precision():
    torch.manual_seed(0)
    layer = nn.Linear(64, 64, dtype=torch.bfloat16)
    layer.weight.data.copy_(torch.randn(64, 8) @ torch.randn(8, 64))
    (coarse,) = compress(layer, max_error=0.01, **FAST).layers
    assert coarse.kind != "dense" and coarse.relative_error <= 0.01
    (fine,) = compress(layer, max_error=2.5e-3, **FAST).layers  # less than rounding alone
    assert fine.kind == "dense" and "within the error as torch.bfloat16" in fine.note
