"""The trainer: optimisers, schedules, early stopping."""

import math

import pytest
import torch

import tensorgrow as tg
from tensorgrow.solvers import TrainingOptions, grow_state, train

DOUBLE = torch.float64


@pytest.mark.parametrize(
    "optimizer", ["adam", "adamw", "sgd", "lbfgs", lambda p: torch.optim.RMSprop(p, lr=0.1)]
)
def test_any_optimiser_solves_least_squares(optimizer):
    a = torch.randn(30, 5, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    y = torch.randn(30, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    exact = torch.linalg.lstsq(a, y).solution
    x = torch.zeros(5, dtype=DOUBLE, requires_grad=True)

    def loss(_):
        return ((a @ x - y) ** 2).mean()

    options = TrainingOptions(
        optimizer=optimizer,
        learning_rate=None if optimizer == "lbfgs" else 0.05,
        epochs=2000,
        tolerance=0.0,
        patience=2000,
        schedule="cosine",
    )
    done = train([x], lambda: (None,), loss, options, measure=lambda: float(loss(None).detach()), whole=True)
    assert float((x.detach() - exact).abs().max()) < (1e-5 if optimizer != "adamw" else 1e-2)
    assert done.measure == pytest.approx(float(loss(None).detach()))


def test_best_epoch_is_kept_and_training_stops_early():
    x = torch.zeros((), dtype=DOUBLE, requires_grad=True)
    seen = []

    def measure():
        seen.append(float(x.detach()))
        return abs(seen[-1] - 0.5)  # the loss wants 10, the validation 0.5

    done = train(
        [x],
        lambda: (None,),
        lambda _: (x - 10) ** 2,
        TrainingOptions(optimizer="sgd", learning_rate=1e-3, epochs=500, patience=5),
        measure=measure,
        whole=True,
    )
    assert done.epochs < 100
    assert abs(float(x.detach()) - 0.5) == min(abs(v - 0.5) for v in seen)


def test_the_running_mean_of_the_parameters_is_measured_and_kept():
    x = torch.tensor([4.0], requires_grad=True)
    plain = torch.tensor([4.0], requires_grad=True)
    seen = []

    def measure():
        seen.append(float(x.detach()))
        return abs(seen[-1])

    def loss_of(value):
        return (value - 1.0).square().sum()

    steps, share = 3, 0.8
    options = TrainingOptions(optimizer="sgd", learning_rate=0.1, average=share, epochs=4, patience=9)
    done = train([x], lambda: range(steps), lambda _: loss_of(x), options, measure=measure)
    optimizer = torch.optim.SGD([plain], lr=0.1, momentum=0.9)
    mean, wanted, count = 4.0, [4.0], 0
    for _ in range(4):
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(plain).backward()
            optimizer.step()
            count += 1
            kept = min(share, count / (count + 9))
            mean = kept * mean + (1.0 - kept) * float(plain.detach())
        wanted.append(mean)
    assert seen == pytest.approx(wanted, rel=1e-5)
    assert done.measure == min(map(abs, seen))
    assert abs(float(x.detach())) == pytest.approx(done.measure)


def test_gradients_are_clipped_and_schedules_are_stepped():
    x = torch.zeros(3, dtype=DOUBLE, requires_grad=True)
    rates = []

    def schedule(optimizer):
        made = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        rates.append(made)
        return made

    options = TrainingOptions(optimizer="sgd", learning_rate=1.0, epochs=1, clip=0.5, schedule=schedule)
    train([x], lambda: (None,), lambda _: 1e6 * x.sum(), options, measure=None)
    assert float(torch.linalg.vector_norm(x.detach())) == pytest.approx(0.5)
    assert rates[0].get_last_lr() == [0.5]


def test_a_loss_that_is_never_finite_is_refused():
    x = torch.zeros(2, requires_grad=True)
    with pytest.raises(tg.DataError, match="not finite"):
        train([x], lambda: (None,), lambda _: x.sum() * math.nan, TrainingOptions(epochs=2), measure=None)


def test_divergence_returns_to_the_best_epoch():
    x = torch.ones((), dtype=DOUBLE, requires_grad=True)
    options = TrainingOptions(optimizer="sgd", learning_rate=1e3, epochs=50)
    done = train(
        [x], lambda: (None,), lambda _: x**4, options, measure=lambda: float(x.detach() ** 4), whole=True
    )
    assert float(x.detach()) == 1.0 and done.measure == 1.0


@pytest.mark.parametrize(
    "bad",
    [
        {"optimizer": "newton"},
        {"schedule": "steps"},
        {"epochs": 0},
        {"learning_rate": -1.0},
        {"clip": 0.0},
        {"weight_decay": -1.0},
        {"average": 1.0},
        {"average": -0.1},
        {"tolerance": math.nan},
    ],
)
def test_bad_training_options_are_refused(bad):
    with pytest.raises(tg.OptionError, match=next(iter(bad))):
        TrainingOptions(**bad)


def test_a_plateau_schedule_sees_the_measure():
    """With no gain from the second epoch on, the rate is halved every other epoch."""
    x = torch.ones((), dtype=DOUBLE, requires_grad=True)
    rates = []

    def plateau(optimizer):
        made = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        rates.append(lambda: optimizer.param_groups[0]["lr"])
        return made

    options = TrainingOptions(optimizer="sgd", learning_rate=0.1, epochs=7, patience=9, schedule=plateau)
    train([x], lambda: (None,), lambda _: x**2, options, measure=lambda: 1.0)
    assert rates[0]() == pytest.approx(0.1 / 2**3)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_lbfgs_minimises_a_loss_of_any_size(unit):
    a = torch.randn(30, 5, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    y = torch.randn(30, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    exact = torch.linalg.lstsq(a, y).solution
    x = torch.zeros(5, dtype=DOUBLE, requires_grad=True)

    def loss(_):
        return unit * ((a @ x - y) ** 2).mean()

    def measure():
        return float(loss(None).detach())

    options = TrainingOptions(optimizer="lbfgs", epochs=30, tolerance=0.0, patience=30)
    done = train([x], lambda: (None,), loss, options, measure=measure, whole=True)
    assert float((x.detach() - exact).abs().max()) < 1e-4
    assert done.measure == measure() <= done.loss <= unit * float((y**2).mean()) * (1 + 1e-12)


def test_optimiser_state_grows_with_the_core():
    before = tg.Structure((4, 4, 4), {(0, 1): 2})
    values = {
        "step": torch.tensor(7.0),
        "exp_avg": torch.ones(4, 2),
        "exp_avg_sq": torch.arange(8.0).reshape(4, 2),
    }
    wider = grow_state(values, before, 0, 1)
    assert wider["step"] == 7
    assert torch.equal(wider["exp_avg"], torch.tensor([[1.0, 1.0, 0.0]] * 4))
    assert torch.equal(wider["exp_avg_sq"][:, 2], torch.full((4,), 3.5))
    new = grow_state(values, before, 0, 2)
    assert new["exp_avg"].shape == (4, 2, 2)
    assert torch.equal(new["exp_avg"][..., 0], torch.ones(4, 2))
    assert not new["exp_avg"][..., 1].any()
