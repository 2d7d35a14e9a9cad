from __future__ import annotations

import pytest
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNLinear, compress
from tests.nn.compression.models import FAST, planted


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


def test_budgets_count_weights_that_stay_because_others_use_them():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(64, 64), nn.Linear(64, 64, bias=False)
            self.head.weight = self.table.weight

    with pytest.raises(tg.OptionError, match="other modules use too"):
        compress(Tied(), max_ratio=0.5, layers=["head"], **FAST)
    twice = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    twice[1].weight = twice[0].weight
    result = compress(twice, max_ratio=0.5, layers=["0", "1"], **{**FAST, "max_seconds": 0.5})
    assert result.num_parameters <= 0.5 * result.parameters_before
