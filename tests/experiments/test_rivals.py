"""Rivals of compressed layers: sizes within the budget, and what they promise."""

from __future__ import annotations

import torch
from benchmarks.factorised import tensor_trains, whitened_svds
from benchmarks.mnist import epochs_within
from torch import nn

from tests.oracles import assert_close


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16)).double()


def test_whitened_svds_are_the_best_of_their_rank_for_the_inputs():
    net, x = model(), torch.randn(4000, 32, dtype=torch.float64) * torch.linspace(0.1, 2, 32).double()
    small = whitened_svds(net, ["0"], 1700, x)
    assert sum(p.numel() for p in small.parameters()) <= 1700
    rank = small[0][0].out_features
    outputs, made = x @ net[0].weight.T, x @ (small[0][1].weight @ small[0][0].weight).T
    tail = torch.linalg.svdvals(outputs)[rank:].square().sum()
    # The moment is shrunk a little, as there are few rows.
    assert tail <= (outputs - made).square().sum() < 1.02 * tail


def test_tensor_trains_are_exact_where_the_budget_allows():
    net, x = model(), torch.randn(5, 32, dtype=torch.float64)
    small = tensor_trains(net, ["0", "2"], 1500)
    assert sum(p.numel() for p in small.parameters()) <= 1500
    assert_close(tensor_trains(net, ["0", "2"], 1_000_000)(x), net(x), 1e-10)


def test_epochs_of_a_grown_model_within_a_size():
    points = [{"parameters": n, "epochs": 7} for n in (10, 20, 30)]
    assert epochs_within({"params": {"epochs": 50}, "points": points}, 25) == 14
    assert epochs_within({"params": {"epochs": 50}, "points": [{"parameters": 10}]}, 25) == 50
    assert epochs_within({"params": {"epochs": 50}, "points": points}, 5) == 50
