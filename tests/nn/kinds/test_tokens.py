from __future__ import annotations

import pytest
import torch
from torch import nn

from tensorgrow.nn.compression.calibration import Metric, input_moments
from tensorgrow.nn.kinds.catalogue import known_kind
from tests.oracles import assert_close


def test_tokens_are_counted_and_those_unseen_share_what_good_and_turing_give_them():
    table = nn.Embedding(5, 3)
    found = input_moments(table, {"": table}, [torch.tensor([[0, 0], [1, 1]]), torch.tensor([2])])[""]
    share = 1 / 5  # one token of five was seen once
    expected = (1 - share) * torch.tensor([2, 2, 1, 0, 0]).double() / 5 + share / 5
    assert_close(found.moment, expected, 1e-12)
    assert found.mean is None
    metric = Metric.of(table, found)
    other = torch.randn(3, 5, dtype=torch.float64)
    weighted = (metric.weight - other) * expected.sqrt()
    assert metric.error(other) == pytest.approx(
        float(weighted.norm() / (metric.weight * expected.sqrt()).norm())
    )


def test_layouts_hold_every_token():
    table = nn.Embedding(1009, 48)
    kind = known_kind(table)
    assert kind.sizes(table) == (1009, 48)
    assert all(x.in_features >= 1009 and x.out_features == 48 for x in kind.layouts(table))
    assert len(kind.layouts(table)) == 3
    assert "max_norm" in kind.refusal(nn.Embedding(9, 4, max_norm=1.0))
