"""Losses on entries, and completion with them."""

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.losses import Huber, as_loss
from tensorgrow.objectives import ObservedLeastSquares, ReweightedLeastSquares
from tensorgrow.solvers import ALSSettings, als

NAMES = ["squared", "absolute", "huber", "poisson", "logistic"]


def values_for(name, n, seed=0):
    rng = np.random.default_rng(seed)
    made = {"poisson": rng.poisson(2.0, n), "logistic": rng.integers(0, 2, n)}.get(
        name, rng.standard_normal(n)
    )
    return torch.from_numpy(made.astype(float))


# -- the losses themselves -----------------------------------------------------------------------------


def test_losses_are_the_likelihoods_of_scipy_and_torch():
    f = torch.linspace(-2, 2, 7, dtype=torch.float64)
    counts, bits = (
        torch.tensor([0.0, 1, 2, 0, 3, 1, 9], dtype=torch.float64),
        torch.tensor([0.0, 1, 0, 1, 1, 0, 1]),
    )
    expected = -torch.distributions.Poisson(f.exp()).log_prob(counts)
    torch.testing.assert_close(tg.losses.poisson.each(f, counts), expected)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(f, bits.double(), reduction="none")
    torch.testing.assert_close(tg.losses.logistic.each(f, bits.double()), expected)
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 2, 1, 1, 0])
    expected = -torch.log_softmax(logits, 1)[torch.arange(5), labels]
    torch.testing.assert_close(tg.losses.cross_entropy.each(logits, labels), expected)
    torch.testing.assert_close(
        tg.losses.cross_entropy.mean(logits).sum(1), torch.ones(5, dtype=torch.float64)
    )


def test_weights_and_means():
    f, y = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0])
    assert float(tg.losses.squared(f, y)) == 2.5
    assert float(tg.losses.squared(f, y, torch.tensor([3.0, 1.0]))) == 1.75
    assert float(tg.losses.poisson.mean(torch.tensor(0.0))) == 1.0
    assert float(tg.losses.logistic.mean(torch.tensor(0.0))) == 0.5


@pytest.mark.parametrize("name", NAMES)
def test_parabola_has_the_slope_of_the_loss(name):
    loss = as_loss(name)
    y = values_for(name, 50)
    f = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    (slope,) = torch.autograd.grad(loss.each(f, y).sum(), f)
    weight, step = loss.working(f.detach(), y)
    if name == "absolute":  # its tip is rounded
        far = (f.detach() - y).abs() > 0.1
        slope, weight, step = slope[far], weight[far], step[far]
    torch.testing.assert_close(-weight * step, slope)
    assert bool((weight > 0).all())


@pytest.mark.parametrize("name", NAMES)
def test_no_prediction_loses_less_than_the_least(name):
    loss = as_loss(name)
    y = values_for(name, 40)
    f = 5 * torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    assert bool((loss.each(f, y) >= loss.least(y) - 1e-12).all())


@pytest.mark.parametrize(
    ("name", "inverse"), [("poisson", math.log), ("logistic", lambda p: math.log(p / (1 - p)))]
)
def test_level_is_the_best_constant(name, inverse):
    y = values_for(name, 200)
    assert as_loss(name).level(y) == pytest.approx(inverse(float(y.mean())))


def test_unknown_losses_and_wrong_values_are_refused():
    with pytest.raises(tg.OptionError, match="'poisson'"):
        as_loss("gauss")
    with pytest.raises(tg.OptionError, match="delta"):
        Huber(0.0)
    x = np.full((4, 4), -1.0)
    with pytest.raises(tg.DataError, match="counts"):
        tg.complete(x, loss="poisson")
    with pytest.raises(tg.DataError, match="from 0 to 1"):
        tg.complete(x, loss="logistic")
    with pytest.raises(tg.DataError, match="real"):
        tg.complete(x + 0j, loss="huber")
    with pytest.raises(tg.OptionError, match="learn"):
        tg.complete(x, loss="cross_entropy")


# -- the objective -------------------------------------------------------------------------------------


def reweighted(name, shape=(6, 5, 4), rank=2, weights=False, n=80):
    generator = torch.Generator().manual_seed(3)
    codes = torch.randperm(math.prod(shape), generator=generator)[:n]
    where = torch.stack(torch.unravel_index(codes, shape), 1)
    given = torch.rand(n, dtype=torch.float64, generator=generator) + 0.5 if weights else None
    squares = ObservedLeastSquares(where, values_for(name, n), shape, weights=given, ridge=1e-8)
    objective = ReweightedLeastSquares(squares, as_loss(name))
    network = tg.TensorNetwork.random(tg.Structure.tensor_train(shape, rank), random_state=4)
    return objective, tg.TensorNetwork(network.structure, [0.5 * c for c in network.cores]), given


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_sweeps_lower_the_loss_to_a_stationary_point(name, weights):
    objective, network, given = reweighted(name, weights=weights)
    first = objective.loss(network.structure, objective.to_arrays(network))
    fit = als(objective, network, ALSSettings(max_sweeps=80, tolerance=0.0))
    assert fit.loss <= first
    assert all(b <= a * (1 + 1e-9) for a, b in zip(fit.losses, fit.losses[1:]))
    if name == "absolute":
        return  # not smooth
    cores = [c.clone().requires_grad_() for c in fit.network.cores]
    where = objective.index.entries.columns
    found = tg.TensorNetwork(network.structure, cores).entries(torch.stack(list(where), 1))
    each = objective.entry_loss.each(found, objective.values)
    (each if given is None else given * each).sum().backward()
    start = max(float(c.grad.abs().max()) for c in cores)
    assert start < 0.05 * first**2


def test_squared_loss_agrees_with_least_squares():
    objective, network, _ = reweighted("squared")
    plain = ObservedLeastSquares(
        torch.stack(list(objective.index.entries.columns), 1), objective.values, objective.dims, ridge=1e-8
    )
    arrays = objective.to_arrays(network)
    # The deviance counts half the squared residual twice over: loss (f - y)^2, deviance 2 (f - y)^2.
    assert objective.loss(network.structure, arrays) == pytest.approx(
        math.sqrt(2) * plain.loss(network.structure, arrays)
    )
    a, b = list(arrays), list(arrays)
    objective.sweep(network.structure, a, 1e-14)
    plain.sweep(network.structure, b, 1e-14)
    for x, y in zip(a, b):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-8)


def test_pair_problems_predict_the_gain_of_small_slices():
    objective, network, _ = reweighted("poisson", rank=1)
    arrays = objective.to_arrays(network)
    before = objective.loss(network.structure, arrays)
    (problem,) = objective.pair_problems(network.structure, arrays, [(0, 2)])
    left, right, explained = problem.fit(None, 2)
    assert explained > 0
    grown = network.grow_edge(0, 2, slices=(0.1 * left, right))
    assert objective.loss(grown.structure, objective.to_arrays(grown)) < before


# -- completion ----------------------------------------------------------------------------------------


def planted(seed=0, shape=(12, 12, 12)):
    rng = np.random.default_rng(seed)
    a, b, c, d = (rng.uniform(-1.5, 1.5, n) for n in (*shape, shape[1]))
    return a[:, None, None] * b[None, :, None] + c[None, None, :] * d[None, :, None]


def test_counts_are_predicted_better_by_their_own_loss():
    rng = np.random.default_rng(0)
    f = planted(0, (16, 16, 16))
    y, mask = rng.poisson(np.exp(f)).astype(float), rng.random(f.shape) < 0.5
    mean = {}
    for loss in ("squared", "poisson"):
        result = tg.complete(y, mask, loss=loss, random_state=0, effort="fast")
        rate = np.clip(result.fill(y, mask, keep_observed=False), 1e-2, None)
        mean[loss] = float(
            tg.losses.poisson(torch.from_numpy(np.log(rate))[~mask], torch.from_numpy(y)[~mask])
        )
    assert mean["poisson"] < mean["squared"]
    assert result.info["loss"] == "poisson"
    assert result.info["validation_loss"] > 0


def test_zeros_and_ones_become_probabilities():
    rng = np.random.default_rng(1)
    f = planted(1, (20, 20, 20))
    bits, mask = (rng.random(f.shape) < 1 / (1 + np.exp(-f))).astype(float), rng.random(f.shape) < 0.6
    result = tg.complete(bits, mask, loss="logistic", random_state=0, effort="fast", truth=bits)
    filled = result.fill(bits, mask, keep_observed=False)
    assert filled.min() >= 0.0 and filled.max() <= 1.0
    where = np.argwhere(~mask)
    assert np.allclose(result.predict(where), filled[~mask])
    guess = bits[mask].mean()
    naive = -(guess * math.log(guess) + (1 - guess) * math.log(1 - guess))
    assert result.info["test_loss"] < naive
    assert 0.0 < result.test_error < 1.0


@pytest.mark.filterwarnings("ignore:nothing was learned")  # by squares, which the outliers dominate
def test_outliers_are_not_followed():
    rng = np.random.default_rng(2)
    f = planted(2)
    y, mask = f + 0.01 * rng.standard_normal(f.shape), rng.random(f.shape) < 0.6
    wrong = rng.random(f.shape) < 0.05
    y = np.where(wrong, y + 30 * rng.standard_normal(f.shape), y)
    squared, *others = (
        np.linalg.norm(result.network.to_dense().numpy() - f) / np.linalg.norm(f)
        for result in (
            tg.complete(y, mask, loss=loss, random_state=0, max_parameters=200, effort="fast")
            for loss in ("squared", "huber", "absolute", Huber(0.05))
        )
    )
    assert max(others) < 0.5 * squared


def test_results_with_a_loss_are_saved_and_resumed(tmp_path):
    rng = np.random.default_rng(3)
    y = rng.poisson(np.exp(planted(3, (8, 8, 8)))).astype(float)
    mask = rng.random(y.shape) < 0.7
    options = {"loss": "poisson", "random_state": 0, "effort": "fast"}
    whole = tg.complete(y, mask, max_steps=3, **options)
    file = tmp_path / "run.ckpt"
    tg.complete(y, mask, max_steps=2, checkpoint=file, **options)
    resumed = tg.complete(y, mask, max_steps=3, checkpoint=file, **options)
    assert resumed.structure == whole.structure
    assert all(map(torch.equal, resumed.network.cores, whole.network.cores))
    with pytest.raises(tg.OptionError, match="loss"):
        tg.complete(y, mask, checkpoint=file, **(options | {"loss": "huber"}))
    whole.save(tmp_path / "r.safetensors")
    loaded = tg.load(tmp_path / "r.safetensors")
    where = np.argwhere(~mask)[:5]
    assert np.array_equal(loaded.predict(where), whole.predict(where))


def test_all_zero_counts():
    result = tg.complete(
        np.zeros((6, 6, 6)), np.ones((6, 6, 6), bool), loss="poisson", random_state=0, effort="fast"
    )
    assert float(result.predict([[0, 0, 0]])[0]) < 0.05


def test_a_loss_without_parabolas_is_refused_with_the_way_out():
    class Quartic(tg.losses.EntryLoss):
        name = "quartic"

        def each(self, prediction, target):
            return (prediction - target) ** 4

    x = np.random.default_rng(0).standard_normal((4, 5, 3))
    with pytest.raises(tg.OptionError, match="Quartic does not say how entries are fitted"):
        tg.complete(x, np.ones(x.shape, bool), loss=Quartic(), max_steps=1)
