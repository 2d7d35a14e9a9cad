from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import GrowResult, Teacher, TNLinear, fine_tune
from tensorgrow.solvers import TrainingOptions
from tests.nn.growth.models import regression, same
from tests.oracles import assert_close

TRAINING = TrainingOptions(optimizer="adamw", learning_rate=2e-2, epochs=4, schedule="cosine", clip=1.0)


def model() -> nn.Module:
    torch.manual_seed(0)
    layer = TNLinear(
        16, 16, structure=tg.Structure((4,) * 4, {(0, 2): 3}), in_dims=(4, 4), out_dims=(4, 4), paired=False
    )
    return nn.Sequential(layer, nn.Dropout(0.1), nn.Linear(16, 16))


def tune(net: nn.Module | None = None, **options) -> GrowResult:
    train, validation = regression()
    settings = {"loss": F.mse_loss, "training": TRAINING, "batch_size": 50, "random_state": 1}
    return fine_tune(net or model(), train, validation, **(settings | options))


def test_every_epoch_is_a_step_and_the_best_wins():
    net = model()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    result = tune(net)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert [s.kind for s in result.history] == ["start", *["epoch"] * 4]
    assert result.stop is tg.StopReason.FINISHED
    assert result.validation_error < 0.7 * result.history[0].validation_error
    _, (x, y) = regression()
    assert abs(float(F.mse_loss(result.model.eval()(x), y).detach()) - result.validation_error) < 1e-6
    assert list(result.history[0].structures) == ["0"]


def test_it_is_the_plain_training_loop():
    """AdamW with a cosine over the epochs, on one batch: no order of the data can differ."""
    (x, y), validation = regression()
    net = model()[:1]
    result = fine_tune(net, (x, y), validation, loss=F.mse_loss, training=TRAINING, batch_size=len(x))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-2, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(4):
        optimizer.zero_grad()
        F.mse_loss(net(x), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert result.best.index == 4
    assert_close(result.model[0].weight, net[0].weight, 1e-5)


def test_a_teacher_shares_the_loss():
    """One step of plain gradients on one batch, beside the sum of both losses written out."""
    (x, y), validation = regression()
    net, master = model()[:1], nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.9)).train()
    training = TrainingOptions(optimizer="sgd", learning_rate=0.1, epochs=1)
    kept = {k: v.clone() for k, v in master.state_dict().items()}
    result = fine_tune(
        net,
        (x, y),
        validation,
        loss=F.mse_loss,
        teacher=Teacher(master, share=0.25),
        training=training,
        batch_size=len(x),
    )
    p = master[0](x).detach().softmax(-1)  # as in evaluation: without dropout
    out = net(x)
    divergence = (p * (p.log() - out.log_softmax(-1))).sum(-1).mean()
    (0.75 * F.mse_loss(out, y) + 0.25 * divergence).backward()
    moved = net[0].cores[0] - 0.1 * net[0].cores[0].grad
    assert result.best.index == 1
    assert_close(result.model[0].cores[0], moved, 1e-5)
    assert master.training and all(torch.equal(v, kept[k]) for k, v in master.state_dict().items())


def test_a_teacher_alone_is_learned_by_its_own_loss():
    (x, y), validation = regression()
    net, master = model()[:1], nn.Linear(16, 16)
    wanted = (validation[0], master(validation[0]).detach())
    teacher = Teacher(master, share=1.0, loss=F.mse_loss)
    training = TrainingOptions(optimizer="adamw", learning_rate=2e-2, epochs=6)
    result = fine_tune(net, (x, 100 * y), wanted, loss=F.mse_loss, teacher=teacher, training=training)
    assert result.validation_error < 0.8 * result.history[0].validation_error


def test_a_resumed_run_has_the_same_teacher(tmp_path):
    path = tmp_path / "tune.safetensors"
    teacher = Teacher(model(), loss=F.mse_loss)
    tune(checkpoint=path, teacher=teacher, callbacks=lambda step: step.index == 1)
    for other in (None, Teacher(model(), 0.1, F.mse_loss), Teacher(model(), loss=F.l1_loss)):
        with pytest.raises(tg.OptionError, match="belongs to another run"):
            tune(checkpoint=path, teacher=other)
    assert same(tune(checkpoint=path, teacher=teacher), tune(teacher=teacher))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"model": lambda x: x}, "model must be"),
        ({"share": 0.0}, "share must be above 0"),
        ({"share": 1.5}, "share must be above 0"),
        ({"loss": "kl"}, "loss must be a function"),
    ],
)
def test_teachers_that_cannot_teach_are_refused(options, match):
    with pytest.raises(tg.OptionError, match=match):
        Teacher(**{"model": nn.Linear(2, 2), **options})


def test_a_run_that_was_broken_off_ends_as_if_it_was_not(tmp_path):
    whole = tune()
    path = tmp_path / "tune.safetensors"
    stopped = tune(checkpoint=path, callbacks=lambda step: step.index == 2)
    assert stopped.stop is tg.StopReason.CALLBACK and len(stopped.history) == 3
    assert same(tune(checkpoint=path), whole)
    with pytest.raises(tg.OptionError, match="belongs to another run"):
        tune(checkpoint=path, epochs=9)


def test_interrupt_returns_the_best_so_far():
    def stop(step):
        if step.index == 1:
            raise KeyboardInterrupt

    result = tune(callbacks=stop)
    assert result.stop is tg.StopReason.INTERRUPTED
    assert len(result.history) == 2


def test_a_training_that_does_harm_returns_the_model_as_it_was():
    net = model()
    result = tune(net, training=TrainingOptions(optimizer="adam", learning_rate=3.0, epochs=1))
    assert result.best.kind == "start"
    assert all(torch.equal(v, result.model.state_dict()[k]) for k, v in net.state_dict().items())


def test_limits_and_frozen_parts():
    net = model()
    net[0].requires_grad_(False)
    result = tune(net, max_error=1e9)
    assert (result.stop, len(result.history)) == (tg.StopReason.TARGET_REACHED, 1)
    result = tune(net, epochs=2, score=lambda made, wanted: 1.0, patience=1)
    assert (result.stop, len(result.history)) == (tg.StopReason.VALIDATION, 2)
    assert torch.equal(result.model[0].weight, net[0].weight)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"patience": 0}, "patience=0"),
        ({"training": {"epochs": 3}}, "training must be TrainingOptions"),
        ({"training": TrainingOptions(average=0.9)}, "one epoch at a time"),
        ({"training": TrainingOptions(optimizer="lbfgs")}, "one epoch at a time"),
        ({"net": nn.Linear(16, 16).requires_grad_(False)}, "frozen"),
        ({"loss": "mse"}, "loss must be a function"),
        ({"teacher": nn.Linear(16, 16)}, "teacher must be"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_what_cannot_be_used_is_refused(options, match):
    with pytest.raises(tg.OptionError, match=match):
        tune(**options)


def test_gradients_are_taken_wherever_it_is_called():
    with torch.no_grad():
        tuned = tune()
        grown = tg.nn.grow(
            *(model(), *regression()),
            loss=F.mse_loss,
            candidates="gradient",
            max_steps=1,
            training=TRAINING,
            random_state=1,
        )
    assert tuned.history == tune().history or same(tuned, tune())
    assert len(grown.history) == 2
    with torch.inference_mode(), pytest.raises(tg.OptionError, match="inference_mode"):
        tune()
