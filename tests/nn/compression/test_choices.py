from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import Layout, compress
from tensorgrow.nn.compression import choices
from tensorgrow.nn.compression.choices import Choice, allocate, default_layouts, pareto
from tests.nn.compression.models import small


def choice(size: int, error: float) -> Choice:
    return Choice("network", size, error)


def test_allocation_is_optimal_on_convex_paths():
    paths = [
        [choice(10 * (k + 1), (1.0 - k / 5) ** 1.5) for k in range(5)],
        [choice(10 * (k + 1), 0.8 * (1.0 - k / 5) ** 2) for k in range(5)],
        [choice(10 * (k + 1), 0.3 * (1.0 - k / 5)) for k in range(5)],
    ]
    for budget in (30, 60, 90, 110, 150):
        at = allocate(paths, budget)
        error = sum(p[k].error ** 2 for p, k in zip(paths, at))
        best = min(
            sum(p[k].error ** 2 for p, k in zip(paths, ks))
            for ks in product(range(5), repeat=3)
            if sum(p[k].num_parameters for p, k in zip(paths, ks)) <= budget
        )
        assert error == pytest.approx(best)
    assert allocate(paths, 29) is None


def test_allocation_uses_points_off_the_hull():
    path = [choice(10, 1.0), choice(40, 0.9), choice(100, 0.0)]
    assert allocate([path], 50) == [1]
    assert allocate([path], 100) == [2]
    assert [c.num_parameters for c in pareto([choice(5, 0.5), choice(4, 0.6), choice(6, 0.55)])] == [4, 5]


def test_low_rank_is_optimal_in_the_metric():
    covariance = pytest.importorskip("sklearn.covariance")
    torch.manual_seed(0)
    x = torch.randn(100, 12, dtype=torch.float64) @ torch.randn(12, 12, dtype=torch.float64)
    layer = nn.Linear(12, 10, dtype=torch.float64)
    result = compress(
        layer,
        max_parameters=22 * 3 + 10,
        dims=((12,), (10,)),
        calibration=x,
        max_seconds=0,
        measure=False,
        min_size=1,
    )
    root = torch.linalg.cholesky(torch.from_numpy(covariance.oas(x.numpy())[0]))
    s = torch.linalg.svdvals(layer.weight.detach() @ root)
    best = float((s[3:].square().sum() / s.square().sum()).sqrt())
    assert result.layers[0].weighted_error == pytest.approx(best, rel=1e-6)


def test_default_layouts():
    layouts = default_layouts(1024, 1024)
    assert Layout((4,) * 5, (4,) * 5) in layouts
    assert {x.paired for x in layouts} == {True, False}
    assert all(x.in_features == 10 and x.out_features == 7 for x in default_layouts(10, 7))


def test_without_memory_for_a_search_there_are_truncated_svds(monkeypatch):
    def refuse(*args, **options):
        raise tg.MemoryLimitError("no")

    monkeypatch.setattr(choices, "decompose", refuse)
    result = compress(small(), max_ratio=0.5, min_size=1000, measure=False)
    assert [r.kind for r in result.layers] == ["low rank", "low rank"]
