"""The negative log-likelihood, its gradient, and what candidates share of it."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.algebra import moves
from tensorgrow.objectives import DensityLoss, Samples
from tensorgrow.objectives import density as objective_module
from tensorgrow.structure import Structure
from tests.densities import KINDS
from tests.oracles import random_network
from tests.strategies import seeds, structures


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


def loss_of(rows, dims, kind, **more):
    rows = torch.as_tensor(np.asarray(rows))
    return DensityLoss(Samples(rows, torch.ones(len(rows), dtype=torch.float64), dims), dims, kind, **more)


@given(structures(min_order=2, max_order=4, max_dim=3), seeds, st.sampled_from(KINDS), st.booleans())
@settings(max_examples=30)
def test_loss_and_gradient(structure, seed, kind, dense):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, d, 7) for d in structure.dims], 1)
    before = objective_module.DENSE_ENTRIES
    objective_module.DENSE_ENTRIES = before if dense else 0
    try:
        loss = loss_of(rows, structure.dims, kind)
    finally:
        objective_module.DENSE_ENTRIES = before
    cores = [c.requires_grad_() for c in random_network(structure, seed).cores]
    squared = cores if kind == "born" else [c.detach() ** 2 for c in cores]
    model = tg.DensityModel(tg.TensorNetwork(structure, squared), kind)
    logs = model.log_prob(rows)
    if float(logs.min()) < -12:  # near a zero of f, finite differences say nothing
        return
    assert loss.total(tg.TensorNetwork(structure, cores)) == pytest.approx(-float(logs.mean()), rel=1e-9)
    assert torch.autograd.gradcheck(
        lambda *c: loss.loss(tg.TensorNetwork(structure, c), None), cores, rtol=1e-4, atol=1e-6
    )


def test_zero_entries_cost_much_but_not_everything(kind):
    structure = Structure((2, 2), {(0, 1): 2})
    loss = loss_of([[0, 0], [0, 1]], structure.dims, kind)
    cores = [torch.eye(2, dtype=torch.float64).requires_grad_() for _ in range(2)]
    value = loss.loss(tg.TensorNetwork(structure, cores), None)
    value.backward()
    assert 20 < float(value.detach()) < 60
    assert all(bool(torch.isfinite(c.grad).all()) for c in cores)
    zero = [torch.zeros((2, 2), dtype=torch.float64).requires_grad_() for _ in range(2)]
    value = loss.loss(tg.TensorNetwork(structure, zero), None)
    value.backward()
    assert math.isfinite(float(value.detach()))
    assert all(bool(torch.isfinite(c.grad).all()) for c in zero)


def test_equal_samples_are_merged_and_weights_count():
    rows = torch.tensor([[0, 1], [1, 1], [0, 1], [0, 1]])
    merged = Samples(rows, torch.tensor([1.0, 2.0, 3.0, 0.5]), (2, 2))
    assert merged.rows.tolist() == [[0, 1], [1, 1]]
    assert merged.weights.tolist() == [4.5, 2.0] and merged.total == 6.5


def test_mean_of_batches_is_the_mean(monkeypatch):
    monkeypatch.setattr(objective_module, "WHOLE_SAMPLES", 10)
    monkeypatch.setattr(objective_module, "BATCH_SAMPLES", 5)
    rows = np.random.default_rng(0).integers(0, 2, (60, 6))
    loss = loss_of(rows, (2,) * 6, "born", generator=torch.Generator().manual_seed(0))
    network = random_network(Structure.tensor_train((2,) * 6, 2), 0)
    assert not loss.is_whole
    values = [float(loss.loss(network, b)) for b in loss.batches()]
    assert len(values) == loss.num_batches > 2
    assert np.mean(values) == pytest.approx(loss.total(network))


@pytest.mark.parametrize("entries", [0, 1 << 17], ids=["listed", "dense"])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("born", torch.float64), ("born", torch.complex128), ("nonnegative", torch.float64)]
)
@pytest.mark.parametrize(
    "structure",
    [
        Structure.rank_one((2, 3)),
        Structure((3, 2), {(0, 1): 2}),
        Structure((2, 3, 2, 4), {(0, 1): 2, (1, 2): 3, (0, 3): 2, (2, 3): 2, (0, 2): 2}),
        Structure((2, 3, 2, 4), {(0, 1): 2, (0, 4): 2, (2, 4): 2, (3, 4): 3}, num_nodes=5),
    ],
    ids=["rank one", "pair", "loops", "internal"],
)
def test_slices_and_cores_of_any_graph(structure, kind, dtype, entries, monkeypatch):
    """Measures are those of the grown network, the loss never rises, and cores end where gradients vanish."""
    monkeypatch.setattr(objective_module, "DENSE_ENTRIES", entries)
    generator = torch.Generator().manual_seed(0)
    dims = structure.dims
    rows = torch.stack([torch.randint(d, (30,), generator=generator) for d in dims], 1)
    weights = torch.rand(30, dtype=torch.float64, generator=generator)
    objective = DensityLoss(Samples(rows, weights, dims), dims, kind)
    network = random_network(structure, 3, dtype)
    fit = objective.around(network)
    for i, j in itertools.combinations(range(structure.num_nodes), 2):
        sizes = [structure.leg_dim(a) * structure.bond_product(a, without=b) for a, b in ((i, j), (j, i))]
        starts = [torch.randn(n, dtype=dtype, generator=generator) for n in sizes]
        grown = tg.TensorNetwork(*moves.grow(structure, network.cores, i, j, *starts))
        last = float(objective.loss(grown, None))
        for rounds in (0, 1, 3):
            slices, measure = fit((i, j), starts, rounds)
            grown = tg.TensorNetwork(*moves.grow(structure, network.cores, i, j, *slices))
            assert measure == pytest.approx(float(objective.loss(grown, None)), rel=1e-9)
            assert measure <= last + 1e-9
            last = measure
    last = objective.total(network)
    for _ in range(300 if kind == "born" and structure.num_nodes == 2 else 3):
        network, loss = objective.sweep(network, math.inf)
        assert loss == pytest.approx(float(objective.loss(network, None)), rel=1e-9)
        assert loss <= last + 1e-9
        last = loss
    if kind == "born" and structure.num_nodes == 2:
        leaves = [c.clone().requires_grad_() for c in network.cores]
        gradients = torch.autograd.grad(objective.loss(tg.TensorNetwork(structure, leaves), None), leaves)
        assert max(float(g.abs().max()) for g in gradients) < 1e-3
