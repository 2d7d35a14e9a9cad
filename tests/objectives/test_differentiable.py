"""One set of checks that every differentiable objective passes."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch

from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import (
    Classification,
    DensityLoss,
    Differentiable,
    LossFunction,
    Samples,
    Screening,
    Sharing,
    Sweeping,
    density,
)
from tensorgrow.structure import Structure
from tests.objectives.test_contract import concrete
from tests.oracles import random_array, random_network

TRAIN = Structure.tensor_train((3, 3, 3, 2), 2)


def whole_loss(held_out: bool) -> Differentiable:
    target = random_array(np.random.default_rng(0), TRAIN.dims, torch.float64)

    def squared(network):
        return ((network.to_dense() - target) ** 2).mean()

    return LossFunction(squared, TRAIN.dims, validation=(lambda n: 2 * squared(n)) if held_out else None)


def batched_loss(held_out: bool) -> Differentiable:
    targets = random_array(np.random.default_rng(0), (4, *TRAIN.dims), torch.float64)

    def squared(network, batch):
        return ((network.to_dense() - batch) ** 2).mean()

    validation = (lambda n: float(squared(n, targets[0]))) if held_out else None
    return LossFunction(squared, TRAIN.dims, list(targets), validation)


def classes(held_out: bool) -> Differentiable:
    rng = np.random.default_rng(0)
    features = random_array(rng, (48, 3, 3), torch.float64)
    labels = torch.tensor(rng.integers(0, 2, 48))
    held = torch.arange(48) % 3 == 0 if held_out else None
    generator = torch.Generator().manual_seed(0)
    return Classification(features, labels, 2, held_out=held, generator=generator, batch_size=8, share=0.5)


def likelihood(kind: str, held_out: bool) -> Differentiable:
    rng = np.random.default_rng(0)
    rows = torch.tensor(np.stack([rng.integers(0, d, 60) for d in TRAIN.dims], 1))
    fitted, held = (Samples(r, torch.ones(len(r)), TRAIN.dims) for r in (rows[:40], rows[40:]))
    generator = torch.Generator().manual_seed(0)
    return DensityLoss(fitted, TRAIN.dims, kind, held if held_out else None, generator)


CASES = {
    "loss": whole_loss,
    "loss of batches": batched_loss,
    "classes": classes,
    "density, Born": lambda held: likelihood("born", held),
    "density, non-negative": lambda held: likelihood("nonnegative", held),
}


@pytest.fixture(params=list(CASES))
def make(request):
    return CASES[request.param]


@pytest.fixture(params=[False, True], ids=["all at once", "in batches"])
def batch_size(request, monkeypatch):
    """Samples of a density that are seen at once."""
    if request.param:
        monkeypatch.setattr(density, "WHOLE_SAMPLES", 10)
        monkeypatch.setattr(density, "BATCH_SAMPLES", 7)


def network_with_gradients(seed: int = 0) -> TensorNetwork:
    network = random_network(TRAIN, seed)
    return TensorNetwork(TRAIN, [(0.5 * c).requires_grad_() for c in network.cores])


def test_every_objective_is_here():
    assert {type(make(False)) for make in CASES.values()} == concrete(Differentiable)


@pytest.mark.parametrize("held_out", [False, True])
def test_batches_add_up_to_the_total(make, held_out, batch_size):
    objective = make(held_out)
    assert objective.dims == TRAIN.dims
    network = random_network(TRAIN, 1)
    for _ in range(2):  # in a new order each time
        batches = list(objective.batches())
        assert len(batches) == objective.num_batches
        assert not objective.is_whole or len(batches) == 1
        losses = [float(objective.loss(network, b)) for b in batches]
        assert sum(losses) / len(losses) == pytest.approx(objective.total(network), rel=1e-10)
    score = objective.validate(network)
    assert objective.holds_out == held_out == (score is not None)
    assert score is None or math.isfinite(score)


def test_gradients_are_those_of_finite_differences(make, batch_size):
    objective = make(False)
    network = network_with_gradients()
    batch = next(iter(objective.batches()))
    loss = objective.loss(network, batch)
    assert loss.shape == () and loss.requires_grad
    gradients = torch.autograd.grad(loss, network.cores)
    assert all(bool(torch.isfinite(g).all()) for g in gradients)
    direction = random_network(TRAIN, 5).cores
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction))
    step = 1e-5
    ends = [
        TensorNetwork(TRAIN, [c.detach() + s * d for c, d in zip(network.cores, direction)])
        for s in (step, -step)
    ]
    up, down = (float(objective.loss(n, batch)) for n in ends)
    assert slope == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8)


def test_total_and_validate_leave_no_graph(make):
    objective, network = make(True), network_with_gradients()
    assert isinstance(objective.total(network), float)
    assert isinstance(objective.validate(network), float)
    assert all(c.grad is None for c in network.cores)


@pytest.mark.parametrize("held_out", [False, True])
def test_fitted_slices_have_the_measure_of_the_grown_network(make, held_out):
    objective = make(held_out)
    if not isinstance(objective, Sharing):
        pytest.skip("shares nothing")
    network = random_network(TRAIN, 2)
    fit = objective.around(network)
    measure = objective.validate if held_out else objective.total
    rng = np.random.default_rng(0)
    for i, j in combinations(range(4), 2):
        sizes = [TRAIN.leg_dim(a) * TRAIN.bond_product(a, without=b) for a, b in ((i, j), (j, i))]
        starts = [0.3 * random_array(rng, (n,), torch.float64) for n in sizes]
        before = measure(network.grow_edge(i, j, slices=tuple(starts)))
        losses = []
        for rounds in (0, 2):
            slices, after = fit((i, j), starts, rounds)
            grown = network.grow_edge(i, j, slices=tuple(slices))
            assert after == pytest.approx(measure(grown), rel=1e-8)
            losses.append(objective.total(grown))
            if not rounds:
                assert after == pytest.approx(before, rel=1e-8)
        assert losses[1] < losses[0]


def test_sweeps_lower_the_loss(make):
    objective = make(False)
    if not isinstance(objective, Sweeping):
        pytest.skip("has no sweeps")
    network = random_network(TRAIN, 2)
    losses = [objective.total(network)]
    for _ in range(5):
        network, loss = objective.sweep(network, math.inf)
        losses.append(objective.total(network))
        assert loss == pytest.approx(losses[-1], rel=1e-8)
        assert losses[-1] <= losses[-2] + 1e-12
    assert losses[-1] < losses[0]


def test_screening_grows_the_edges_it_names(make):
    objective = make(False)
    if not isinstance(objective, Screening):
        pytest.skip("screens nothing")
    network = random_network(TRAIN, 2)
    edges = list(combinations(range(4), 2))
    chosen, grown = objective.screen(network, edges, None, torch.Generator().manual_seed(0))
    assert chosen and len(chosen) <= math.ceil(0.5 * len(edges)) and set(chosen) <= set(edges)
    for edge in edges:
        assert grown.structure.rank(*edge) == TRAIN.rank(*edge) + (edge in chosen)
    assert math.isfinite(objective.total(grown))
    limit = TRAIN.num_parameters
    none, same = objective.screen(network, edges, limit, torch.Generator().manual_seed(0))
    assert none == [] and same.structure == TRAIN
