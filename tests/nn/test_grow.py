from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tensorgrow as tg
from tensorgrow.nn import GrowResult, TNLinear, grow, tn_layers
from tensorgrow.nn.growth import candidates as scoring
from tensorgrow.nn.growth.batches import as_batches, joined
from tensorgrow.nn.growth.trainer import Trainer, frozen
from tensorgrow.solvers import TrainingOptions, grown_state

OPTIONS = TrainingOptions(optimizer="adam", learning_rate=5e-2, epochs=20, candidate_epochs=5)
HIDDEN = tg.Structure((4,) * 4, {(0, 2): 3})


def regression(n: int = 300) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n + 100, 16, generator=generator)
    weight = tg.TensorNetwork.random(HIDDEN, random_state=0, dtype=torch.float32).to_dense().reshape(16, 16)
    y = x @ weight.T
    return (x[:n], y[:n]), (x[n:], y[n:])


def model(*more: nn.Module) -> nn.Module:
    layer = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), paired=False, random_state=0)
    return nn.Sequential(layer, *more)


def run(net: nn.Module | None = None, **options) -> GrowResult:
    train, validation = regression()
    settings = {
        "loss": nn.functional.mse_loss,
        "training": OPTIONS,
        "batch_size": 50,
        "random_state": 1,
        "max_steps": 2,
    }
    return grow(net or model(), train, validation, **(settings | options))


@pytest.fixture(scope="module")
def result() -> GrowResult:
    return run()


def test_finds_the_edge_that_matters(result):
    assert [s.edge for s in result.history] == [None, (0, 2), (0, 2)]
    assert result.history[-1].validation < 0.05 * result.history[0].validation
    assert result.stop is tg.StopReason.MAX_STEPS
    assert result.best is result.history[-1]
    for step in result.history:
        layer = step.structures["0"]
        assert step.num_parameters == layer.num_parameters + 16
        assert math.isfinite(step.train_loss)
    assert "2 growths" in repr(result)


def test_the_model_returned_is_the_one_measured(result):
    _, (x, y) = regression()
    with torch.no_grad():
        error = float(nn.functional.mse_loss(result.model(x), y))
    assert error == pytest.approx(result.validation, rel=1e-5)


def test_the_given_model_is_not_touched():
    net = model()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    run(net, max_steps=1)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert net[0].structure.num_parameters == 16


def same(a: GrowResult, b: GrowResult) -> bool:
    strip = {"seconds": 0.0}
    return [s.to_dict() | strip for s in a.history] == [s.to_dict() | strip for s in b.history] and all(
        torch.equal(v, b.model.state_dict()[k]) for k, v in a.model.state_dict().items()
    )


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


def test_the_final_training_uses_the_validation_data():
    options = {"max_steps": 1, "training": replace(OPTIONS, schedule="cosine")}
    chosen, final = run(**options), run(**options, final_epochs=20)
    assert final.history[-1].structures == chosen.history[-1].structures
    assert final.validation == chosen.validation  # of before
    assert (chosen.info["final_epochs"], final.info["final_epochs"]) == (0, 20)
    assert loss_on_all(final.model) < loss_on_all(chosen.model)
    assert loss_on_all(run(**options, final_epochs=20).model) == loss_on_all(final.model)


def test_a_final_training_that_does_harm_is_undone(result):
    # The fit is exact, and a constant rate of this size only shakes it.
    spoilt = run(final_epochs=3)
    for a, b in zip(result.model.parameters(), spoilt.model.parameters()):
        assert torch.equal(a, b)


@torch.no_grad()
def loss_on_all(net: nn.Module) -> float:
    return sum(len(x) * float(nn.functional.mse_loss(net(x), y)) for x, y in regression())


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


@pytest.mark.parametrize("loaded", ["first", "second", "both"])
def test_data_in_loaders_is_joined_one_after_the_other(loaded):
    pairs = [(torch.arange(6.0)[:, None] + 10 * k, torch.arange(6) + 10 * k) for k in range(2)]
    given = [
        DataLoader(TensorDataset(*pair), batch_size=4) if loaded in ("both", name) else pair
        for name, pair in zip(("first", "second"), pairs)
    ]
    made = {"batch_size": 4, "device": torch.device("cpu"), "dtype": torch.float32}
    both = joined(*(as_batches(d, "data", **made) for d in given))
    targets = torch.cat([y for _, y in both.in_order()])
    assert torch.equal(targets, torch.cat([pair[1] for pair in pairs]))
    drawn = torch.cat([y for _, y in both.shuffled(torch.Generator().manual_seed(0))])
    assert sorted(drawn.tolist()) == sorted(targets.tolist())


def test_saves_and_loads(result, tmp_path):
    result.save(tmp_path / "grown.safetensors")
    loaded = GrowResult.load(tmp_path / "grown.safetensors", model())
    assert same(loaded, result)
    assert loaded.stop is result.stop


def test_frozen_parts_get_no_gradients(monkeypatch):
    seen = []
    inner = Trainer._loss

    def spy(self, batch):
        value = inner(self, batch)
        layer = next(iter(tn_layers(self.model).values()))
        if layer._trial is not None:
            seen.append([n for n, p in self.model.named_parameters() if p.requires_grad])
        return value

    monkeypatch.setattr(Trainer, "_loss", spy)
    net = nn.Sequential(nn.Linear(16, 16), model()[0], nn.Linear(16, 16))
    result = run(net, max_steps=1)
    assert seen
    assert not any(seen)
    assert all(p.requires_grad for p in result.model.parameters())
    with frozen(net):
        assert not any(p.requires_grad for p in net.parameters())
    assert all(p.requires_grad for p in net.parameters())


def test_scoring_leaves_weights_and_running_statistics_alone():
    net = model(nn.BatchNorm1d(16))
    train, validation = regression()
    made = {"batch_size": 50, "device": torch.device("cpu"), "dtype": torch.float32}
    trainer = Trainer(
        net,
        as_batches(train, "a", **made),
        as_batches(validation, "b", **made),
        nn.functional.mse_loss,
        None,
        OPTIONS,
    )
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = scoring.best_candidate(
        trainer,
        tn_layers(net),
        [("0", (0, 1)), ("0", (0, 2))],
        seed=0,
        before=trainer.validate(),
        edge_score="per_parameter",
        noise=1e-2,
        deadline=math.inf,
    )
    assert found.edge == (0, 2)
    assert found.score > 0
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_optimiser_state_grows_with_the_core():
    before = tg.Structure((4, 4, 4), {(0, 1): 2})
    values = {
        "step": torch.tensor(7.0),
        "exp_avg": torch.ones(4, 2),
        "exp_avg_sq": torch.arange(8.0).reshape(4, 2),
    }
    wider = grown_state(values, before, 0, 1)
    assert wider["step"] == 7
    assert torch.equal(wider["exp_avg"], torch.tensor([[1.0, 1.0, 0.0]] * 4))
    assert torch.equal(wider["exp_avg_sq"][:, 2], torch.full((4,), 3.5))
    new = grown_state(values, before, 0, 2)
    assert new["exp_avg"].shape == (4, 2, 2)
    assert torch.equal(new["exp_avg"][..., 0], torch.ones(4, 2))
    assert not new["exp_avg"][..., 1].any()


def test_classification_on_datasets_and_loaders():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 16, generator=generator, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    net = model(nn.ReLU(), nn.Linear(16, 2))
    fast = TrainingOptions(optimizer="adam", learning_rate=3e-2, epochs=15, candidate_epochs=1)
    result = grow(
        net, (x.numpy(), y.numpy()), TensorDataset(x, y), training=fast, score="accuracy", max_steps=1
    )
    assert 0 <= result.validation <= 0.2
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


def test_frozen_layers_do_not_grow():
    net = nn.Sequential(model()[0], nn.ReLU(), model()[0])
    net[0].requires_grad_(False)
    before = [c.clone() for c in net[0].cores]
    found = run(net)
    assert {s.layer for s in found.history[1:]} == {"2"}
    assert all(torch.equal(a, b) for a, b in zip(before, found.model[0].cores))
    net.requires_grad_(False)
    with pytest.raises(tg.OptionError, match="frozen"):
        run(net)
    net[0].bias.requires_grad_(True)
    with pytest.raises(tg.OptionError, match="all cores of \\['0', '2'\\] are frozen"):
        run(net)


def test_layers_with_common_cores_are_refused_and_a_module_used_twice_is_not():
    layer = model()[0]
    other = model()[0]
    other.cores[1] = layer.cores[1]
    with pytest.raises(tg.OptionError, match="\\['0', '2'\\] have cores in common"):
        run(nn.Sequential(layer, nn.ReLU(), other))
    found = run(nn.Sequential(layer, nn.ReLU(), layer), max_steps=1)
    assert found.model[0] is found.model[2]
    assert found.num_parameters == found.model[0].num_parameters


def test_a_last_batch_of_one_row_joins_the_one_before():
    x, y = torch.arange(22.0)[:, None], torch.zeros(22)
    for size, sizes in ((7, [7, 7, 8]), (11, [11, 11]), (30, [22]), (1, [1] * 20 + [2])):
        batches = as_batches((x, y), "train_data", batch_size=size, device=x.device, dtype=x.dtype)
        parts = [len(a) for a, _ in batches.shuffled(torch.Generator().manual_seed(0))]
        assert parts == sizes
    train, validation = regression(51)
    options = {"loss": nn.functional.mse_loss, "training": OPTIONS, "batch_size": 50, "max_steps": 0}
    assert math.isfinite(grow(model(nn.BatchNorm1d(16)), train, validation, **options).validation)


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
