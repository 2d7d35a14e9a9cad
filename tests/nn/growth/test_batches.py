from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensorgrow.nn import grow
from tensorgrow.nn.growth.batches import as_batches, join
from tests.nn.growth.models import OPTIONS, model, regression


@pytest.mark.parametrize("loaded", ["first", "second", "both"])
def test_data_in_loaders_is_joined_one_after_the_other(loaded):
    pairs = [(torch.arange(6.0)[:, None] + 10 * k, torch.arange(6) + 10 * k) for k in range(2)]
    data = [
        DataLoader(TensorDataset(*pair), batch_size=4) if loaded in ("both", name) else pair
        for name, pair in zip(("first", "second"), pairs)
    ]
    kind = {"batch_size": 4, "device": torch.device("cpu"), "dtype": torch.float32}
    both = join(*(as_batches(d, "data", **kind) for d in data))
    targets = torch.cat([y for _, y in both.in_order()])
    assert torch.equal(targets, torch.cat([pair[1] for pair in pairs]))
    shuffled = torch.cat([y for _, y in both.shuffle(torch.Generator().manual_seed(0))])
    assert sorted(shuffled.tolist()) == sorted(targets.tolist())


def test_a_last_batch_of_one_row_joins_the_one_before():
    x, y = torch.arange(22.0)[:, None], torch.zeros(22)
    for size, sizes in ((7, [7, 7, 8]), (11, [11, 11]), (30, [22]), (1, [1] * 20 + [2])):
        batches = as_batches((x, y), "train_data", batch_size=size, device=x.device, dtype=x.dtype)
        parts = [len(a) for a, _ in batches.shuffle(torch.Generator().manual_seed(0))]
        assert parts == sizes
    train, validation = regression(51)
    options = {"loss": nn.functional.mse_loss, "training": OPTIONS, "batch_size": 50, "max_steps": 0}
    assert math.isfinite(grow(model(nn.BatchNorm1d(16)), train, validation, **options).validation_error)
