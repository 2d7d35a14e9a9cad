"""Growth under any differentiable loss."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.solvers import TrainingOptions
from tensorgrow.structure import Structure

DOUBLE = torch.float64


def target(structure=None, seed=1):
    structure = structure or Structure((4,) * 4, {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2})
    x = tg.TensorNetwork.random(structure, random_state=seed).to_dense()
    return x / x.square().mean().sqrt()


def squared_error(x):
    return lambda network: ((network.to_dense() - x) ** 2).mean()


def test_a_ring_is_found_by_gradients():
    x = target()
    result = tg.learn(squared_error(x), x.shape, max_error=1e-7, dtype=DOUBLE, random_state=0)
    assert result.stop is tg.StopReason.TARGET_REACHED
    assert result.errors.total <= 1e-7
    assert result.num_parameters <= 1.5 * 64
    assert [s.kind for s in result.history] == ["start"] + ["grow"] * (len(result.history) - 1)
    assert result.history[-1].loss == pytest.approx(result.errors.total)
    assert float(squared_error(x)(result.network)) == pytest.approx(result.errors.total)
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
    assert result.stop is tg.StopReason.TARGET_REACHED and result.errors.total <= -0.999


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


def test_a_checkpoint_of_another_loss_is_refused(tmp_path):
    x, file = target(), tmp_path / "learn.ckpt"
    keywords = {
        "dtype": DOUBLE,
        "random_state": 0,
        "training": TrainingOptions(epochs=10),
        "checkpoint": file,
    }
    tg.learn(squared_error(x), x.shape, max_steps=1, **keywords)
    for other in (squared_error(-x), lambda net: (net.to_dense() - x).abs().mean()):
        with pytest.raises(tg.OptionError, match="belongs to another run: its loss is"):
            tg.learn(other, x.shape, max_steps=2, **keywords)
    with pytest.raises(tg.OptionError, match="belongs to another run: its validation is"):
        tg.learn(squared_error(x), x.shape, max_steps=2, validation=squared_error(x), **keywords)


def test_a_checkpoint_whose_loss_is_not_reproduced_is_refused(tmp_path):
    """Functions do not show everything: here the numbers are in an object whose fields may change."""
    x, file = target(), tmp_path / "learn.ckpt"
    data = {"x": x}
    keywords = {
        "dtype": DOUBLE,
        "random_state": 0,
        "training": TrainingOptions(epochs=10),
        "checkpoint": file,
    }

    def loss(network):
        return ((network.to_dense() - data["x"]) ** 2).mean()

    first = tg.learn(loss, x.shape, max_steps=1, **keywords)
    data["x"] = 5 - x
    with pytest.raises(
        tg.OptionError, match=r"the loss of its network was .*, here it is .* delete this one"
    ):
        tg.learn(loss, x.shape, max_steps=2, **keywords)
    data["x"] = x
    again = tg.learn(loss, x.shape, max_steps=2, **keywords)
    assert again.history[:2] == first.history
    assert float(loss(again.network)) == pytest.approx(again.errors.total, rel=1e-12)


def test_a_random_loss_can_be_resumed(tmp_path):
    x, file = target(), tmp_path / "learn.ckpt"
    generator = torch.Generator().manual_seed(0)
    keywords = {"dtype": DOUBLE, "random_state": 0, "checkpoint": file}
    keywords["training"] = TrainingOptions(optimizer="adam", epochs=10)

    def loss(network):
        seen = torch.rand(x.shape, generator=generator) < 0.5
        return ((network.to_dense() - x) ** 2)[seen].mean()

    tg.learn(loss, x.shape, max_steps=0, **keywords)
    assert len(tg.learn(loss, x.shape, max_steps=1, **keywords).history) == 2


def test_results_are_saved_and_callbacks_stop(tmp_path):
    x = target()
    result = tg.learn(
        squared_error(x), x.shape, max_steps=5, dtype=DOUBLE, random_state=0, callbacks=lambda s: s.index >= 1
    )
    assert result.stop is tg.StopReason.CALLBACK and len(result.history) == 2
    result.save(tmp_path / "r.safetensors")
    assert tg.load(tmp_path / "r.safetensors").errors.total == result.errors.total


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
        assert r.errors.total == pytest.approx(-math.sqrt(1 - best**2), abs=2e-3)
