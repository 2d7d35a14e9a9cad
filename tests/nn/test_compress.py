from __future__ import annotations

import dataclasses
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import Layout, TNLinear, compress, load_compressed
from tensorgrow.nn.compression import choices
from tensorgrow.nn.compression import compress as compressing
from tensorgrow.nn.compression.calibration import Metric, input_moments, shrunk
from tensorgrow.nn.compression.choices import Choice, allocate, default_layouts, pareto
from tests import oracles
from tests.oracles import assert_close


def planted(noise: float = 0.5) -> TNLinear:
    layer = TNLinear(64, 64, in_dims=(4,) * 3, out_dims=(4,) * 3, random_state=0)
    for edge in [(0, 1), (1, 2), (0, 1)]:
        layer.grow_edge(*edge, noise=noise, random_state=1)
    return layer


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(planted().to_linear(), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5))


FAST = {"min_size": 1000, "max_seconds": 3.0, "measure": False}
# Short without a limit of time, so that a busy machine changes nothing.
QUICK = {
    "min_size": 1000,
    "measure": False,
    "effort": "fast",
    "dims": {"0": ((64,), (8, 8)), "2": ((64,), (8, 6))},
    "paired": False,
}


def test_finds_a_planted_layer():
    model = small()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    result = compress(model, max_error=1e-5, layers=["0"], max_seconds=20)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    (layer,) = result.layers
    assert layer.kind == "network"
    assert layer.parameters_after <= planted().num_parameters
    assert layer.relative_error <= 1.1e-5
    x = torch.randn(7, 64)
    assert_close(result.model(x), model(x), 1e-4)
    assert layer.latency_after > 0
    assert "4,160 -> " in result.table()
    assert str(result.num_parameters) in repr(result).replace(",", "")


def test_layers_that_do_not_shrink_stay_dense():
    result = compress(small(), max_error=1e-3, layers=lambda name, layer: name == "2", **FAST)
    assert [r.kind for r in result.layers] == ["dense"]
    assert type(result.model[2]) is nn.Linear
    assert result.layers[0].relative_error == 0
    assert result.compression_ratio == 1


def test_every_layer_keeps_the_error_asked_for():
    result = compress(small(), max_error=0.3, **FAST)
    assert [r.name for r in result.layers] == ["0", "2"]
    assert all(r.relative_error <= 0.3 * (1 + 1e-5) for r in result.layers)
    assert result.num_parameters < result.parameters_before


@pytest.mark.parametrize("budget", [1500, 4000])
def test_the_budget_is_kept_and_used(budget):
    result = compress(small(), max_parameters=budget, **FAST)
    assert result.num_parameters <= budget
    assert result.num_parameters > 0.8 * budget
    assert result.num_parameters == sum(p.numel() for p in result.model.parameters())


def test_a_share_of_the_size():
    result = compress(small(), max_ratio=0.4, **FAST)
    assert result.num_parameters <= 0.4 * result.parameters_before


def test_calibration_beats_plain_weights_on_skewed_inputs():
    covariance = pytest.importorskip("sklearn.covariance")
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn(48, 48, generator=generator) * torch.logspace(0, -2, 48)
    x = torch.randn(600, 48, generator=generator) @ mix
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 64))
    budget = {"max_parameters": 1500, "layers": ["0"], "max_seconds": 4, "measure": False}
    plain = compress(model, **budget)
    weighted = compress(model, calibration=x[:400], **budget)
    want = model(x[400:])
    errors = [float((r.model(x[400:]) - want).detach().norm()) for r in (plain, weighted)]
    assert errors[1] < 0.5 * errors[0]
    (report,) = weighted.layers
    moment = covariance.oas(x[:400].numpy())[0]
    before, after = (oracles.to_numpy(m[0].weight) for m in (model, weighted.model))
    sizes = [float(np.trace(w @ moment @ w.T)) for w in (before - after, before)]
    assert report.weighted_error == pytest.approx((sizes[0] / sizes[1]) ** 0.5, rel=1e-3)
    assert plain.layers[0].weighted_error is None
    assert weighted.latency_before is None


def test_weighting_by_single_inputs_keeps_the_target_and_a_planted_structure():
    torch.manual_seed(0)
    x = torch.randn(300, 64) * torch.rand(64).square()
    model = planted().to_linear()
    result = compress(model, max_error=1e-4, calibration=[(x, None)], max_seconds=20, measure=False)
    (report,) = result.layers
    assert report.kind == "network"
    assert report.weighted_error <= 1.01e-4
    assert isinstance(result.model, TNLinear)


def test_saves_and_loads(tmp_path):
    model = small()
    x = torch.randn(50, 64) * torch.linspace(0.01, 1, 64)
    result = compress(model, max_parameters=2500, calibration=DataBatches(x), min_size=1000, max_seconds=3)
    result.save(tmp_path / "model.safetensors")
    loaded = load_compressed(tmp_path / "model.safetensors", small(1))
    assert torch.equal(loaded.model(x), result.model(x))
    assert loaded.layers == result.layers
    assert loaded.table() == result.table()
    assert result.latency_before > 0
    with pytest.raises(tg.OptionError, match="Give the model that was compressed"):
        load_compressed(tmp_path / "model.safetensors", nn.Sequential(nn.ReLU()))


class DataBatches(list):
    def __init__(self, x: torch.Tensor) -> None:
        super().__init__([(x[:20], None), (x[20:], None)])


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
        found = sum(p[k].error ** 2 for p, k in zip(paths, at))
        best = min(
            sum(p[k].error ** 2 for p, k in zip(paths, ks))
            for ks in product(range(5), repeat=3)
            if sum(p[k].num_parameters for p, k in zip(paths, ks)) <= budget
        )
        assert found == pytest.approx(best)
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


def test_moments_and_metric():
    covariance = pytest.importorskip("sklearn.covariance")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 4), nn.Linear(4, 3, bias=False))
    x = torch.randn(3, 2, 5) + 1.0
    found = input_moments(model, {"1": model[1], "2": model[2]}, [x[:1], x[1:]])
    flat = x.reshape(-1, 5).double()
    between = model[1](x.reshape(-1, 5)).detach().double()
    assert_close(found["1"].mean, flat.mean(0), 1e-12)
    assert found["2"].mean is None
    assert_close(found["1"].moment, covariance.oas(flat.numpy())[0], 1e-6)
    assert_close(found["2"].moment, covariance.oas(between.numpy(), assume_centered=True)[0], 1e-6)
    assert model.training
    with pytest.raises(tg.DataError, match="never reaches"):
        input_moments(model, {"other": nn.Linear(5, 4)}, [x])
    with pytest.raises(tg.DataError, match="same input always"):
        Metric(torch.ones(4, 5), torch.zeros(5, 5))


def test_many_rows_are_hardly_shrunk():
    moment = torch.diag(torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64))
    assert_close(shrunk(moment, 10**9), moment, 1e-6)
    assert_close(shrunk(moment, 1), 5 / 3 * torch.eye(3, dtype=torch.float64), 1e-12)


def test_a_small_calibration_set_does_no_harm():
    """Fewer rows than inputs: what the layer does elsewhere must not be thrown away, nor the mean be lost."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(64, 64, generator=generator) * torch.logspace(0, -1, 64)
    x = torch.randn(1020, 64, generator=generator) @ mix + 3.0
    torch.manual_seed(1)
    model = nn.Linear(64, 64)
    want = model(x[20:])
    for options in ({"max_seconds": 0}, {"max_seconds": 2, "dims": ((8, 8), (8, 8)), "paired": False}):
        budget = {"max_parameters": 1800, "measure": False, "min_size": 1, **options}
        plain = compress(model, **budget)
        weighted = compress(model, calibration=x[:20], **budget)
        errors = [float((r.model(x[20:]) - want).detach().norm()) for r in (plain, weighted)]
        assert errors[1] < 0.9 * errors[0]


def test_default_layouts():
    found = default_layouts(1024, 1024)
    assert Layout((4,) * 5, (4,) * 5) in found
    assert {x.paired for x in found} == {True, False}
    assert all(x.in_features == 10 and x.out_features == 7 for x in default_layouts(10, 7))


def test_without_memory_for_a_search_there_are_truncated_svds(monkeypatch):
    def refuse(*args, **options):
        raise tg.MemoryLimitError("no")

    monkeypatch.setattr(choices, "decompose", refuse)
    result = compress(small(), max_ratio=0.5, min_size=1000, measure=False)
    assert [r.kind for r in result.layers] == ["low rank", "low rank"]


def test_interrupt_ends_the_search_and_keeps_the_budget(monkeypatch):
    calls = []

    def interrupted(x, **options):
        calls.append(x)
        result = tg.decompose(x, max_steps=3)
        return dataclasses.replace(result, stop=tg.StopReason.INTERRUPTED)

    monkeypatch.setattr(choices, "decompose", interrupted)
    result = compress(small(), max_parameters=3000, min_size=1000, measure=False)
    assert len(calls) == 1
    assert result.num_parameters <= 3000


def test_ctrl_c_outside_of_a_decomposition_keeps_finished_layers(monkeypatch):
    model = small()
    whole = compress(model, max_parameters=3000, **QUICK)
    svds, calls = torch.linalg.svdvals, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return svds(*args)

    monkeypatch.setattr(torch.linalg, "svdvals", interrupted)
    found = []
    result = compress(model, max_parameters=3000, callbacks=found.append, **QUICK)
    assert result.num_parameters <= 3000
    assert result.info["interrupted"] and not whole.info["interrupted"]
    assert [s.is_complete for s in found] == [True, False]
    assert "network" in {kind for kind, _, _ in found[0].choices}
    assert {kind for kind, _, _ in found[1].choices} == {"low rank", "dense"}


def test_a_checkpoint_keeps_what_was_searched(tmp_path, monkeypatch):
    model, path = small(), tmp_path / "run.safetensors"
    x = torch.randn(80, 64, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.1, 1, 64)
    options = {"max_parameters": 2500, "calibration": x, "checkpoint": path, **QUICK}
    first = []
    stopped = compress(model, callbacks=lambda s: first.append(s) or True, **options)
    assert [s.name for s in first] == ["0", "2"]
    assert [s.is_complete for s in first] == [True, False]
    assert stopped.num_parameters <= 2500
    second = []
    whole = compress(model, callbacks=second.append, **options)
    assert [(s.name, s.index, s.count, s.is_complete) for s in second] == [("2", 1, 2, True)]

    def refuse(*args, **kwargs):
        raise AssertionError("searched again")

    monkeypatch.setattr(choices, "decompose", refuse)
    again = compress(model, **options)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), whole.model.parameters()))
    assert [r.parameters_after for r in again.layers] == [r.parameters_after for r in whole.layers]
    for other in ({"max_parameters": 2000}, {"calibration": 2 * x}, {"effort": "balanced"}):
        with pytest.raises(tg.OptionError, match="belongs to another run"):
            compress(model, **{**options, **other})


def test_progress_tells_of_batches_layers_and_networks(monkeypatch):
    told = []
    monkeypatch.setattr(compressing, "progress_callback", lambda progress: [object()])
    monkeypatch.setattr(
        compressing,
        "StatusLine",
        lambda: SimpleNamespace(start=lambda: None, say=told.append, stop=lambda: told.append("gone")),
    )
    compress(small(), max_parameters=3000, calibration=torch.randn(40, 64), **QUICK)
    assert told[0] == "calibration: batch 1"
    assert "0 (1 of 2): 64 to 64, truncated SVDs" in told
    assert any(t.startswith("2 (2 of 2): ") and "parameters, error" in t for t in told)
    assert told[-1] == "gone"


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


def test_what_was_frozen_stays_frozen_and_aliases_are_known(tmp_path):
    shared = planted().to_linear()
    shared.weight.requires_grad_(False)
    model = nn.ModuleDict({"a": shared, "b": shared})
    result = compress(model, max_error=1e-3, layers=["b"], **FAST)
    assert [r.name for r in result.layers] == ["a"]
    result.save(tmp_path / "model.safetensors")
    for found in (result.model, load_compressed(tmp_path / "model.safetensors", model).model):
        assert not any(c.requires_grad for c in found["b"].cores)
        assert found["b"].bias.requires_grad


def test_calibration_with_arrays_and_with_what_the_model_does_not_take():
    x = np.random.default_rng(0).standard_normal((60, 64))
    result = compress(small(), max_error=0.5, calibration=x, **QUICK)
    same = compress(small(), max_error=0.5, calibration=torch.from_numpy(x).float(), **QUICK)
    assert [r.weighted_error for r in result.layers] == [r.weighted_error for r in same.layers]
    with pytest.raises(tg.DataError, match="fails on calibration batch 2"):
        compress(small(), max_error=0.5, calibration=[x, x[:, 1:]])


def test_wrong_arguments_are_named():
    with pytest.raises(tg.OptionError, match="not among the layers"):
        compress(small(), max_error=0.1, dims={"nine": ((8, 8), (8, 8))}, **FAST)
    with pytest.raises(tg.OptionError, match="nothing says"):
        compress(small())
    with pytest.raises(tg.OptionError, match="it has \\['0', '2', '4'\\]"):
        compress(small(), max_error=0.1, layers=["9"])
    with pytest.raises(tg.OptionError, match="not to be compressed"):
        compress(small(), max_parameters=10, **FAST)
    with pytest.raises(tg.OptionError, match="smallest forms need"):
        compress(small(), max_parameters=400, **FAST)
    with pytest.raises(tg.OptionError, match="max_ratio"):
        compress(small(), max_ratio=2.0)
    broken = small()
    broken[0].weight.data[0, 0] = float("nan")
    with pytest.raises(tg.DataError, match="not finite"):
        compress(broken, max_error=0.1, **FAST)
