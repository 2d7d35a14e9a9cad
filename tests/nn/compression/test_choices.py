from __future__ import annotations

import re
from itertools import product

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import Layout, compress, load_compressed
from tensorgrow.nn.compression import choices
from tensorgrow.nn.compression.choices import Choice, allocate, pareto
from tensorgrow.nn.kinds.linear import default_layouts
from tensorgrow.nn.layer.linear import LinearApplication
from tensorgrow.nn.layer.schedules import estimate, estimate_dense
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


def wide_model() -> nn.Module:
    """Two layers of rank one: 24 x 24, faster as it is, and 256 x 256, faster as a product."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 256), nn.Linear(256, 256))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight.copy_(torch.outer(torch.randn(layer.out_features), torch.randn(layer.in_features)))
    return model


def test_a_layer_that_would_get_slower_is_left_alone_and_named():
    options = {
        "layers": ["0", "2"],
        "measure": False,
        "max_error": 1e-3,
        "effort": "fast",
    }
    result = compress(wide_model(), **options)
    small, large = result.layers
    assert type(result.model[0]) is nn.Linear and small.kind == "dense"
    assert re.fullmatch(r"a (network|low rank) form of \d+ parameters would be slower", small.note)
    assert f"0      dense ({small.note})" in result.table()
    assert large.kind != "dense" and not large.note
    both = compress(wide_model(), allow_slower=True, **options)
    assert both.layers[0].kind != "dense" and both.layers[0].note == "slower"
    assert "(slower)" in both.table()
    budget = compress(wide_model(), **{**options, "max_error": None, "max_ratio": 0.1})  # has to be met
    assert budget.num_parameters <= 0.1 * budget.parameters_before


def test_the_notes_are_in_the_file(tmp_path):
    model = wide_model()
    result = compress(model, max_error=1e-3, layers=["0"], effort="fast", measure=False)
    result.save(tmp_path / "model.safetensors")
    assert load_compressed(tmp_path / "model.safetensors", model).layers == result.layers


@pytest.mark.parametrize("size", [64, 512])
def test_estimates_count_the_work_and_the_memory(size):
    like, layout = torch.zeros(1), Layout((size,), (size,), paired=False)
    how = LinearApplication()
    dense = estimate_dense(how, (size, size), 32, like)
    thin, thick = (
        estimate(how, layout, tg.Structure((size, size), {(0, 1): r}), 32, like) for r in (1, size)
    )
    assert thin[0] < thick[0] and thin[1] < thick[1]
    assert thick[0] > dense[0] and thick[1] > dense[1]
    assert dense[1] == size * size + 2 * 32 * size
