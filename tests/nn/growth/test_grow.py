from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensorgrow as tg
from tensorgrow.nn import GrowResult, TNLinear, grow
from tensorgrow.nn.growth.trainer import Trainer
from tensorgrow.solvers import TrainingOptions
from tests.nn.growth.models import OPTIONS, model, regression, run, same


@torch.no_grad()
def loss_on_all(net: nn.Module) -> float:
    return sum(len(x) * float(nn.functional.mse_loss(net(x), y)) for x, y in regression())


@pytest.fixture(scope="module")
def result() -> GrowResult:
    return run()


def test_finds_the_edge_that_matters(result):
    assert [s.edge for s in result.history] == [None, (0, 2), (0, 2)]
    assert result.history[-1].validation_error < 0.05 * result.history[0].validation_error
    assert result.stop is tg.StopReason.MAX_STEPS
    assert result.best is result.history[-1]
    for step in result.history:
        layer = step.structures["0"]
        assert step.num_parameters == layer.num_parameters + 16
        assert math.isfinite(step.loss)
    assert "2 growths" in repr(result)


def test_the_model_returned_is_the_one_measured(result):
    _, (x, y) = regression()
    with torch.no_grad():
        error = float(nn.functional.mse_loss(result.model(x), y))
    assert error == pytest.approx(result.validation_error, rel=1e-5)


def test_the_given_model_is_not_touched():
    net = model()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    run(net, max_steps=1)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert net[0].structure.num_parameters == 16


def test_one_seed_one_result(result):
    torch.manual_seed(99)
    assert same(run(), result)


def test_resumes_to_the_same_result_with_dropout(tmp_path):
    net = model(nn.Dropout(0.3), nn.BatchNorm1d(16))
    whole = run(net, max_steps=2)
    file = tmp_path / "run.safetensors"
    run(net, max_steps=1, checkpoint=file)
    assert same(run(net, max_steps=2, checkpoint=file), whole)
    with pytest.raises(tg.OptionError, match="another run"):
        run(net, max_steps=2, checkpoint=file, noise=0.5)
    with pytest.raises(tg.OptionError, match="another run: its loss"):
        run(net, max_steps=2, checkpoint=file, loss=nn.functional.l1_loss)


def test_the_final_training_uses_the_validation_data():
    options = {"max_steps": 1, "training": replace(OPTIONS, schedule="cosine")}
    plain, final = run(**options), run(**options, final_epochs=20)
    assert final.history[-1].structures == plain.history[-1].structures
    assert final.validation_error == plain.validation_error  # measured before it
    assert (plain.info["final_epochs"], final.info["final_epochs"]) == (0, 20)
    assert loss_on_all(final.model) < loss_on_all(plain.model)
    assert loss_on_all(run(**options, final_epochs=20).model) == loss_on_all(final.model)


def test_a_final_training_that_does_harm_is_undone(result):
    # The fit is exact, and a constant rate of this size only shakes it.
    spoilt = run(final_epochs=3)
    for a, b in zip(result.model.parameters(), spoilt.model.parameters()):
        assert torch.equal(a, b)


def test_an_interrupt_in_the_final_training_leaves_the_chosen_model(result, monkeypatch):
    def interrupted(self, seed, **more):
        with torch.no_grad():
            for p in self.model.parameters():
                p.zero_()
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "fit_to_all", interrupted)
    broken = run(final_epochs=3)
    assert broken.stop == tg.StopReason.INTERRUPTED
    for a, b in zip(result.model.parameters(), broken.model.parameters()):
        torch.testing.assert_close(a, b)


def test_saves_and_loads(result, tmp_path):
    result.save(tmp_path / "grown.safetensors")
    loaded = GrowResult.load(tmp_path / "grown.safetensors", model())
    assert same(loaded, result)
    assert loaded.stop is result.stop
    assert same(tg.load(tmp_path / "grown.safetensors", model()), result)
    with pytest.raises(tg.OptionError, match=r"load\(path, model\)"):
        tg.load(tmp_path / "grown.safetensors")


def test_classification_on_datasets_and_loaders():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 16, generator=generator, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    net = model(nn.ReLU(), nn.Linear(16, 2))
    fast = TrainingOptions(optimizer="adam", learning_rate=3e-2, epochs=15, candidate_epochs=1)
    result = grow(
        net, (x.numpy(), y.numpy()), TensorDataset(x, y), training=fast, score="accuracy", max_steps=1
    )
    assert 0 <= result.validation_error <= 0.2
    loader = DataLoader(TensorDataset(x.float(), y), batch_size=64)
    again = grow(net, loader, loader, training=fast, edges="chain", max_steps=1)
    assert again.history[1].edge in {(0, 1), (1, 2), (2, 3)}


def test_a_loader_that_shuffles_is_seeded_too():
    train, validation = regression(100)
    loader = DataLoader(TensorDataset(*train), batch_size=20, shuffle=True)
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        options = {"loss": nn.functional.mse_loss, "max_steps": 0, "random_state": 5}
        results.append(grow(model(), loader, validation, training=OPTIONS, **options))
    assert same(*results)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"max_parameters": 40, "max_steps": None}, tg.StopReason.MAX_PARAMETERS),
        ({"max_error": 1e9}, tg.StopReason.TARGET_REACHED),
        ({"max_seconds": 0.0, "max_steps": None}, tg.StopReason.MAX_SECONDS),
        ({"callbacks": lambda step: step.index == 1}, tg.StopReason.CALLBACK),
        ({"patience": 2, "score": lambda made, wanted: 1.0, "max_steps": 9}, tg.StopReason.VALIDATION),
    ],
)
def test_stops(options, reason):
    short = TrainingOptions(optimizer="adam", learning_rate=2e-2, epochs=4, candidate_epochs=1)
    result = run(training=short, **options)
    assert result.stop is reason
    assert result.num_parameters <= options.get("max_parameters", math.inf)


def test_interrupt_returns_the_best_so_far():
    def stop(step):
        raise KeyboardInterrupt

    result = run(callbacks=stop)
    assert result.stop is tg.StopReason.INTERRUPTED
    assert len(result.history) == 1


def test_saturated_edges_stop_the_run():
    layer = TNLinear(4, 4, in_dims=(2, 2), out_dims=(2, 2), random_state=0)
    x = torch.randn(40, 4)
    short = TrainingOptions(optimizer="adam", epochs=1, candidate_epochs=1)
    result = grow(layer, (x, x), (x, x), loss=nn.functional.mse_loss, training=short, patience=None)
    assert result.stop is tg.StopReason.SATURATED
    assert result.history[-1].structures[""].rank(0, 1) == 4
    assert result.history[1].layer == ""


def test_wrong_arguments_are_named():
    train, validation = regression()
    with pytest.raises(tg.OptionError, match="no TNLinear"):
        grow(nn.Linear(16, 16), train, validation)
    with pytest.raises(tg.OptionError, match="it has \\['0'\\]"):
        run(layers=["1"])
    with pytest.raises(tg.DataError, match="300 inputs and 299 targets"):
        grow(model(), (train[0], train[1][:-1]), validation)
    with pytest.raises(tg.DataError, match="not finite"):
        grow(model(), (train[0] / 0, train[1]), validation)
    with pytest.raises(tg.OptionError, match="score"):
        run(score="best")
    with pytest.raises(tg.OptionError, match="patience"):
        run(patience=0)
    with pytest.raises(tg.OptionError, match="max_parameters"):
        run(max_parameters=3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"final_epochs": -1}, "final_epochs=-1"),
        ({"final_epochs": 2.5}, "final_epochs=2.5"),
        ({"loss": "mse"}, "loss must be a function"),
        ({"loss": lambda made, wanted: made}, "one real number"),
        ({"loss": lambda made, wanted: made.detach().sum()}, "does not depend on what is trained"),
        ({"score": lambda made, wanted: None}, "a score must be one real number"),
        ({"training": {"epochs": 3}}, "training must be TrainingOptions"),
        ({"patience": "long"}, "patience='long'"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"noise": 0}, "noise=0"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        run(**options)


def test_options_replace_keywords(result):
    options = tg.GreedyOptions(edge_score="drop", patience=5)
    assert same(run(options=options), result)
    function = tg.GreedyOptions(edge_score=lambda before, after, added: before - after, patience=5)
    assert same(run(options=function), result)


def test_options_of_the_growth():
    wide = run(options=tg.GreedyOptions(edge_score="drop", rank_increment=2), max_steps=1)
    assert wide.history[1].structures["0"].rank(0, 2) == 3
    tight = {"max_parameters": 16 + 16 + 8 + 1}  # one rank fits, two do not
    narrow = run(options=tg.GreedyOptions(edge_score="drop", rank_increment=3), max_steps=1, **tight)
    assert narrow.num_parameters <= tight["max_parameters"]
    path = run(options=tg.GreedyOptions(max_degree=1), max_steps=3)
    assert max(map(len, path.history[-1].structures["0"].neighbours)) == 1
    fresh = run(options=tg.GreedyOptions(edge_score="drop", transfer=False), max_steps=1)
    assert fresh.history[1].edge == (0, 2)
    assert not same(fresh, run(max_steps=1))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"noise": 0.1}, "noise=0.1 in options or as a keyword"),
        (
            {"edge_score": "per_parameter", "patience": None},
            "edge_score='per_parameter', patience=None in opt",
        ),
        ({"options": tg.GreedyOptions(sweeps=7)}, "nn.grow ignores sweeps=7"),
        ({"options": {"patience": 2}}, "options must be GreedyOptions, not dict"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, match):
    with pytest.raises(tg.OptionError, match=match):
        run(**({"options": tg.GreedyOptions()} | options))
