"""Growth under any differentiable loss, and the trainer below it."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.objectives import LossFunction
from tensorgrow.search.gradient import LearningSearch, _grown_moments
from tensorgrow.solvers import TrainingOptions, train
from tensorgrow.structure import Structure

DOUBLE = torch.float64


def target(structure=None, seed=1):
    structure = structure or Structure((4,) * 4, {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2})
    x = tg.TensorNetwork.random(structure, random_state=seed).to_dense()
    return x / x.square().mean().sqrt()


def squared_error(x):
    return lambda network: ((network.to_dense() - x) ** 2).mean()


# -- the trainer ---------------------------------------------------------------------------------------


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


# -- optimiser state -----------------------------------------------------------------------------------


def test_moments_grow_with_the_cores():
    structure = Structure((2, 3, 4), {(0, 1): 2})
    shapes = structure.core_shapes
    moments = [
        {"exp_avg": torch.full(s, 1.0), "exp_avg_sq": torch.full(s, 4.0), "step": torch.tensor(7.0)}
        for s in shapes
    ]
    grown = _grown_moments(structure, moments, 1, 2)
    after = structure.with_rank(1, 2, 2)
    for k, memory in enumerate(grown):
        assert tuple(memory["exp_avg"].shape) == after.core_shape(k)
        assert float(memory["step"]) == 7.0
        assert bool((memory["exp_avg_sq"] == 4.0).all())
    assert float(grown[2]["exp_avg"].sum()) == 4.0  # old ones, and zeros for the new slice
    assert float(moments[2]["exp_avg"].sum()) == 4.0 and tuple(moments[2]["exp_avg"].shape) == shapes[2]
    assert _grown_moments(structure, [{}, {}, {}], 0, 1) == [{}, {}, {}]
    assert _grown_moments(structure, [], 0, 1) == []


def test_only_new_slices_get_gradients_while_an_edge_is_tried(monkeypatch):
    x = target()
    seen = []

    def loss(network):
        seen.append([c.requires_grad and c.is_leaf for c in network.cores])
        return ((network.to_dense() - x) ** 2).mean()

    init = tg.TensorNetwork.random(Structure.rank_one(x.shape), random_state=0)
    problem_runs = tg.learn(loss, x.shape, max_steps=0, init=init, dtype=DOUBLE, random_state=0)
    assert any(all(flags) for flags in seen)
    seen.clear()
    found = []
    original = LearningSearch._try

    def spy(self, fitted, edge, *more):
        seen.clear()
        out = original(self, fitted, edge, *more)
        found.append((edge, list(seen)))
        return out

    monkeypatch.setattr(LearningSearch, "_try", spy)
    tg.learn(loss, x.shape, max_steps=1, init=problem_runs.network, dtype=DOUBLE, random_state=0)
    assert len(found) == 6
    for _, flags in found:
        assert flags and not any(
            any(f) for f in flags
        )  # no core is a leaf: slices are joined to frozen cores


# -- learn ---------------------------------------------------------------------------------------------


def test_a_ring_is_found_by_gradients():
    x = target()
    result = tg.learn(squared_error(x), x.shape, max_error=1e-7, dtype=DOUBLE, random_state=0)
    assert result.stop is tg.StopReason.TARGET_REACHED
    assert result.relative_error <= 1e-7
    assert result.num_parameters <= 1.5 * 64
    assert [s.kind for s in result.history] == ["start"] + ["grow"] * (len(result.history) - 1)
    assert result.history[-1].loss == pytest.approx(result.relative_error)
    assert float(squared_error(x)(result.network)) == pytest.approx(result.relative_error)
    assert not any(c.requires_grad for c in result.network.cores)


def test_weight_transfer_keeps_what_was_learned():
    x = target()
    losses = [
        s.loss for s in tg.learn(squared_error(x), x.shape, max_steps=3, dtype=DOUBLE, random_state=0).history
    ]
    assert all(b < a for a, b in pairwise(losses))


def test_batches_and_validation():
    x = target(Structure((5, 5, 5), {(0, 1): 2, (1, 2): 2}))
    rng = np.random.default_rng(0)
    where = torch.from_numpy(np.stack(np.unravel_index(rng.permutation(x.numel()), x.shape), 1))
    y = x[tuple(where.T)]
    batches = [(where[a : a + 20], y[a : a + 20]) for a in range(0, 100, 20)]

    def loss(network, batch):
        return ((network.entries(batch[0]) - batch[1]) ** 2).mean()

    def score(network):
        return ((network.entries(where[100:]) - y[100:]) ** 2).mean()

    result = tg.learn(
        loss,
        x.shape,
        batches=batches,
        validation=score,
        max_parameters=60,
        dtype=DOUBLE,
        random_state=0,
        training=TrainingOptions(learning_rate=0.03),
    )
    assert result.validation_error == pytest.approx(float(score(result.network)))
    assert result.validation_error == min(s.validation_error for s in result.history)
    assert result.validation_error < 0.3 * float((y[100:] ** 2).mean())
    assert result.num_parameters <= 60


def test_the_loss_may_be_negative():
    x = target(Structure.rank_one((3, 4)))
    result = tg.learn(
        lambda network: -torch.exp(-((network.to_dense() - x) ** 2).mean()),
        x.shape,
        max_error=-0.999,
        dtype=DOUBLE,
        random_state=0,
    )
    assert result.stop is tg.StopReason.TARGET_REACHED and result.relative_error <= -0.999


def test_one_seed_gives_one_run_and_edges_are_respected():
    x = target()
    runs = [
        tg.learn(squared_error(x), x.shape, max_steps=2, edges="chain", dtype=DOUBLE, random_state=3)
        for _ in range(2)
    ]
    assert runs[0].structure == runs[1].structure
    assert all(torch.equal(a, b) for a, b in zip(runs[0].network.cores, runs[1].network.cores))
    assert set(runs[0].structure.ranks) <= {(0, 1), (1, 2), (2, 3)}


@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_resumed_runs_take_the_same_steps(tmp_path, optimizer):
    x = target()
    training = TrainingOptions(optimizer=optimizer, epochs=30)
    keywords = {"dtype": DOUBLE, "random_state": 0, "training": training}
    whole = tg.learn(squared_error(x), x.shape, max_steps=3, **keywords)
    file = tmp_path / "learn.ckpt"
    tg.learn(squared_error(x), x.shape, max_steps=1, checkpoint=file, **keywords)
    resumed = tg.learn(squared_error(x), x.shape, max_steps=3, checkpoint=file, **keywords)
    assert [s.edge for s in resumed.history] == [s.edge for s in whole.history]
    assert all(torch.equal(a, b) for a, b in zip(whole.network.cores, resumed.network.cores))


def test_results_are_saved_and_callbacks_stop(tmp_path):
    x = target()
    result = tg.learn(
        squared_error(x), x.shape, max_steps=5, dtype=DOUBLE, random_state=0, callbacks=lambda s: s.index >= 1
    )
    assert result.stop is tg.StopReason.CALLBACK and len(result.history) == 2
    result.save(tmp_path / "r.safetensors")
    assert tg.load(tmp_path / "r.safetensors").relative_error == result.relative_error


def test_transfer_off_starts_every_growth_anew():
    x = target()
    options = tg.GreedyOptions.for_learning("fast").replace(transfer=False)
    result = tg.learn(squared_error(x), x.shape, max_steps=1, options=options, dtype=DOUBLE, random_state=0)
    assert len(result.history) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": 3}, "function"),
        ({"dims": (3, 0)}, "dims"),
        ({"dims": 4}, "dims"),
        ({"validation": 0.1}, "function"),
        ({"max_steps": None}, "nothing says when to stop"),
        ({"training": {"epochs": 3}}, "TrainingOptions"),
        ({"options": 1}, "GreedyOptions"),
        ({"loss": lambda n: n.to_dense()}, "one real number"),
        ({"loss": lambda n: 3.0}, "one real number"),
        ({"batches": []}, "empty"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    given = {"loss": lambda n, *b: n.to_dense().sum(), "dims": (2, 2), "max_steps": 1, **arguments}
    with pytest.raises(tg.TensorgrowError, match=message):
        tg.learn(given.pop("loss"), given.pop("dims"), **given)


def test_loss_function_takes_means_over_batches():
    objective = LossFunction(
        lambda n, b: n.cores[0].sum() * 0 + b, (2, 2), [torch.tensor(1.0), torch.tensor(3.0)]
    )
    network = tg.TensorNetwork.random(Structure.rank_one((2, 2)), random_state=0)
    assert objective.total(network) == 2.0
    assert objective.num_batches == 2 and not objective.is_whole and not objective.holds_out
    assert objective.validate(network) is None


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


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"loss": lambda net: net.to_dense().detach().sum()}, "does not depend on what is trained"),
        ({"loss": lambda net: torch.ones(())}, "does not depend on what is trained"),
        ({"validation": lambda net: None}, "a score must be one real number"),
        ({"validation": lambda net: net.to_dense()}, "a score must be one real number"),
        ({"batches": 5}, "batches must be a DataLoader"),
    ],
)
def test_losses_and_scores_that_cannot_be_used_are_refused(options, match):
    settings = {"loss": lambda net, *batch: (net.to_dense() ** 2).sum(), "max_steps": 1}
    with pytest.raises(ValueError, match=match):
        tg.learn(dims=(2, 3), **(settings | options))


def test_growth_leaves_the_best_network_of_rank_one_whatever_the_size_of_its_cores():
    """The loss does not depend on the norm: cores drift, and gradients of small slices vanish."""
    x = torch.rand(3, 3, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))

    def angle(network):
        y = network.to_dense()
        return -(x * y).sum() / (x.norm() * y.norm())

    best = tg.decompose(x, max_parameters=15, random_state=0).relative_error
    for scale in (1.0, 30.0):
        start = tg.TensorNetwork.random(Structure.rank_one((3, 3, 3)), random_state=0)
        start = tg.TensorNetwork(start.structure, [c * scale for c in start.cores])
        r = tg.learn(angle, x.shape, init=start, max_steps=1, effort="fast", dtype=DOUBLE, random_state=0)
        assert r.num_parameters == 15
        assert r.relative_error == pytest.approx(-math.sqrt(1 - best**2), abs=2e-3)


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
