from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.algebra.linalg import is_single
from tensorgrow.contraction import sweep_plan
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import DenseLeastSquares, ObservedLeastSquares, Penalties
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.solvers.als import Extrapolation
from tensorgrow.structure import Structure
from tests.oracles import (
    assert_close,
    best_core,
    dense,
    environment,
    perturbed,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds, structures

NEVER = -math.inf  # a tolerance that never stops

EXACT = {
    "tensor train": Structure.tensor_train((6,) * 5, (2, 3, 4, 3)),
    "tensor ring": Structure.tensor_ring((6,) * 4, (2, 3, 2, 3)),
    "tucker": Structure.tucker((7, 6, 5, 6), (2, 3, 2, 3)),
    "triangle": Structure((6,) * 4, {(0, 1): 2, (1, 2): 2, (0, 2): 2, (2, 3): 3}),
}


@pytest.fixture(params=list(EXACT))
def exact(request):
    return EXACT[request.param]


def relative_error(fit, target):
    x = to_numpy(target)
    return np.linalg.norm(x - dense(fit.network.structure, fit.network.cores)) / np.linalg.norm(x)


def test_random_cores_may_go_without_the_first_balance(exact, use_numpy):
    target = random_array(np.random.default_rng(0), exact.dims, torch.float64)
    objective, net = DenseLeastSquares(target, use_numpy=use_numpy), random_network(exact, 1)
    settings = ALSSettings(max_sweeps=7, tolerance=NEVER)  # the second balance comes before the sixth sweep
    first = als(objective, net, settings)
    without = als(objective, net, replace(settings, balance_first=False))
    np.testing.assert_allclose(without.losses, first.losses, rtol=1e-9)
    assert_close(dense(exact, without.network.cores), dense(exact, first.network.cores), 1e-7)


# -- never up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [None, 0.95], ids=["plain", "accelerated"])
@given(st.data())
def test_the_loss_never_rises(momentum, use_numpy, double, data):
    net = data.draw(networks(double))
    target = random_array(np.random.default_rng(data.draw(seeds)), net.structure.dims, double)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    options = ALSSettings(
        max_sweeps=8,
        tolerance=NEVER,
        balance_every=3,
        accelerate=momentum is not None,
        momentum=momentum or 0.5,
    )
    fit = als(objective, net, options)
    norm = np.linalg.norm(to_numpy(target))
    assert fit.num_sweeps == 8
    assert fit.losses[0] <= norm * (1 + 1e-9)
    for before, after in zip(fit.losses, fit.losses[1:]):
        assert after <= before + 1e-7 * norm
    assert fit.loss == fit.losses[-1]
    assert fit.loss == pytest.approx(relative_error(fit, target) * norm, abs=1e-7 * norm)


@given(structures(min_order=2), seeds)
def test_every_update_lowers_the_loss(structure, seed):
    net = random_network(structure, seed)
    target = random_array(np.random.default_rng(seed), structure.dims, torch.float64)
    objective = DenseLeastSquares(target)
    norm = np.linalg.norm(to_numpy(target))
    start = np.linalg.norm(to_numpy(target) - dense(structure, net.cores))
    one = als(objective, net, ALSSettings(max_sweeps=1))
    assert one.loss <= start + 1e-7 * norm
    two = als(objective, one.network, ALSSettings(max_sweeps=1))
    assert two.loss <= one.loss + 1e-7 * norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=["float32", "complex64"])
def test_the_loss_hardly_rises_in_single_precision(use_numpy, dtype):
    for seed, structure in enumerate(EXACT.values()):
        net = random_network(structure, seed, dtype)
        target = random_array(np.random.default_rng(seed), structure.dims, dtype)
        objective = DenseLeastSquares(target, use_numpy=use_numpy)
        fit = als(objective, net, ALSSettings(max_sweeps=10, tolerance=NEVER))
        norm = np.linalg.norm(to_numpy(target))
        for before, after in zip(fit.losses, fit.losses[1:]):
            assert after <= before + 1e-5 * norm
        assert fit.loss == pytest.approx(relative_error(fit, target) * norm, rel=1e-4)


# -- one sweep is one least-squares problem per node -------------------------------------------------------


@given(st.data())
def test_one_sweep_is_lstsq_node_by_node(use_numpy, double, data):
    net = data.draw(networks(double, max_rank=2, min_dim=2))
    structure = net.structure
    target = random_array(np.random.default_rng(data.draw(seeds)), structure.dims, double)
    cores = [to_numpy(c) for c in net.cores]
    for node in sweep_plan(structure, net.is_complex).leg_order:
        # Where the best core is not unique, later nodes depend on the choice.
        assume(np.linalg.cond(environment(structure, cores, node).T) < 1e4)
        cores[node] = best_core(structure, cores, node, target)
    fit = als(DenseLeastSquares(target, use_numpy=use_numpy), net, ALSSettings(max_sweeps=1))
    norm = np.linalg.norm(to_numpy(target))
    assert_close(fit.network.to_dense(), dense(structure, cores), 1e-5, scale=norm)
    expected = np.linalg.norm(to_numpy(target) - dense(structure, cores))
    assert fit.loss == pytest.approx(expected, abs=1e-7 * norm)


def test_a_matrix_is_fitted_by_its_truncated_svd(use_numpy, dtype):
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(to_numpy(random_array(rng, (n, n), dtype)))[0] for n in (7, 6))
    values = np.array([9.0, 6.0, 1.0, 0.5, 0.3, 0.1])
    target = torch.tensor((u[:, :6] * values) @ v, dtype=dtype)
    net = random_network(Structure((7, 6), {(0, 1): 2}), 1, dtype)
    fit = als(DenseLeastSquares(target, use_numpy=use_numpy), net, ALSSettings(50, tolerance=1e-12))
    tolerance = 1e-4 if is_single(dtype) else 1e-9
    assert fit.loss == pytest.approx(np.linalg.norm(values[2:]), rel=tolerance)
    assert_close(fit.network.to_dense(), (u[:, :2] * values[:2]) @ v[:2], 10 * tolerance)


def test_a_network_of_one_node_is_the_target(use_numpy, dtype):
    target = random_array(np.random.default_rng(0), (5,), dtype)
    net = random_network(Structure((5,)), 1, dtype)
    before = target.clone()
    fit = als(DenseLeastSquares(target, use_numpy=use_numpy), net, ALSSettings())
    assert fit.loss == 0.0
    assert torch.equal(fit.network.cores[0], target)
    fit.network.cores[0].mul_(2)
    assert torch.equal(target, before)


# -- accuracy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accelerate", [False, True], ids=["plain", "accelerated"])
def test_exact_targets_are_recovered_to_rounding(accelerate, exact, use_numpy):
    true = random_network(exact, 3)
    target = true.to_dense()
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    options = ALSSettings(max_sweeps=300, tolerance=1e-3, accelerate=accelerate)
    fit = als(objective, perturbed(true, 1e-2, 4), options)
    assert relative_error(fit, target) < 1e-10
    assert fit.loss == pytest.approx(relative_error(fit, target) * objective.norm, rel=0.5, abs=1e-13)


@pytest.mark.parametrize("name", list(EXACT))
def test_exact_complex_targets(name):
    true = random_network(EXACT[name], 3, torch.complex128)
    target = true.to_dense()
    start = perturbed(true, 1e-2, 4)
    fit = als(DenseLeastSquares(target), start, ALSSettings(max_sweeps=300, tolerance=1e-3))
    assert relative_error(fit, target) < 1e-10


def test_exact_targets_in_single_precision(exact, use_numpy):
    true = random_network(exact, 3, torch.float32)
    target = true.to_dense()
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    fit = als(objective, perturbed(true, 1e-2, 4), ALSSettings(max_sweeps=60, tolerance=1e-3))
    assert fit.network.dtype == torch.float32
    assert relative_error(fit, target) < 3e-6
    assert fit.loss == pytest.approx(relative_error(fit, target) * objective.norm, rel=0.5)


def test_more_rank_than_needed_does_no_harm(use_numpy):
    true = random_network(Structure.tensor_train((5,) * 4, 2), 0)
    target = true.to_dense()
    net = random_network(Structure.tensor_train((5,) * 4, 3), 1)
    fit = als(
        DenseLeastSquares(target, use_numpy=use_numpy), net, ALSSettings(max_sweeps=300, tolerance=1e-3)
    )
    assert relative_error(fit, target) < 1e-10


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_the_scale_of_the_data_does_not_matter(exact, scale):
    true = random_network(exact, 3)
    start = perturbed(true, 1e-2, 4)
    target = scale * true.to_dense()
    fit = als(DenseLeastSquares(target), start, ALSSettings(max_sweeps=300, tolerance=1e-3))
    assert relative_error(fit, target) < 1e-10


def test_badly_scaled_starts_are_repaired(exact):
    true = random_network(exact, 3)
    start = perturbed(true, 1e-2, 4)
    cores = list(start.cores)
    cores[0], cores[1] = 1e80 * cores[0], 1e-80 * cores[1]
    fit = als(
        DenseLeastSquares(true.to_dense()),
        TensorNetwork(exact, cores),
        ALSSettings(max_sweeps=300, tolerance=1e-3),
    )
    assert relative_error(fit, true.to_dense()) < 1e-10


def drifted(network, condition, seed):
    """The same tensor with an ill-conditioned ``G G^-1`` on every edge."""
    rng = np.random.default_rng(seed)
    s, cores = network.structure, list(network.cores)
    for i, j in s.edges:
        rank = s.rank(i, j)
        u, v = (np.linalg.qr(rng.standard_normal((rank, rank)))[0] for _ in range(2))
        d = np.geomspace(condition**0.5, condition**-0.5, rank)
        for node, other, matrix in ((i, j, (u * d) @ v.T), (j, i, (u / d) @ v.T)):
            axis = s.axis(node, other)
            cores[node] = (cores[node].movedim(axis, -1) @ torch.from_numpy(matrix)).movedim(-1, axis)
    return TensorNetwork(s, cores)


def test_starts_with_a_drifted_gauge_are_repaired(exact, use_numpy):
    # Without balancing, ALS stops at an error of 0.03 to 0.3 here.
    true = random_network(exact, 3)
    start = drifted(perturbed(true, 1e-2, 4), 1e4, 5)
    target = true.to_dense()
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    fit = als(objective, start, ALSSettings(max_sweeps=300, tolerance=1e-3))
    assert relative_error(fit, target) < 1e-10


@pytest.mark.parametrize("structure", [Structure.tensor_ring((4,) * 4, 4), Structure.complete((4,) * 4, 2)])
def test_balancing_keeps_cores_bounded_over_many_sweeps(structure, double):
    target = random_array(np.random.default_rng(0), structure.dims, double)
    net = random_network(structure, 1, double)
    fit = als(DenseLeastSquares(target), net, ALSSettings(max_sweeps=200, tolerance=NEVER))
    assert fit.num_sweeps == 200
    norms = [np.linalg.norm(to_numpy(c)) for c in fit.network.cores]
    typical = np.linalg.norm(to_numpy(target)) ** (1 / structure.num_nodes)
    assert max(norms) < 10 * typical
    assert max(norms) / min(norms) < 2
    assert max(b - a for a, b in zip(fit.losses, fit.losses[1:])) < 1e-7 * fit.losses[0]


# -- acceleration ------------------------------------------------------------------------------------------


def test_acceleration_needs_fewer_sweeps():
    structure = EXACT["tensor ring"]
    target = random_array(np.random.default_rng(0), structure.dims, torch.float64)
    net = random_network(structure, 1)
    settings = ALSSettings(60, tolerance=NEVER)
    plain = als(DenseLeastSquares(target), net, settings)
    fast = als(DenseLeastSquares(target), net, replace(settings, accelerate=True), target=plain.loss)
    assert fast.loss <= plain.loss
    assert fast.num_sweeps < 60


@pytest.mark.parametrize("momentum", [0.3, 0.8])
def test_a_sweep_starts_beyond_the_last_one(momentum):
    starts = []

    def plain(arrays):
        starts.append([a.clone() for a in arrays])
        arrays[0] = 0.5 * arrays[0]
        return 1.0 / len(starts)

    step = Extrapolation(momentum)
    first, loss = step.sweep([torch.tensor([8.0])], math.inf, plain)
    step.sweep(first, loss, plain)
    (zero,), (one,) = starts
    assert float(zero) == 8.0
    assert float(one) == pytest.approx(4.0 + momentum * (4.0 - 8.0))


def test_inputs_are_not_modified(use_numpy, double):
    structure = EXACT["triangle"]
    target = random_array(np.random.default_rng(0), structure.dims, double)
    net = random_network(structure, 1, double)
    before = target.clone(), [c.clone() for c in net.cores]
    for accelerate in (False, True):
        options = ALSSettings(max_sweeps=6, tolerance=NEVER, accelerate=accelerate)
        als(DenseLeastSquares(target, use_numpy=use_numpy), net, options)
    assert torch.equal(target, before[0])
    assert all(torch.equal(a, b) for a, b in zip(net.cores, before[1]))


def test_the_same_run_twice_is_the_same_to_the_bit(use_numpy):
    structure = EXACT["triangle"]
    target = random_array(np.random.default_rng(0), structure.dims, torch.float64)
    runs = [
        als(
            DenseLeastSquares(target, use_numpy=use_numpy),
            random_network(structure, 1),
            ALSSettings(10, tolerance=NEVER),
        )
        for _ in range(2)
    ]
    assert runs[0].losses == runs[1].losses
    assert all(torch.equal(a, b) for a, b in zip(runs[0].network.cores, runs[1].network.cores))


def test_numpy_and_torch_take_the_same_steps(double):
    structure = EXACT["tucker"]
    target = random_array(np.random.default_rng(0), structure.dims, double)
    net = random_network(structure, 1, double)
    a, b = (
        als(DenseLeastSquares(target, use_numpy=u), net, ALSSettings(5, tolerance=NEVER))
        for u in (True, False)
    )
    np.testing.assert_allclose(a.losses, b.losses, rtol=1e-9)
    assert_close(a.network.to_dense(), b.network.to_dense(), 1e-8)


def test_the_zero_tensor(use_numpy, dtype):
    structure = EXACT["triangle"]
    target = torch.zeros(structure.dims, dtype=dtype)
    fit = als(
        DenseLeastSquares(target, use_numpy=use_numpy), random_network(structure, 1, dtype), ALSSettings(6)
    )
    assert fit.loss == 0.0
    assert not to_numpy(fit.network.to_dense()).any()


def test_als_on_the_device(dtype, device):
    structure = EXACT["tensor ring"]
    target = random_array(np.random.default_rng(0), structure.dims, dtype)
    net = random_network(structure, 1, dtype)
    fit = als(DenseLeastSquares(target.to(device)), net, ALSSettings(5, tolerance=NEVER))
    assert {(c.dtype, c.device.type) for c in fit.network.cores} == {(dtype, device)}
    reference = als(DenseLeastSquares(target, use_numpy=True), net, ALSSettings(5, tolerance=NEVER))
    np.testing.assert_allclose(fit.losses, reference.losses, rtol=1e-4 if is_single(dtype) else 1e-9)


def test_ctrl_c_keeps_the_last_whole_sweep_of_a_fit(monkeypatch):
    x = np.random.default_rng(0).standard_normal((4, 5, 6))
    structure = tg.Structure.tensor_ring(x.shape, 2)
    two = tg.fit(x, structure, random_state=0, max_sweeps=2)
    plain, calls = DenseLeastSquares.sweep, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(DenseLeastSquares, "sweep", interrupted)
    kept = tg.fit(x, structure, random_state=0)
    assert kept.stop is tg.StopReason.INTERRUPTED
    assert kept.relative_error == two.relative_error
    calls[:] = [1, 1]  # before the first sweep there is nothing to keep
    with pytest.raises(KeyboardInterrupt):
        tg.fit(x, structure, random_state=0)


# -- signs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accelerate", [False, True], ids=["plain", "accelerated"])
@pytest.mark.parametrize("nodes", [(0, 2), (0, 1, 2)], ids=["some", "all"])
def test_cores_without_negative_entries_stay_so(nodes, accelerate):
    rng = np.random.default_rng(0)
    x = random_array(rng, (5, 4, 6), torch.float64)
    indices = torch.from_numpy(np.argwhere(np.ones(x.shape)))
    known = Penalties({k: (tg.priors.nonnegative(),) for k in nodes}, (5, 4, 6))
    values = x.reshape(-1).abs() if len(nodes) == 3 else x.reshape(-1)
    objective = ObservedLeastSquares(indices, values, (5, 4, 6)).with_penalties(known)
    inner = Structure((5, 4, 6), {(0, 3): 2, (1, 3): 3, (2, 3): 2})
    for structure in (Structure.tensor_ring((5, 4, 6), 2), inner):
        start = random_network(structure, 1)  # of any sign
        settings = ALSSettings(max_sweeps=12, tolerance=NEVER, accelerate=accelerate, momentum=0.95)
        fit = als(objective, start, settings)
        kept = objective.nonnegative(structure)
        assert kept == (set(nodes) if len(nodes) < 3 else set(range(structure.num_nodes)))
        assert all((fit.network.cores[k] >= 0).all() for k in kept)
        assert len(nodes) == 3 or (fit.network.cores[1] < 0).any()
        assert all(b <= a * (1 + 1e-3) for a, b in pairwise(fit.losses))  # the ridge is what never rises
        assert fit.loss < 0.95 * objective.norm


def test_no_direction_is_kept_where_the_loss_rises():
    count = 0

    def plain(arrays):
        nonlocal count
        count += 1
        return float(count)

    step, here, loss = Extrapolation(0.5), [torch.ones(2)], math.inf
    for expected in (1, 3, 4, 5):  # the second sweep is tried from beyond, and then never again
        here, loss = step.sweep(here, loss, plain)
        assert count == expected


def test_extrapolation_ends_at_zero():
    step = Extrapolation(1.0, nonnegative={0})
    step.before = [torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])]
    here = [torch.tensor([0.4, 3.0]), torch.tensor([0.4, 3.0])]
    (one, two), _ = step.sweep(here, 1.0, lambda arrays: 0.5)
    assert one.tolist() == [0.0, 4.0]
    torch.testing.assert_close(two, torch.tensor([-0.2, 4.0]))


def test_a_fit_ends_where_sums_of_squares_cannot_tell_any_more():
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((6, 5, 4)))
    start = random_network(Structure.tucker((6, 5, 4), 2), 0, torch.float64)
    fit = als(DenseLeastSquares(x), start, ALSSettings(max_sweeps=2000, tolerance=0.0))
    further = als(DenseLeastSquares(x), fit.network, ALSSettings(max_sweeps=50, tolerance=NEVER))
    assert fit.num_sweeps < 2000
    assert further.loss == pytest.approx(fit.loss, rel=1e-10)
