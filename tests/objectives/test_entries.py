from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import DenseLeastSquares, ObservedLeastSquares
from tensorgrow.objectives import entries as observed
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.structure import Structure
from tests.objectives.entry_data import RING, TRAIN, TUCKER, Data, arrays_of, best_core, slice_equations
from tests.oracles import (
    TOLERANCE,
    assert_close,
    dense,
    environment,
    node_equations,
    pair_gradient,
    perturbed,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds


@given(st.data())
def test_losses(dtype, device, data):
    network = data.draw(networks(dtype))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, device=device, weighted=data.draw(st.booleans()))
    o, arrays = d.objective, arrays_of(d, network)
    tensor = dense(structure, network.cores)
    scale = np.linalg.norm(tensor) + np.linalg.norm(to_numpy(d.dense))
    tolerance = 10 * TOLERANCE[dtype] * scale
    assert o.norm == pytest.approx(d.loss(np.zeros(structure.dims)), abs=tolerance)
    assert o.loss(structure, arrays) == pytest.approx(d.loss(tensor), abs=tolerance)
    assert o.num_fitted + o.num_held_out == len(d.indices)
    found = o.predict(structure, arrays)
    assert_close(found, tensor[tuple(d.indices.T.numpy())], TOLERANCE[dtype], scale)
    if not d.held.any():
        assert o.validation_norm is None and o.validation_loss(structure, arrays) is None
        assert o.losses(structure, arrays)[1] is None
        return
    held = tuple(d.indices[d.held].T.numpy())
    root = np.ones(len(held[0])) if d.weights is None else np.sqrt(to_numpy(d.weights[d.held]))
    true = to_numpy(d.dense)[held]
    assert o.validation_norm == pytest.approx(np.linalg.norm(root * true), abs=tolerance)
    expected = np.linalg.norm(root * (true - tensor[held]))
    assert o.validation_loss(structure, arrays) == pytest.approx(expected, abs=tolerance)
    assert o.losses(structure, arrays)[1] == pytest.approx(expected, abs=tolerance)


@given(st.data())
def test_residual_is_what_is_left(double, data):
    network = data.draw(networks(double))
    d = Data(network.structure.dims, data.draw(seeds), double)
    other = perturbed(network, 0.5, data.draw(seeds))
    rest = d.objective.residual(network)
    assert rest.norm == pytest.approx(d.objective.loss(network.structure, network.cores), rel=1e-9)
    expected = d.loss(dense(network.structure, network.cores) + dense(other.structure, other.cores))
    assert rest.loss(other.structure, other.cores) == pytest.approx(expected, rel=1e-8)
    assert_close(d.objective.values, d.values, 0.0)  # the objective itself stays


@pytest.mark.parametrize("ridge", [1e-12, 1e-2])
@pytest.mark.parametrize(
    "structure", [RING, TUCKER, TRAIN, Structure.rank_one((3, 4)), Structure.rank_one((6,))]
)
def test_a_sweep_solves_every_core_in_turn(structure, ridge, double, device):
    d = Data(structure.dims, 5, double, share=0.9, ridge=ridge, device=device)
    network = random_network(structure, 2, double)
    single = ridge >= observed.SINGLE_ABOVE
    tolerance = 1e-4 if single else 1e-6
    found = arrays_of(d, network)
    squared = d.objective.sweep(structure, found, 0.0)
    order = observed.RowTree(d.objective.index.entries, structure, network.cores).order
    cores = list(network.cores)
    for node in order:
        now = TensorNetwork(structure, cores)
        cores[node] = torch.tensor(best_core(d, now, node, ridge)).to(double)
        assert_close(found[node], cores[node], tolerance)
    expected = d.loss(dense(structure, cores))
    assert squared == pytest.approx(expected**2, rel=1e-3, abs=1e-6 * d.objective.norm**2)
    assert found[0].dtype == double


def test_a_solved_core_cannot_be_improved(dtype):
    """The gradient of the penalised loss vanishes at the last core of a sweep."""
    d = Data(RING.dims, 5, dtype, share=0.9, ridge=1e-3)
    arrays = arrays_of(d, random_network(RING, 2, dtype))
    d.objective.sweep(RING, arrays, 0.0)
    network = TensorNetwork(RING, arrays)
    node = observed.RowTree(d.objective.index.entries, RING, arrays).order[-1]
    design = d.design(network, node)
    width = math.prod(RING.core_shape(node)[1:])
    weight = 1e-3 * sum(np.linalg.norm(a) ** 2 for a, _ in design) / (len(design) * width)
    for x, (a, y) in zip(to_numpy(arrays[node]).reshape(len(design), width), design):
        slope = a.conj().T @ (a @ x - y) + weight * x
        assert np.linalg.norm(slope) <= 1e-4 * np.linalg.norm(a) * np.linalg.norm(y)


@pytest.mark.parametrize("structure", [RING, TUCKER, TRAIN])
@pytest.mark.parametrize("weighted", [False, True])
def test_plain_als_never_raises_the_loss(structure, weighted, double):
    """Request 3 of ECOSYSTEM.md: other libraries' masked ALS goes up."""
    for seed in range(2):
        d = Data(structure.dims, seed, double, share=0.5, weighted=weighted, ridge=1e-13)
        arrays = arrays_of(d, random_network(structure, seed, double))
        losses = [d.objective.loss(structure, arrays)]
        for _ in range(15):
            squared = d.objective.sweep(structure, arrays, 0.0)
            losses.append(d.loss(dense(structure, arrays)))
            assert squared == pytest.approx(losses[-1] ** 2, rel=1e-5, abs=1e-9 * d.objective.norm**2)
        slack = 1e-8 * d.objective.norm
        assert all(b <= a + slack for a, b in pairwise(losses)), losses
        assert losses[-1] < 0.95 * losses[0]


def test_als_recovers_a_planted_network(dtype, device):
    truth = random_network(RING, 3, dtype)
    target = torch.tensor(dense(RING, truth.cores)).to(dtype)
    d = Data(RING.dims, 0, dtype, share=0.9, target=target, weighted=False, hold_out=0.1, device=device)
    fit = als(d.objective, perturbed(truth, 0.05, 1), ALSSettings(max_sweeps=120, tolerance=1e-9))
    small = dtype in (torch.float32, torch.complex64)
    error = np.linalg.norm(dense(RING, fit.network.cores) - to_numpy(target)) / np.linalg.norm(
        to_numpy(target)
    )
    assert error < (1e-3 if small else 1e-6)  # on entries that were not observed too
    assert fit.network.dtype == dtype and fit.network.device.type == device


@given(st.data())
@settings(max_examples=20)
def test_a_full_mask_is_the_dense_problem(dtype, data):
    network = data.draw(networks(dtype, min_dim=2))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, share=2.0, weighted=False, hold_out=0.0, ridge=1e-14)
    whole = DenseLeastSquares(d.dense, use_numpy=False)
    assert d.objective.norm == pytest.approx(whole.norm, rel=1e-5)
    for node in range(structure.num_nodes):
        gram, rhs = slice_equations(d.objective, network, node)
        full_gram, full_rhs = node_equations(whole, network)[node]
        width = structure.bond_product(node)
        size = np.linalg.norm(environment(structure, network.cores, node))
        assert_close(rhs, full_rhs, 10 * TOLERANCE[dtype], size * whole.norm)
        if full_gram is None:
            assert_close(gram.reshape(-1), np.ones(structure.leg_dim(node)), TOLERANCE[dtype])
            continue
        for g in gram:  # bra before ket here, ket before bra there
            assert_close(
                g.reshape(width, width).T, full_gram.reshape(width, width), 10 * TOLERANCE[dtype], size**2
            )


def test_a_full_mask_sweeps_like_the_dense_objective(double):
    d = Data(RING.dims, 0, double, share=2.0, weighted=False, hold_out=0.0, ridge=1e-14)
    start = random_network(RING, 4, double)
    settings = ALSSettings(max_sweeps=60, tolerance=0.0)
    some = als(d.objective, start, settings)
    whole = als(DenseLeastSquares(d.dense), start, settings)
    assert some.loss == pytest.approx(whole.loss, rel=0.02)  # the orders of the cores differ
    assert some.loss == pytest.approx(d.loss(dense(RING, some.network.cores)), rel=1e-6)


@pytest.mark.parametrize("ridge", [1e-10, 1e-2])
def test_held_out_entries_never_influence_fits(ridge, double):
    d = Data(RING.dims, 0, double, ridge=ridge)
    changed = d.values.clone()
    changed[d.held] = 1e6
    other = ObservedLeastSquares(
        d.indices, changed, RING.dims, weights=d.weights, held_out=d.held, ridge=ridge
    )
    rows = ~d.held
    without = ObservedLeastSquares(
        d.indices[rows], d.values[rows], RING.dims, weights=d.weights[rows], ridge=ridge
    )
    network = random_network(RING, 1, double)
    results = []
    for objective in (d.objective, other, without):
        arrays = [c.clone() for c in network.cores]
        assert objective.norm == pytest.approx(d.objective.norm, rel=1e-12)
        squared = objective.sweep(RING, arrays, 1e-14)
        gradient = pair_gradient(objective, network, (0, 2))
        results.append((squared, arrays, gradient))
    tolerance = 1e-4 if ridge >= observed.SINGLE_ABOVE else 1e-7
    for squared, arrays, gradient in results[1:]:
        assert squared == pytest.approx(results[0][0], rel=tolerance)
        assert_close(gradient, results[0][2], 1e-12)
        for a, b in zip(arrays, results[0][1]):
            assert_close(a, b, tolerance)
    assert other.validation_norm > 100 * d.objective.validation_norm


def test_empty_slices_become_the_mean_of_the_others(double):
    target = random_array(np.random.default_rng(0), RING.dims, double)
    where = torch.tensor(np.argwhere(np.ones(RING.dims, bool)))
    keep = (where[:, 1] != 2) & (where[:, 3] != 0)
    objective = ObservedLeastSquares(where[keep], target[tuple(where[keep].T)], RING.dims, ridge=1e-8)
    arrays = list(random_network(RING, 0, double).cores)
    objective.sweep(RING, arrays, 1e-14)
    for node, s in ((1, 2), (3, 0)):
        core = arrays[node]
        assert bool(torch.isfinite(core).all())
        others = [k for k in range(RING.dims[node]) if k != s]
        assert_close(core[s], core[others].mean(0), 1e-12)


def test_some_cores_are_solved_for_alone(double):
    d = Data(RING.dims, 0, double, ridge=1e-2)
    network = random_network(RING, 0, double)
    swept = d.objective.to_arrays(network)
    d.objective.sweep(RING, swept, 1e-14)
    for a, b in zip(d.objective.with_solved(network, range(RING.num_nodes), 1e-14).cores, swept):
        assert_close(a, b, 1e-12)
    one = d.objective.with_solved(network, {2}, 1e-14)
    for k, (a, b) in enumerate(zip(one.cores, network.cores)):
        assert (k != 2) == torch.equal(a, b)
    again = d.objective.with_solved(one, {2}, 1e-14)  # the ridge depends on the other cores alone
    assert_close(again.cores[2], one.cores[2], 1e-9)


def test_inputs_are_not_modified(monkeypatch):
    d = Data(RING.dims, 0, ridge=1e-2)
    before = [t.clone() for t in (d.indices, d.values, d.weights, d.held)]
    network = random_network(RING, 0)
    cores = [c.clone() for c in network.cores]
    arrays = d.objective.to_arrays(network)
    d.objective.sweep(RING, list(arrays), 1e-14)
    for p in d.objective.pair_problems(RING, arrays, [(0, 1), (0, 2)]):
        p.fit(None, 2)
    slice_equations(d.objective, network, 1)
    d.objective.residual(network)
    for a, b in zip((d.indices, d.values, d.weights, d.held, *network.cores), [*before, *cores]):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_loss_after_a_sweep_is_right_where_single_rows_cancel(double):
    """A ridge from 1e-4 on computes rows in single precision; the squared loss must not be its rounding."""
    truth = random_network(TRAIN, 3, double)
    target = torch.tensor(dense(TRAIN, truth.cores)).to(double)
    d = Data(TRAIN.dims, 0, double, share=0.9, target=target, weighted=False, ridge=observed.SINGLE_ABOVE)
    arrays = arrays_of(d, truth.balanced())
    for _ in range(3):
        squared = d.objective.sweep(TRAIN, arrays, 0.0)
        exact = d.loss(dense(TRAIN, arrays))
        assert exact < 2e-3 * d.objective.norm
        assert squared == pytest.approx(exact**2, rel=0.05)


def test_ridges_share_the_data():
    d = Data(RING.dims, 0, ridge=1e-2)
    other = d.objective.with_ridge(1e-9)
    assert (d.objective.ridge, other.ridge) == (1e-2, 1e-9)
    assert other.values is d.objective.values
    assert other.num_held_out == d.objective.num_held_out > 0
    start = list(random_network(RING, 0).cores)
    strong, weak = list(start), list(start)
    d.objective.with_ridge(1.0).sweep(RING, strong, 0.0)
    other.sweep(RING, weak, 0.0)
    assert other.loss(RING, weak) < 0.9 * other.loss(RING, strong)


def test_memory_does_not_grow_with_the_dense_size():
    needed = []
    for side in (100, 1_000, 10_000):
        dims = (side, side, side)
        rng = np.random.default_rng(0)
        indices = torch.tensor(rng.integers(0, side, (300, 3)))
        objective = ObservedLeastSquares(indices, torch.ones(300, dtype=torch.float64), dims)
        needed.append(objective.memory_needed(Structure.tensor_train(dims, 3)))
    assert needed[0] <= needed[1] <= needed[2]
    assert needed[2] - needed[0] < 1e8  # linear in the side at most; dense would be 8e12


def test_memory_counts_complex_gram_matrices_in_full():
    dims, structure = (40, 40, 40), Structure.tensor_train((40, 40, 40), 20)
    indices = torch.tensor(np.random.default_rng(0).integers(0, 40, (50, 3)))
    real, complex_ = (
        ObservedLeastSquares(indices, torch.ones(50, dtype=dtype), dims).memory_needed(structure)
        for dtype in (torch.float64, torch.complex128)
    )
    assert complex_ - real >= 3 * 8 * 40 * 400**2  # one matrix of 400 rows per slice of the middle core


def test_work_is_linear_in_the_entries():
    flops = []
    for n in (100, 200, 400):
        indices = torch.tensor(np.random.default_rng(0).integers(0, 4, (n, 4)))
        objective = ObservedLeastSquares(indices, torch.ones(n, dtype=torch.float64), (4, 4, 4, 4))
        flops.append(objective.sweep_flops(Structure.tensor_ring((4, 4, 4, 4), 2)))
    assert flops[1] == pytest.approx(2 * flops[0]) and flops[2] == pytest.approx(4 * flops[0])
