from __future__ import annotations

import dataclasses
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.callbacks import progress
from tensorgrow.nn import compress
from tensorgrow.nn.compression import choices
from tests.callbacks.test_trackers import Recorder
from tests.nn.compression.models import FAST, QUICK, planted, small
from tests.oracles import assert_close


def test_finds_a_planted_layer():
    model = small()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    result = compress(model, max_error=1e-5, layers=["0"], effort="fast", allow_slower=True)
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


def test_interrupt_ends_the_search_and_keeps_the_budget(monkeypatch):
    calls = []

    def interrupt(x, **options):
        calls.append(x)
        result = tg.decompose(x, max_steps=3)
        return dataclasses.replace(result, stop=tg.StopReason.INTERRUPTED)

    monkeypatch.setattr(choices, "decompose", interrupt)
    result = compress(small(), max_parameters=3000, min_size=1000, measure=False)
    assert len(calls) == 1
    assert result.num_parameters <= 3000


def test_ctrl_c_outside_of_a_decomposition_keeps_finished_layers(monkeypatch):
    model = small()
    whole = compress(model, max_parameters=3000, **QUICK)
    svds, calls = torch.linalg.svdvals, []

    def interrupt(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return svds(*args)

    monkeypatch.setattr(torch.linalg, "svdvals", interrupt)
    steps = []
    result = compress(model, max_parameters=3000, callbacks=steps.append, **QUICK)
    assert result.num_parameters <= 3000
    assert result.info["interrupted"] and not whole.info["interrupted"]
    assert [s.is_complete for s in steps] == [True, False]
    assert "network" in {kind for kind, _, _ in steps[0].choices}
    assert {kind for kind, _, _ in steps[1].choices} == {"low rank", "dense"}


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

    class Line:
        @contextmanager
        def showing(self):
            yield
            told.append("gone")

        def say(self, text):
            told.append(text)

    monkeypatch.setattr(progress, "ProgressBar", Line)
    compress(small(), max_parameters=3000, calibration=torch.randn(40, 64), progress=True, **QUICK)
    assert told[0] == "calibration: batch 1"
    assert "0 (1 of 2): 64 to 64, truncated SVDs" in told
    assert any(t.startswith("2 (2 of 2): ") and "parameters, error" in t for t in told)
    assert told[-1] == "gone"


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


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_ratio": "half", "max_error": None}, "max_ratio='half' must be a positive number"),
        ({"max_ratio": True, "max_error": None}, "max_ratio=True must be a positive number"),
        ({"min_size": "all"}, "min_size='all' must be a whole number"),
        ({"layers": 3}, "layers must be names, a function of name and layer, or None; not 3"),
        ({"dims": 8}, r"dims must be digits \(in_dims, out_dims\)"),
        ({"dims": ((8, 8),)}, r"dims must be digits \(in_dims, out_dims\)"),
        ({"dims": {"0": 8}}, r"dims must be digits \(in_dims, out_dims\)"),
        ({"paired": "yes"}, "paired must be a bool, not str"),
    ],
)
def test_arguments_of_another_type_are_named(options, match):
    with pytest.raises(tg.OptionError, match=match):
        compress(small(), **{**FAST, "max_error": 0.1, **options})


@pytest.mark.parametrize(("stops", "reason"), [(False, "FINISHED"), (True, "CALLBACK")])
def test_trackers_hear_of_every_layer(stops, reason, monkeypatch):
    recorder = Recorder(active=True)
    monkeypatch.setitem(sys.modules, "mlflow", recorder)
    records = []
    listeners = [lambda record: records.append(record) or stops, tg.tracking.MLflow()]
    result = compress(small(), max_parameters=3000, callbacks=listeners, max_seconds=300, **QUICK)
    metrics = [(values["num_parameters"], step) for name, values, step in recorder.calls if step is not None]
    assert metrics == [(r.choices[0][1], r.index) for r in records]
    assert [r.kind for r in records] == ["layer", "layer"]
    assert records[0].seconds < records[1].seconds
    assert recorder.calls[-1][1]["tensorgrow.stop"] == reason
    assert result.info["interrupted"] == stops
